//! The halite-minion program as a child: it alone changes hosts.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use halite_states::low::{LowState, RunReturn};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Where it is once a host is managed.
const INSTALLED: &str = "/usr/local/bin/halite-minion";

/// The program.
#[derive(Debug, Clone)]
pub struct Minion {
    program: PathBuf,
}

impl Minion {
    /// The given program; else the one beside this one, else the installed one.
    pub fn find(given: Option<&Path>) -> Self {
        if let Some(program) = given {
            return Self {
                program: program.to_owned(),
            };
        }
        let beside = std::env::current_exe()
            .ok()
            .and_then(|own| Some(own.parent()?.join("halite-minion")));
        let program = beside
            .filter(|path| path.exists())
            .unwrap_or_else(|| PathBuf::from(INSTALLED));
        Self { program }
    }

    fn failed(&self) -> String {
        format!("{} cannot be run", self.program.display())
    }

    /// What it finds out about this host.
    ///
    /// # Errors
    /// It cannot be run, or fails.
    pub async fn grains(&self) -> anyhow::Result<Value> {
        let output = Command::new(&self.program)
            .arg("grains")
            .stdin(Stdio::null())
            .output()
            .await;
        let output = output.with_context(|| self.failed())?;
        if !output.status.success() {
            bail!(
                "`halite-minion grains` failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        serde_json::from_slice(&output.stdout).context("`halite-minion grains` printed no JSON")
    }

    /// Applies a low state (or only predicts what that would do). The low state goes over standard
    /// input, because it may hold secrets.
    ///
    /// # Errors
    /// It cannot be run, or ends without a return. Failed states are in the return.
    pub async fn apply(
        &self,
        low: &LowState,
        blobs: &Path,
        test: bool,
    ) -> anyhow::Result<RunReturn> {
        let mut command = Command::new(&self.program);
        command
            .arg("apply")
            .args(["--low", "-", "-o", "json"])
            .arg("--blobs")
            .arg(blobs);
        if test {
            command.arg("--test");
        }
        // What it logs while it works is not ours to show: the return says it all.
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().with_context(|| self.failed())?;
        let text = serde_json::to_vec(low).context("the low state cannot be written")?;
        let stdin = child.stdin.take();
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A child that ends early says why itself.
                let _ = stdin.write_all(&text).await;
            }
        };
        let (output, ()) = tokio::join!(child.wait_with_output(), feed);
        let output = output.context("`halite-minion apply` was lost")?;
        serde_json::from_slice(&output.stdout).map_err(|_| {
            let said = String::from_utf8_lossy(&output.stderr);
            anyhow::anyhow!(
                "`halite-minion apply` failed ({}): {}",
                output.status,
                said.trim()
            )
        })
    }

    /// Enrols this host at a master; `again` although it has an identity, because the master does
    /// not know it. A second time with the same key is harmless.
    ///
    /// # Errors
    /// It cannot be run, or the master refuses.
    pub async fn enrol(
        &self,
        master: &str,
        id: &str,
        token: &str,
        again: bool,
    ) -> anyhow::Result<()> {
        let output = Command::new(&self.program)
            .args(["enrol", "--master", master, "--id", id])
            .args(again.then_some("--force"))
            // Not among the arguments, which every user of the host can see.
            .env("HALITE_TOKEN", token)
            .stdin(Stdio::null())
            .output()
            .await
            .with_context(|| self.failed())?;
        if !output.status.success() {
            bail!(
                "this host could not be enrolled: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(())
    }
}
