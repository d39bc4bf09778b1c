//! Restores a backup, even while the registry serves.

use std::collections::BTreeSet;
use std::io;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use halite_durable::disk_space::{Need, Room};
use halite_durable::{ByteProgress, files};
use halite_errors::chain;

use crate::backup_metadata::{BackupMetadata, StoredDamage};
use crate::backups::{Backup, Backups};
use crate::digest::{BlobDamage, Digest};
use crate::error::Error;
use crate::folder::{Folder, Lookup, Owner};
use crate::image_needs;
use crate::layout::{CONTENT, REPOSITORIES, ROOT, open_blob, resolve_data};
use crate::verify::OpenBackup;

/// The directory of copied blobs until all are known to be intact.
const STAGED: &str = ".restore";

/// The mode of the registry's directories, if there are none yet.
const MODE: u32 = 0o755;

/// The size of the largest manifest that the registry accepts, in bytes.
const MAX_MANIFEST: u64 = 4 << 20;

/// The result of a restore.
#[derive(Debug)]
pub struct Restored {
    /// The metadata of the backup.
    pub metadata: BackupMetadata,
    /// The number of copied blobs.
    pub copied: usize,
    /// The size of the copied blobs, in bytes.
    pub bytes_new: u64,
    /// The blobs of the registry that were damaged and are intact again.
    pub repaired: Vec<String>,
    /// The content that was not restored, because it is damaged in the backup, or was damaged in
    /// the registry when the backup was made.
    pub damaged: Vec<StoredDamage>,
    /// The images that cannot be pulled without that: `REPOSITORY:TAG` and `REPOSITORY@DIGEST`.
    pub lost: Vec<String>,
}

/// The result of a restore, or the damage that prevented any change.
pub type RestoreOutcome = Result<Restored, Vec<StoredDamage>>;

