//! The halite-minion program as a child process. Only that program changes hosts.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use halite_states::low::{LowState, RunReturn};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The path of the installed program.
const INSTALLED: &str = "/usr/local/bin/halite-minion";

/// The halite-minion program.
#[derive(Debug, Clone)]
pub struct Minion {
    program: PathBuf,
}

impl Minion {
    /// Finds the program: the given one, else the one beside this program, else the installed one.
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

    fn cannot_run(&self) -> String {
        format!("cannot run {}", self.program.display())
    }

    /// Collects the grains of this host.
    ///
    /// # Errors
    /// The program cannot be run, or fails.
    pub async fn grains(&self) -> anyhow::Result<Value> {
        let output = Command::new(&self.program)
            .arg("grains")
            .stdin(Stdio::null())
            .output()
            .await;
        let output = output.with_context(|| self.cannot_run())?;
        if !output.status.success() {
            bail!(
                "`halite-minion grains` failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        serde_json::from_slice(&output.stdout)
            .context("cannot read the output of `halite-minion grains` as JSON")
    }

    /// Applies a low state, or with `test` only predicts its changes. The low state is passed on
    /// standard input, because it may contain secrets.
    ///
    /// # Errors
    /// The program cannot be run, or ends without a return. Failed states are in the return.
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
        // Its log is only shown if there is no return.
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().with_context(|| self.cannot_run())?;
        let text = serde_json::to_vec(low).context("cannot write the low state as JSON")?;
        let stdin = child.stdin.take();
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A child that ends early explains that on its standard error.
                let _ = stdin.write_all(&text).await;
            }
        };
        let (output, ()) = tokio::join!(child.wait_with_output(), feed);
        let output = output.context("cannot wait for `halite-minion apply`")?;
        serde_json::from_slice(&output.stdout).map_err(|_| {
            let log = String::from_utf8_lossy(&output.stderr);
            anyhow::anyhow!(
                "`halite-minion apply` failed ({}): {}",
                output.status,
                log.trim()
            )
        })
    }

    /// Enrols this host with a master. With `again`, also if it has an identity, which the master
    /// may have forgotten. Repeating this with the same key is harmless.
    ///
    /// # Errors
    /// The program cannot be run, or the master refuses.
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
            // Every user of the host can see arguments, but not the environment.
            .env("HALITE_TOKEN", token)
            .stdin(Stdio::null())
            .output()
            .await
            .with_context(|| self.cannot_run())?;
        if !output.status.success() {
            bail!(
                "cannot enrol this host: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(())
    }
}
