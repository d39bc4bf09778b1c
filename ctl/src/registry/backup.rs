//! Making a backup while the registry serves.

use std::path::{Path, PathBuf};

use halite_durable::{Error, files};
use jiff::Timestamp;

use super::apart;
use super::backups::Backups;
use super::facts::Facts;
use super::folder::Folder;
use super::making::Making;

/// A backup that was made.
#[derive(Debug)]
pub struct Done {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// What it says of itself.
    pub facts: Facts,
    /// The names of those that were removed because they were too old.
    pub pruned: Vec<String>,
    /// Why the others of those are still there.
    pub kept: Option<Error>,
}

/// Makes a backup of the registry with that data directory in another directory, and then removes
/// all that are older than the newest `keep` whole ones with images. Nothing is removed when the
/// registry is damaged. That something cannot be removed is told with the backup.
///
/// # Errors
/// There is no such registry, it is empty and was not at an earlier backup, another ctl works
/// there, there is no room, or the system refuses. Then no backup was made.
pub fn make(
    data: &Path,
    to: &Path,
    keep: usize,
    progress: &mut dyn FnMut(&str),
) -> Result<Done, Error> {
    if !data.is_dir() {
        let message = "there is no registry: name its data directory with --data";
        return Err(Error::content(data, message));
    }
    let data = Folder::open(&apart(data, to)?)?;
    let backups = Backups::make(to)?;
    let _claim = backups.claim()?;
    backups.clear()?;
    let earlier = backups.list()?;
    let now = Timestamp::now();
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let name = backups.next(now, &earlier);
    let partial = Partial(backups.partial(&name));
    let facts = Making::new(&data, &partial.0, earlier)?.run(now, progress)?;
    progress("waiting for the disk");
    files::settle(&partial.0)?;
    let path = backups.finish(&name)?;
    let sound = facts.damaged.is_empty() && facts.mended.is_empty();
    let mut pruned = Vec::new();
    let kept = if sound {
        backups.prune(keep, &mut pruned).err()
    } else {
        None
    };
    Ok(Done {
        name: name.to_string(),
        path,
        facts,
        pruned,
        kept,
    })
}

/// What is not a backup yet, and goes unless it becomes one.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // It has another name when it is whole. What cannot be removed now goes before the next one
        // is made.
        let _ = files::remove_dir(&self.0);
    }
}
