//! Creation of a backup while the registry serves.

use std::fs;
use std::path::Path;

use halite_durable::{Digest, Error, FileLock, files};
use jiff::{Timestamp, ToSpan as _};

use crate::backups::{self, Backup, BackupMetadata, PARTIAL};
use crate::blobs;
use crate::links::Links;
use crate::owner::Owner;
use crate::tree::{NewTree, ROOT, TOP};

/// A new backup.
#[derive(Debug)]
pub struct CreatedBackup {
    /// The backup.
    pub backup: Backup,
    /// The names of the older backups that were removed.
    pub removed: Vec<String>,
    /// The reason why an older backup could not be removed.
    pub problem: Option<Error>,
}

/// Creates a backup of the registry with the data directory `data` in the directory `to`, and then
/// removes all but the newest `keep`.
///
/// Blobs that the previous backup has are hard-linked, unread. The others are compared with their
/// digests.
///
/// # Errors
/// The registry does not exist, it is damaged, it is empty although the previous backup is not,
/// another process is working with it, there is too little space, or a system call fails. No backup
/// was made or removed then.
pub fn create(
    data: &Path,
    to: &Path,
    keep: usize,
    progress: &mut dyn FnMut(&str),
) -> Result<CreatedBackup, Error> {
    let data = &data.canonicalize().map_err(Error::file("open", data))?;
    let _registry = FileLock::new(&data.join(TOP))?;
    // Several registries may share this directory by mistake.
    let _backups = FileLock::new(&to.join("backup"))?;
    let earlier = backups::list(to)?.into_iter();
    let previous = earlier.rev().find_map(|found| found.backup.ok());
    progress("reading the links");
    let links = Links::read(&data.join(ROOT))?;
    let mut time = Timestamp::now();
    if let Some(previous) = &previous {
        refuse_lost(data, &links, previous)?;
        // The clock may have gone back, or this may be the same second.
        let next = previous.metadata.time.saturating_add(1.second());
        time = time.max(next.unwrap_or(time));
    }
    let tree = NewTree::new(to.join(PARTIAL), ROOT, Owner::current())?;
    let link = |digest: &Digest, place: &Path| {
        let previous = previous.as_ref().map(|backup| backup.path.join(ROOT));
        previous.is_some_and(|v2| fs::hard_link(blobs::path(&v2, digest), place).is_ok())
    };
    let remedy = format!(
        "no backup was made; remove the file of each damaged blob (`find {} -path '*/HEX/data' -delete`), because the \
         registry would consider it intact, and push the image again",
        data.display()
    );
    let content = tree.fill((data, &links), link, &remedy, progress)?;
    let metadata = BackupMetadata {
        time,
        tags: links.tags(),
        links_sha256: links.sha256(),
        blobs: content.blobs,
        bytes: content.bytes,
        bytes_new: content.bytes_new,
    };
    metadata.write(&tree.dir)?;
    files::settle(&tree.dir)?;
    let path = to.join(metadata.name());
    fs::rename(&tree.dir, &path).map_err(Error::file("move", &tree.dir))?;
    files::sync_parent(&path)?;
    let mut removed = Vec::new();
    let problem = backups::prune(to, keep, &mut removed).err();
    Ok(CreatedBackup {
        backup: Backup { path, metadata },
        removed,
        problem,
    })
}

/// Refuses an empty registry if the previous backup is not empty. An unmounted disk looks like an
/// empty registry, and its backups would replace the good ones.
fn refuse_lost(data: &Path, links: &Links, previous: &Backup) -> Result<(), Error> {
    if links.len() > 0 || previous.metadata.blobs == 0 {
        return Ok(());
    }
    let name = previous.metadata.name();
    let message = format!(
        "the registry is empty, but the backup {name} is not; no backup was made; mount the registry's disk, run `ctl \
         registry restore` if the images were lost, or remove the backups if they were deleted on purpose"
    );
    Err(Error::content(data, message))
}
