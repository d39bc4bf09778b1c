//! Makes a backup while the registry serves.

use std::path::{Path, PathBuf};

use halite_durable::files;
use jiff::Timestamp;

use crate::backup_metadata::BackupMetadata;
use crate::backup_writer::BackupWriter;
use crate::backups::Backups;
use crate::error::Error;
use crate::folder::Folder;
use crate::layout::resolve_data;

/// A new backup.
#[derive(Debug)]
pub struct CreatedBackup {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// Its metadata.
    pub metadata: BackupMetadata,
    /// The names of the old backups that were removed.
    pub pruned: Vec<String>,
    /// The reason why an old backup could not be removed.
    pub prune_error: Option<Error>,
}

/// Makes a backup of the registry with the data directory `data` in the directory `to`. Then
/// removes the backups that are older than the newest `keep` complete ones with images, unless the
/// registry is damaged.
///
/// # Errors
/// The registry does not exist, it is empty although an earlier backup is not, another ctl works
/// there, there is too little space, or a system call fails. No backup was made then.
pub fn create(
    data: &Path,
    to: &Path,
    keep: usize,
    progress: &mut dyn FnMut(&str),
) -> Result<CreatedBackup, Error> {
    if !data.is_dir() {
        let message = "there is no registry; name its data directory with --data";
        return Err(Error::unusable(data, message));
    }
    let data = Folder::open(&resolve_data(data, to)?)?;
    let backups = Backups::create(to)?;
    let _lock = backups.lock()?;
    backups.remove_leftovers()?;
    let earlier = backups.list()?;
    let now = Timestamp::now();
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let name = backups.next_name(now, &earlier);
    let partial = PartialBackup(backups.partial_path(&name));
    let metadata = BackupWriter::new(&data, &partial.0, earlier)?.write(now, progress)?;
    progress("waiting for the disk");
    files::settle(&partial.0)?;
    let path = backups.finish(&name)?;
    let undamaged = metadata.damaged.is_empty() && metadata.repaired.is_empty();
    let mut pruned = Vec::new();
    let prune_error = if undamaged {
        backups.prune(keep, &mut pruned).err()
    } else {
        None
    };
    Ok(CreatedBackup {
        name: name.to_string(),
        path,
        metadata,
        pruned,
        prune_error,
    })
}

/// An unfinished backup, removed on drop unless it was renamed.
struct PartialBackup(PathBuf);

impl Drop for PartialBackup {
    fn drop(&mut self) {
        // A finished backup has another name. A leftover that cannot be removed now is removed
        // before the next backup.
        let _ = files::remove_dir(&self.0);
    }
}
