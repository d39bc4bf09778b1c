//! The report of a scheduled run, which the minion of this host passes on to the master for
//! `ctl status`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use halite_durable::files;
use halite_host_reports::{Good, RunReport};
use jiff::Timestamp;

/// The mode of reports: they name files that only root may see.
const MODE: u32 = 0o600;

/// A directory without a backup, or no directory yet.
#[derive(Debug, thiserror::Error)]
#[error("there is no backup in {}; `ctl backup create` makes one", .0.display())]
pub struct NoBackup(pub PathBuf);

/// The report at a path; `None` if it does not exist or cannot be read.
pub fn read(path: &Path) -> Option<RunReport> {
    let text = fs::read(path).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The report of this run, to be written.
pub struct BackupReport {
    path: Option<PathBuf>,
}

impl BackupReport {
    /// A report at a path; without a path, nothing is written.
    pub fn new(path: Option<&Path>) -> Self {
        Self {
            path: path.map(Path::to_owned),
        }
    }

    /// Writes the report of this run. A failed run keeps the last good result of an earlier one.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(
        &self,
        directory: &Path,
        good: Option<Good>,
        failure: Option<String>,
    ) -> anyhow::Result<()> {
        self.replace(directory, good, failure, false)
    }

    fn replace(
        &self,
        directory: &Path,
        good: Option<Good>,
        failure: Option<String>,
        nothing: bool,
    ) -> anyhow::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let last = read(path);
        let directory = match directory.to_str() {
            // A run that failed early does not know its directory.
            None | Some("") => last.as_ref().map(|last| last.directory.clone()),
            Some(directory) => Some(directory.to_owned()),
        };
        let report = RunReport {
            ended: Timestamp::now().as_millisecond(),
            directory: directory.unwrap_or_default(),
            failure,
            good: good.or_else(|| last?.good),
            nothing,
        };
        let mut text = serde_json::to_vec_pretty(&report)?;
        text.push(b'\n');
        let written = files::replace(path, MODE, &text);
        written.with_context(|| format!("cannot write the report {}", path.display()))
    }

    /// Writes the report of a failed run. The command still ends with the original error, so a
    /// report that cannot be written is only printed.
    pub fn failed(&self, directory: &Path, error: &anyhow::Error) {
        let nothing = error.is::<NoBackup>();
        if let Err(problem) = self.replace(directory, None, Some(format!("{error:#}")), nothing) {
            report(&problem);
        }
    }
}

/// Prints a problem that is not the answer of the command.
fn report(problem: &anyhow::Error) {
    use std::io::Write as _;
    // If this cannot be written either, the exit code remains.
    let _ = writeln!(std::io::stderr(), "ctl: {problem:#}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_fails_keeps_the_last_good_result() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("backup.json");
        let outcome = BackupReport::new(Some(&path));
        let directory = Path::new("/srv/backup");
        let good = Good {
            name: "prod-1.halite-backup".to_owned(),
            time: 7,
            keys: Some(3),
        };
        outcome.write(directory, Some(good.clone()), None).unwrap();
        outcome.failed(Path::new(""), &anyhow::anyhow!("no room"));
        let report = read(&path).unwrap();
        assert_eq!(report.failure.as_deref(), Some("no room"));
        assert_eq!(report.good, Some(good));
        assert_eq!(report.directory, "/srv/backup");
        assert!(!report.nothing);
        BackupReport::new(None)
            .write(directory, None, None)
            .unwrap();
    }

    #[test]
    fn a_run_before_the_first_backup_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("backup-verify.json");
        let error = NoBackup("/srv/backup".into()).into();
        BackupReport::new(Some(&path)).failed(Path::new("/srv/backup"), &error);
        let report = read(&path).unwrap();
        assert!(report.nothing && report.failure.unwrap().contains("no backup in /srv/backup"));
    }
}
