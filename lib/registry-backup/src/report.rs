//! Reports of runs for `ctl status`, which may run on another host.

use std::path::{Path, PathBuf};
use std::{fs, io};

use halite_durable::files;
use halite_errors::chain;
use halite_host_reports::{Good, RunReport};
use jiff::Timestamp;

use crate::backup::CreatedBackup;
use crate::backup_metadata::StoredDamage;
use crate::backups::{Backup, Backups};
use crate::error::Error;
use crate::verify::Verified;

/// Writes the report of a run.
pub struct Reporter {
    path: PathBuf,
    directory: PathBuf,
    /// The good backup of the previous report, if that report was about the same directory.
    last: Option<Good>,
}

impl Reporter {
    /// Makes a reporter for a run on a directory of backups, or on one backup. `path` is the
    /// report.
    pub fn new(path: &Path, directory: &Path) -> Self {
        let text = fs::read(path).ok();
        let last = text.and_then(|text| serde_json::from_slice::<RunReport>(&text).ok());
        let last = last.filter(|last| Path::new(&last.directory) == directory);
        let (path, directory) = (path.to_owned(), directory.to_owned());
        Self {
            path,
            directory,
            last: last.and_then(|last| last.good),
        }
    }

    /// Refuses a directory without backups if the previous run left a good one there. An unmounted
    /// disk looks like an empty directory, and the backup would be made on the disk below it.
    ///
    /// # Errors
    /// All backups are missing.
    pub fn check_still_there(&self) -> Result<(), Error> {
        let Some(last) = &self.last else {
            return Ok(());
        };
        match self.all() {
            Ok(all) if all.is_empty() => {}
            Err(error) if error.io_kind() == Some(io::ErrorKind::NotFound) => {}
            _ => return Ok(()),
        }
        let message = format!(
            "the backup {} was here, and now there is none. Is the disk or share with the backups not mounted? If they were \
             removed on purpose, remove {} too",
            last.name,
            self.path.display()
        );
        Err(Error::unusable(&self.directory, message))
    }

    /// Reports the result of a backup.
    ///
    /// # Errors
    /// The report cannot be written.
    pub fn backup(&self, outcome: &Result<CreatedBackup, Error>) -> Result<(), Error> {
        let failure = match outcome {
            Err(error) => Some(chain(error)),
            Ok(CreatedBackup {
                metadata,
                name,
                prune_error,
                ..
            }) => match (metadata.damaged.as_slice(), metadata.repaired.as_slice()) {
                ([], []) => prune_error.as_ref().map(|error| {
                    format!(
                        "the backup {name} was made, but older ones could not be removed: {}",
                        chain(error)
                    )
                }),
                ([], [first, more @ ..]) => Some(summary(
                    "the registry is damaged and the backup is complete; `ctl registry restore` repairs the registry",
                    &first.damage,
                    more.len(),
                )),
                ([first, more @ ..], _) => Some(summary(
                    &format!("the registry is damaged, and so is the backup {name}"),
                    first,
                    more.len(),
                )),
            },
        };
        let all = self.all().unwrap_or_default();
        // A backup without images, although earlier ones have some, comes from an unmounted disk.
        let has_images = |backup: &&Backup| {
            backup
                .metadata
                .as_ref()
                .is_ok_and(|metadata| metadata.repositories > 0)
        };
        let newest = all.iter().rev().filter(has_images).find_map(good);
        self.write(failure, newest.or_else(|| all.iter().rev().find_map(good)))
    }

    /// Reports the result of a verification.
    ///
    /// # Errors
    /// The report cannot be written.
    pub fn verification(&self, outcome: &Result<(Backup, Verified), Error>) -> Result<(), Error> {
        match outcome {
            Err(error) => self.write(Some(chain(error)), None),
            Ok((backup, found)) => match found.damaged.as_slice() {
                [] => self.write(None, good(backup)),
                [first, more @ ..] => {
                    let what = format!("the backup {} is damaged", backup.name());
                    self.write(Some(summary(&what, first, more.len())), None)
                }
            },
        }
    }

    fn all(&self) -> Result<Vec<Backup>, Error> {
        Backups::open(&self.directory)?.list()
    }

    fn write(&self, failure: Option<String>, good: Option<Good>) -> Result<(), Error> {
        let report = RunReport {
            ended: Timestamp::now().as_millisecond(),
            directory: self.directory.display().to_string(),
            failure,
            good: good.or_else(|| self.last.clone()),
            nothing: false,
        };
        let mut text = serde_json::to_vec_pretty(&report).map_err(|source| Error::Json {
            path: self.path.clone(),
            source,
        })?;
        text.push(b'\n');
        Ok(files::replace(&self.path, 0o600, &text)?)
    }
}

fn summary(what: &str, first: &StoredDamage, more: usize) -> String {
    match more {
        0 => format!("{what}: {first}"),
        _ => format!("{what}: {first}; and {more} more"),
    }
}

fn good(backup: &Backup) -> Option<Good> {
    let metadata = backup.metadata.as_ref().ok()?;
    if !backup.is_complete() {
        return None;
    }
    Some(Good {
        name: backup.name(),
        time: metadata.time.as_millisecond(),
        keys: None,
    })
}