/// Restores a backup into the data directory of a registry. All files get the owner of that
/// directory. The repositories are replaced atomically; blobs that no link names stay. A restore
/// may be interrupted at any moment and repeated. If blobs of the backup are damaged, nothing is
/// changed; with `without_damaged`, the images that need them are omitted instead.
///
/// # Errors
/// The directory does not exist, another process works there, there is too little space, or a
/// system call fails. The repositories are then unchanged.
pub fn restore(
    backups: &Backups,
    backup: &Backup,
    data: &Path,
    without_damaged: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<RestoreOutcome, Error> {
    if !data.is_dir() {
        let message = "there is no such directory; create it, owned by the user that the registry runs as, or name \
                       another one with --data";
        return Err(Error::unusable(data, message));
    }
    let data = Folder::open(&resolve_data(data, backups.dir())?)?;
    // Backups on a read-only file system cannot change, and need no lock.
    let _lock = match backups.lock() {
        Err(error) if error.io_kind() == Some(io::ErrorKind::ReadOnlyFilesystem) => None,
        lock => Some(lock?),
    };
    let opened = OpenBackup::new(backup)?;
    if !opened.damaged.is_empty() {
        return Ok(Err(opened.damaged));
    }
    let mode = match data.below(ROOT) {
        Lookup::Found(v2) => {
            let status = v2
                .file()
                .metadata()
                .map_err(Error::file("inspect", v2.path()))?;
            status.permissions().mode() & 0o777 | 0o700
        }
        _ => MODE,
    };
    let owner = Owner::of_directory(&data, mode)?;
    let v2 = data.make(ROOT, &owner)?;
    if !v2.lock(true)? {
        let message = "another ctl restores this registry or backs it up; wait until it has ended";
        return Err(Error::unusable(data.path(), message));
    }
    let mut restore = Restore { opened, v2, owner };
    restore.remove_leftovers()?;
    let done = restore.run(without_damaged, progress);
    // The first error is reported; the next run removes the leftovers.
    match (done, restore.remove_leftovers()) {
        (Ok(Ok(restored)), removed) => removed.map(|()| Ok(restored)),
        (done, _) => done,
    }
}

/// A restore in progress.
struct Restore {
    opened: OpenBackup,
    v2: Folder,
    owner: Owner,
}

impl Restore {
    fn new_repositories(&self) -> String {
        format!(".{REPOSITORIES}.new")
    }

    /// Removes the temporary directories of this run or of an interrupted one.
    fn remove_leftovers(&self) -> Result<(), Error> {
        let at = self.v2.path();
        files::remove_any(&at.join(STAGED))?;
        files::remove_any(&at.join(self.new_repositories()))?;
        // If the file system cannot exchange two directories atomically, the old repositories have
        // another name for a moment. They stay until the new ones are in place.
        let place = at.join(REPOSITORIES);
        if place.exists() {
            files::remove_any(&files::sibling(&place, "replaced"))?;
        }
        Ok(())
    }

    fn run(
        &mut self,
        without_damaged: bool,
        progress: &mut dyn FnMut(&str),
    ) -> Result<RestoreOutcome, Error> {
        let (mut missing, damaged_live) = self.missing(progress)?;
        let mut need = Need::default();
        let sizes = missing.iter().map(|digest| self.size(digest));
        sizes
            .chain(self.opened.tree.links.values().map(|_| 0))
            .for_each(|size| need.add(size));
        if let Some(what) = Room::at(self.v2.path())?.short(need, "the restore") {
            let message = format!("{what}; nothing was changed; free some space");
            return Err(Error::unusable(self.v2.path(), message));
        }
        let mut damaged = self.stage(&missing, progress)?;
        damaged.extend(self.opened.missing_links());
        let mut lost = Vec::new();
        if !damaged.is_empty() {
            if !without_damaged {
                return Ok(Err(damaged));
            }
            lost = self.leave_out_damaged(&damaged, &mut missing)?;
        }
        progress("moving blobs into place");
        files::settle(self.v2.path())?;
        self.place_blobs(&missing)?;
        let (repaired, unrepaired): (Vec<_>, Vec<_>) = damaged_live
            .into_iter()
            .partition(|digest| missing.contains(digest));
        unrepaired
            .iter()
            .try_for_each(|digest| self.discard(digest))?;
        self.replace_repositories()?;
        let repaired = repaired.iter().map(ToString::to_string).collect();
        let (metadata, copied) = (self.opened.metadata.clone(), missing.len());
        let bytes_new = missing.iter().map(|digest| self.size(digest)).sum();
        Ok(Ok(Restored {
            metadata,
            copied,
            bytes_new,
            repaired,
            damaged,
            lost,
        }))
    }

    /// Removes from the backup's links those that need damaged content, and from `missing` the
    /// blobs that no other link names.
    fn leave_out_damaged(
        &mut self,
        damaged: &[StoredDamage],
        missing: &mut BTreeSet<Digest>,
    ) -> Result<Vec<String>, Error> {
        let damaged = damaged
            .iter()
            .filter_map(|damage| damage.what.parse().ok())
            .collect();
        let staged = self.staged()?;
        let lost = image_needs::remove_damaged(&mut self.opened.tree, &damaged, |digest| {
            let file = match missing.contains(digest) {
                true => staged.open_file(&digest.file_name()),
                false => open_blob(&self.v2, digest),
            };
            let mut content = Vec::new();
            if let Lookup::Found(file) = file {
                // The content was compared with its digest before; an error here only loses names.
                let _ = file.take(MAX_MANIFEST).read_to_end(&mut content);
            }
            content
        });
        let needs = self.opened.tree.needs();
        missing.retain(|digest| needs.contains_key(digest));
        Ok(lost)
    }

    /// Removes a damaged blob of the registry that no link will name. The registry would consider
    /// it intact if it was pushed again.
    fn discard(&self, digest: &Digest) -> Result<(), Error> {
        match self.v2.below(&digest.folder()) {
            Lookup::Found(folder) => folder.remove(CONTENT),
            _ => Ok(()),
        }
    }

    fn staged(&self) -> Result<Folder, Error> {
        match self.v2.enter(STAGED) {
            Lookup::Found(staged) => Ok(staged),
            _ => Err(Error::unusable(
                self.v2.path().join(STAGED),
                "another process removed it",
            )),
        }
    }

    /// The blobs that are missing or damaged in the registry, and separately the damaged ones.
    fn missing(
        &self,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(BTreeSet<Digest>, Vec<Digest>), Error> {
        let (mut missing, mut damaged) = (BTreeSet::new(), Vec::new());
        let mut byte_progress = ByteProgress::new("compared", self.opened.metadata.bytes, progress);
        for digest in self.opened.tree.needs().into_keys() {
            match open_blob(&self.v2, digest) {
                Lookup::Found(mut file) => match digest.check(&mut file) {
                    Ok(size) => byte_progress.add(size),
                    Err(_) => {
                        missing.insert(digest.clone());
                        damaged.push(digest.clone());
                    }
                },
                Lookup::Missing => {
                    missing.insert(digest.clone());
                }
                Lookup::Unexpected(why) => {
                    let path = self.v2.path().join(digest.folder());
                    return Err(Error::unusable(
                        path,
                        format!("it or its content {why}; remove it"),
                    ));
                }
            }
        }
        Ok((missing, damaged))
    }

    fn size(&self, digest: &Digest) -> u64 {
        match open_blob(&self.opened.v2, digest) {
            Lookup::Found(file) => file
                .metadata()
                .map(|status| status.len())
                .unwrap_or_default(),
            _ => 0,
        }
    }

    /// Copies blobs to the staging directory. Returns the damage found.
    fn stage(
        &self,
        missing: &BTreeSet<Digest>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Vec<StoredDamage>, Error> {
        let mut damaged = Vec::new();
        let staged = self.v2.make(STAGED, &self.owner)?;
        let mut byte_progress = ByteProgress::new(
            "copied",
            missing.iter().map(|digest| self.size(digest)).sum(),
            progress,
        );
        for digest in missing {
            let copied = match open_blob(&self.opened.v2, digest) {
                Lookup::Found(mut from) => {
                    let mut to = staged.create(&digest.file_name(), &self.owner)?;
                    digest
                        .copy(&mut from, &mut to)
                        .map_err(Error::file("write", staged.path()))?
                }
                Lookup::Missing => Err(BlobDamage::Missing),
                Lookup::Unexpected(why) => Err(BlobDamage::Unexpected(why)),
            };
            match copied {
                Ok(size) => byte_progress.add(size),
                Err(why) => damaged.push(self.opened.damage(digest, chain(&why))),
            }
        }
        Ok(damaged)
    }

    /// Moves every blob to its place and sets its owner.
    fn place_blobs(&self, missing: &BTreeSet<Digest>) -> Result<(), Error> {
        let staged = self.staged()?;
        for digest in self.opened.tree.needs().into_keys() {
            let folder = self.v2.make(&digest.folder(), &self.owner)?;
            if missing.contains(digest) {
                staged.move_file(&digest.file_name(), &folder, CONTENT)?;
            } else if let Lookup::Found(file) = folder.open_file(CONTENT) {
                // It may have been copied there by hand, with another owner.
                let path = folder.path().join(CONTENT);
                self.owner
                    .apply_to(&file, self.owner.mode & 0o666)
                    .map_err(Error::file("change the owner of", path))?;
            }
        }
        Ok(())
    }

    /// Writes the repositories to a new directory and replaces the old one with it.
    fn replace_repositories(&self) -> Result<(), Error> {
        let new = self.v2.make(&self.new_repositories(), &self.owner)?;
        for path in &self.opened.tree.folders {
            new.make(path, &self.owner)?;
        }
        for (path, link) in &self.opened.tree.links {
            let folder = new.make(path.trim_end_matches("/link"), &self.owner)?;
            let mut file = folder.create("link", &self.owner)?;
            io::Write::write_all(&mut file, link.digest.to_string().as_bytes())
                .map_err(Error::file("write", folder.path()))?;
        }
        files::settle(new.path())?;
        Ok(files::put_in_place(
            new.path(),
            &self.v2.path().join(REPOSITORIES),
        )?)
    }
}
