//! The restart of the minion with a new program, by the old one: if the new program does not reach
//! the master in time, the old one takes its place again.
//!
//! The state that has put the new program in place copies the old one aside, from the process that
//! still runs it, and starts `halite-minion update` with it as a transient unit, which outlives the
//! minion.

use std::path::{Path, PathBuf};
use std::time::Duration;

use halite_durable::digest::sha256;
use halite_host_reports::update::{RECORD, Reverted};
use tokio::time::Instant;

use crate::clock;
use crate::host::linux::files::{self, Owner};
use crate::host::{HostError, HostResult};

/// The unit of the minion.
const UNIT: &str = "halite-minion.service";

/// The file in the unit's runtime directory that says which process has reached the master.
const LINKED: &str = "linked";

/// Time between two looks at the unit.
const LOOK: Duration = Duration::from_millis(200);

/// Notes for [`carry_out`] that this process has reached the master. systemd removes the directory
/// when the unit stops, so that the note is always that of the process that runs.
///
/// # Errors
/// The file cannot be written.
pub fn note_linked() -> HostResult<()> {
    let Some(directory) = std::env::var_os("RUNTIME_DIRECTORY") else {
        return Ok(());
    };
    let path = PathBuf::from(directory).join(LINKED);
    let id = format!("{}\n", std::process::id());
    files::write_unsynced(&path, id.as_bytes(), Owner::default())
}

/// The minion's unit, as the update sees it.
pub trait Unit {
    /// Restarts it, and does not wait for its start.
    fn restart(&mut self) -> impl Future<Output = HostResult<()>>;
    /// Its main process and state.
    fn state(&mut self) -> impl Future<Output = HostResult<UnitNow>>;
}

/// Main process and state of the unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitNow {
    /// Process id; empty or 0: none.
    pub pid: String,
    /// `active`, `activating`, `failed`, …
    pub state: String,
}

/// Paths of an update.
#[derive(Debug, Clone)]
pub struct Paths {
    /// The program that is restarted.
    pub program: PathBuf,
    /// The one before.
    pub previous: PathBuf,
    /// The unit's runtime directory.
    pub runtime: PathBuf,
    /// The record of an update that was taken back.
    pub record: PathBuf,
}

impl Paths {
    /// The paths on a host, with `previous` as the program before.
    #[must_use]
    pub fn of_host(previous: PathBuf) -> Self {
        Self {
            program: PathBuf::from("/usr/local/bin/halite-minion"),
            previous,
            runtime: PathBuf::from("/run/halite-minion"),
            record: PathBuf::from(RECORD),
        }
    }
}

/// Restarts the unit with the program that is in place. Returns whether that reached the master
/// within `limit`; otherwise the program before is in place again, and runs.
///
/// # Errors
/// systemd refuses, or a file cannot be read or written.
pub async fn carry_out(unit: &mut impl Unit, paths: &Paths, limit: Duration) -> HostResult<bool> {
    unit.restart().await?;
    let end = Instant::now() + limit;
    let mut now = unit.state().await?;
    while Instant::now() < end {
        if is_linked(&paths.runtime, &now)? {
            files::remove(&paths.record)?;
            return Ok(true);
        }
        tokio::time::sleep(LOOK).await;
        now = unit.state().await?;
    }
    let new = files::read(&paths.program)?.unwrap_or_default();
    let old = files::read(&paths.previous)?.ok_or_else(|| {
        HostError::refused(format!(
            "cannot go back to the program before: {} is gone. Run the command of `ctl node add` on this host again: it \
             installs the bundle's program",
            paths.previous.display()
        ))
    })?;
    let reverted = Reverted {
        time: clock::seconds(),
        program: sha256(&new),
        seconds: limit.as_secs(),
        unit: now.state,
    };
    let text = serde_json::to_vec(&reverted)
        .map_err(|e| HostError::failed("cannot write the record of the update", e))?;
    files::write(&paths.record, &text, Owner::default())?;
    let executable = Owner {
        mode: Some(0o755),
        ..Owner::default()
    };
    files::write(&paths.program, &old, executable)?;
    unit.restart().await?;
    Ok(false)
}

