//! What a run says of itself for `ctl status`, which may be asked on another host.

use std::fs;
use std::path::{Path, PathBuf};

use halite_durable::{Error, files};
use halite_proto::reports::{Good, Report};
use jiff::Timestamp;

use super::backup::Done;
use super::backups::{Backup, Backups};
use super::facts::Damage;
use super::verify::Verified;

/// Writes a report.
pub struct Reporter {
    path: PathBuf,
    directory: PathBuf,
    /// The good backup of the report before, if that was about the same directory.
    last: Option<Good>,
}

impl Reporter {
    /// For a run that works with the backups in a directory, or with one of them.
    pub fn new(path: &Path, directory: &Path) -> Self {
        let text = fs::read(path).ok();
        let last = text.and_then(|text| serde_json::from_slice::<Report>(&text).ok());
        let last = last.filter(|last| Path::new(&last.directory) == directory);
        let (path, directory) = (path.to_owned(), directory.to_owned());
        Self {
            path,
            directory,
            last: last.and_then(|last| last.good),
        }
    }

    /// Whether the directory still has backups if there was a good one: a disk that is not mounted
    /// looks as if there had never been any, and all of them would be made anew on the disk below
    /// it.
    ///
    /// # Errors
    /// All are gone.
    pub fn look(&self) -> Result<(), Error> {
        let Some(last) = &self.last else {
            return Ok(());
        };
        match self.all() {
            Ok(all) if all.is_empty() => {}
            Err(Error::File { cause, .. }) if cause.kind() == std::io::ErrorKind::NotFound => {}
            _ => return Ok(()),
        }
        let message = format!(
            "the backup {} was here, and now there is none: is the disk or share with the backups not mounted? If they were \
             removed on purpose, remove {} too",
            last.name,
            self.path.display()
        );
        Err(Error::content(&self.directory, message))
    }

    /// Reports the making of a backup.
    ///
    /// # Errors
    /// The report cannot be written.
    pub fn made(&self, made: &Result<Done, Error>) -> Result<(), Error> {
        let failure = match made {
            Err(error) => Some(error.to_string()),
            Ok(Done {
                facts, name, kept, ..
            }) => match (facts.damaged.as_slice(), facts.mended.as_slice()) {
                ([], []) => kept.as_ref().map(|error| {
                    format!(
                        "the backup {name} is made, but older ones could not be removed: {error}"
                    )
                }),
                ([], [first, more @ ..]) => Some(several(
                    "the registry is damaged and the backup is whole; `ctl registry restore` mends the registry",
                    &first.damage,
                    more.len(),
                )),
                ([first, more @ ..], _) => Some(several(
                    &format!("the registry is damaged, and so is the backup {name}"),
                    first,
                    more.len(),
                )),
            },
        };
        let all = self.all().unwrap_or_default();
        // One of nothing, where there was something, is what a registry looks like whose disk is
        // not mounted.
        let has_any = |backup: &&Backup| {
            backup
                .facts
                .as_ref()
                .is_ok_and(|facts| facts.repositories > 0)
        };
        let newest = all.iter().rev().filter(has_any).find_map(good);
        self.leave(failure, newest.or_else(|| all.iter().rev().find_map(good)))
    }

    /// Reports the reading of a backup.
    ///
    /// # Errors
    /// The report cannot be written.
    pub fn verified(&self, verified: &Result<(Backup, Verified), Error>) -> Result<(), Error> {
        match verified {
            Err(error) => self.leave(Some(error.to_string()), None),
            Ok((backup, found)) => match found.damaged.as_slice() {
                [] => self.leave(None, good(backup)),
                [first, more @ ..] => {
                    let what = format!("the backup {} is damaged", backup.name());
                    self.leave(Some(several(&what, first, more.len())), None)
                }
            },
        }
    }

    fn all(&self) -> Result<Vec<Backup>, Error> {
        Backups::open(&self.directory)?.list()
    }

    fn leave(&self, failure: Option<String>, good: Option<Good>) -> Result<(), Error> {
        let report = Report {
            ended: Timestamp::now().as_millisecond(),
            directory: self.directory.display().to_string(),
            failure,
            good: good.or_else(|| self.last.clone()),
        };
        let mut text = serde_json::to_vec_pretty(&report).map_err(|error| {
            Error::content(&self.path, format!("it cannot be written: {error}"))
        })?;
        text.push(b'\n');
        files::replace(&self.path, 0o600, &text)
    }
}

fn several(what: &str, first: &Damage, more: usize) -> String {
    match more {
        0 => format!("{what}: {first}"),
        _ => format!("{what}: {first}; and {more} more"),
    }
}

fn good(backup: &Backup) -> Option<Good> {
    let facts = backup.facts.as_ref().ok().filter(|_| backup.is_whole())?;
    Some(Good {
        name: backup.name(),
        time: facts.time.as_millisecond(),
    })
}
