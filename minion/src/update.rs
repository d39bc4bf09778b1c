//! Restarts the minion with a new program, on behalf of the old one: if the new program does not
//! reach the master in time, the old one is restored.
//!
//! The state that has installed the new program copies the old one, from the process that still
//! runs it, and starts `halite-minion update` with it as a transient unit, which outlives the
//! minion.

use std::path::{Path, PathBuf};
use std::time::Duration;

use halite_durable::digest::sha256;
use halite_errors::chain;
use halite_host_reports::update::{RECORD, Reverted};
use tokio::time::Instant;

use crate::clock;
use crate::host::linux::files::{self, Owner};
use crate::host::{HostError, HostResult};

/// The unit of the minion.
const UNIT: &str = "halite-minion.service";

/// The file in the unit's runtime directory that names the process that has reached the master.
const LINKED: &str = "linked";

/// Polling interval for the unit.
const LOOK: Duration = Duration::from_millis(200);

/// Records for [`carry_out`] that this process has reached the master. systemd removes the
/// directory after the unit has stopped.
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
    /// Its main process and state. After a restart was requested, both are the old process's until
    /// that has ended.
    fn state(&mut self) -> impl Future<Output = HostResult<UnitNow>>;
}

/// Main process and state of the unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitNow {
    /// The main process.
    pub process: Process,
    /// `active`, `activating`, `failed`, …
    pub state: String,
}

/// A main process of the unit. No two have the same values: the kernel reuses process ids, but
/// systemd makes an invocation id for each start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Process id; empty or 0 without a process.
    pub pid: String,
    /// systemd's `InvocationID`; empty before the first start.
    pub invocation: String,
}

/// Paths of an update.
#[derive(Debug, Clone)]
pub struct Paths {
    /// The program that is restarted.
    pub program: PathBuf,
    /// The previous program.
    pub previous: PathBuf,
    /// The unit's runtime directory.
    pub runtime: PathBuf,
    /// The record of an update that was rolled back.
    pub record: PathBuf,
}

impl Paths {
    /// The paths on a host, with `previous` as the previous program.
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

/// Limits of an update.
#[derive(Debug, Clone, Copy)]
pub struct UpdateLimits {
    /// The time for the old process to end.
    pub stop: Duration,
    /// The time after that, within which a process with the new program reaches the master.
    pub link: Duration,
}

impl UpdateLimits {
    /// The limits on a host, where systemd kills the old process after 90 s by default.
    #[must_use]
    pub fn of_host(link: Duration) -> Self {
        Self {
            stop: Duration::from_secs(150),
            link,
        }
    }
}

/// Restarts the unit with the installed program. Returns whether that reached the master in time;
/// otherwise the previous program is restored, and runs. The old process, which has reached the
/// master too and finishes its current state before it ends, does not count.
///
/// # Errors
/// systemd refuses a restart, the previous program cannot be restored, or an old record cannot be
/// removed. After the first restart, other errors are logged: they must not prevent the rollback.
pub async fn carry_out(
    unit: &mut impl Unit,
    paths: &Paths,
    limits: UpdateLimits,
) -> HostResult<bool> {
    let mut now = unit.state().await?;
    let before = now.process.clone();
    unit.restart().await?;
    inspect(unit, &mut now).await;
    let end = Instant::now() + limits.stop;
    while now.process == before && Instant::now() < end {
        tokio::time::sleep(LOOK).await;
        inspect(unit, &mut now).await;
    }
    let end = Instant::now() + limits.link;
    while Instant::now() < end {
        if now.process != before && is_linked(&paths.runtime, &now.process) {
            files::remove(&paths.record)?;
            return Ok(true);
        }
        tokio::time::sleep(LOOK).await;
        inspect(unit, &mut now).await;
    }
    let new = logged(files::read(&paths.program)).flatten();
    // Renamed, not copied: the disk may be full.
    files::replace(&paths.previous, &paths.program).map_err(|error| {
        HostError::refused(format!(
            "cannot restore the previous program: {}. Run the command of `ctl node add` on this host again: it installs \
             the bundle's program",
            chain(&error)
        ))
    })?;
    let reverted = Reverted {
        time: clock::seconds(),
        program: sha256(&new.unwrap_or_default()),
        seconds: limits.link.as_secs(),
        unit: now.state,
    };
    let text = serde_json::to_vec(&reverted)
        .map_err(|e| HostError::failed("cannot write the record of the update", e));
    logged(text.and_then(|text| files::write(&paths.record, &text, Owner::default())));
    unit.restart().await?;
    Ok(false)
}

/// Updates `now`, which stays as it is if systemd does not answer.
async fn inspect(unit: &mut impl Unit, now: &mut UnitNow) {
    if let Some(found) = logged(unit.state().await) {
        *now = found;
    }
}

/// Returns whether a process has reached the master.
fn is_linked(runtime: &Path, process: &Process) -> bool {
    let noted = logged(files::read(&runtime.join(LINKED))).flatten();
    let noted = String::from_utf8(noted.unwrap_or_default()).unwrap_or_default();
    !noted.trim().is_empty() && noted.trim() == process.pid
}

/// The value of a step without which the update continues.
fn logged<T>(result: HostResult<T>) -> Option<T> {
    result
        .inspect_err(|error| tracing::warn!(error = chain(error), "the update continues"))
        .ok()
}

/// The unit of this host.
#[derive(Debug, Default)]
pub struct Systemd;

impl Unit for Systemd {
    async fn restart(&mut self) -> HostResult<()> {
        // A unit that failed often with the other program starts anyway.
        let _ = systemctl(&["reset-failed", UNIT]).await;
        systemctl(&["--no-block", "restart", UNIT]).await.map(drop)
    }

    async fn state(&mut self) -> HostResult<UnitNow> {
        let properties = "--property=MainPID,InvocationID,ActiveState";
        let text = systemctl(&["show", properties, UNIT]).await?;
        let value = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
                .unwrap_or_default()
                .to_owned()
        };
        Ok(UnitNow {
            process: Process {
                pid: value("MainPID"),
                invocation: value("InvocationID"),
            },
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
#[path = "update_tests.rs"]
mod tests;