/// Returns whether the process that runs now has reached the master.
fn is_linked(runtime: &Path, now: &UnitNow) -> HostResult<bool> {
    let noted = files::read(&runtime.join(LINKED))?.unwrap_or_default();
    let noted = String::from_utf8_lossy(&noted);
    Ok(!noted.trim().is_empty() && noted.trim() == now.pid)
}

/// The unit of this host.
#[derive(Debug, Default)]
pub struct Systemd;

impl Unit for Systemd {
    async fn restart(&mut self) -> HostResult<()> {
        // A unit that failed often with the other program starts nonetheless.
        let _ = systemctl(&["reset-failed", UNIT]).await;
        systemctl(&["--no-block", "restart", UNIT]).await.map(drop)
    }

    async fn state(&mut self) -> HostResult<UnitNow> {
        let text = systemctl(&["show", "-p", "MainPID", "-p", "ActiveState", UNIT]).await?;
        let value = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
                .unwrap_or_default()
                .to_owned()
        };
        Ok(UnitNow {
            pid: value("MainPID"),
            state: value("ActiveState"),
        })
    }
}

/// Output of systemctl(1).
async fn systemctl(args: &[&str]) -> HostResult<String> {
    let argv = [&["systemctl"], args].concat();
    crate::host::linux::command::run_checked(&argv, &[], Duration::from_secs(60)).await
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "files of the tests")]
mod tests {
    use std::fs;

    use super::*;

    /// A unit whose second and later programs link or not, as the test says.
    struct Scripted {
        paths: Paths,
        links: bool,
        ran: Vec<String>,
    }

    impl Unit for Scripted {
        async fn restart(&mut self) -> HostResult<()> {
            let program = fs::read_to_string(&self.paths.program).unwrap();
            self.ran.push(program);
            let linked = self.paths.runtime.join(LINKED);
            let _ = fs::remove_file(&linked);
            if self.links {
                fs::write(linked, format!("{}\n", self.ran.len())).unwrap();
            }
            Ok(())
        }

        async fn state(&mut self) -> HostResult<UnitNow> {
            Ok(UnitNow {
                pid: self.ran.len().to_string(),
                state: "activating".to_owned(),
            })
        }
    }

    fn scene(links: bool) -> (tempfile::TempDir, Scripted) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let paths = Paths {
            program: at("program"),
            previous: at("previous"),
            runtime: dir.path().to_owned(),
            record: at("record"),
        };
        fs::write(&paths.program, "new").unwrap();
        fs::write(&paths.previous, "old").unwrap();
        fs::write(at(LINKED), "999\n").unwrap();
        let unit = Scripted {
            paths,
            links,
            ran: Vec::new(),
        };
        (dir, unit)
    }

    const LIMIT: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn a_program_that_reaches_the_master_stays() {
        let (_dir, mut unit) = scene(true);
        let paths = unit.paths.clone();
        fs::write(&paths.record, "of an earlier update").unwrap();
        assert!(carry_out(&mut unit, &paths, LIMIT).await.unwrap());
        assert_eq!(unit.ran, ["new"]);
        assert_eq!(fs::read_to_string(&paths.program).unwrap(), "new");
        assert!(!paths.record.exists());
    }

    #[tokio::test]
    async fn a_program_that_does_not_is_replaced_by_the_one_before() {
        let (_dir, mut unit) = scene(false);
        let paths = unit.paths.clone();
        assert!(!carry_out(&mut unit, &paths, LIMIT).await.unwrap());
        assert_eq!(unit.ran, ["new", "old"]);
        let record: Reverted = serde_json::from_slice(&fs::read(&paths.record).unwrap()).unwrap();
        assert_eq!(record.program, sha256(b"new"));
        assert_eq!((record.seconds, record.unit.as_str()), (1, "activating"));
    }

    #[tokio::test]
    async fn a_note_of_another_process_does_not_count() {
        let (dir, mut unit) = scene(false);
        let paths = unit.paths.clone();
        let linked = dir.path().join(LINKED);
        let late = async {
            tokio::time::sleep(LOOK).await;
            fs::write(&linked, "999\n").unwrap();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            reached = carry_out(&mut unit, &paths, LIMIT) => assert!(!reached.unwrap()),
            () = late => {}
        }
    }
}
