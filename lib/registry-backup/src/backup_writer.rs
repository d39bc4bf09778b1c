//! Copies the links of a registry, and the blobs that they name, into a backup.

use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};

use halite_durable::disk_space::{Need, Room};
use halite_durable::{ByteProgress, files};
use halite_errors::chain;
use jiff::Timestamp;

use crate::backup_metadata::{BackupMetadata, Repaired, StoredDamage};
use crate::backups::{Backup, create_private_dir};
use crate::digest::{BlobDamage, Digest};
use crate::error::Error;
use crate::folder::{Folder, Lookup};
use crate::layout::{CONTENT, REPOSITORIES, ROOT, open_blob};
use crate::metadata_error::FORMAT;
use crate::scan::{read_link, scan};
use crate::tree::{LinkKind, Tree};

/// The source of a blob.
enum Source {
    /// An earlier backup has it, at this path.
    Earlier(PathBuf),
    /// The registry has it.
    Registry,
    /// No source: the registry does not have it, but may need it.
    Nowhere(BlobDamage),
}

/// A backup that is being made.
pub struct BackupWriter<'a> {
    v2: Option<Folder>,
    /// The directory of the layout in the backup.
    root: PathBuf,
    to: &'a Path,
    earlier: Vec<Backup>,
    tree: Tree,
    blobs: usize,
    bytes: u64,
    bytes_new: u64,
    damaged: Vec<StoredDamage>,
    repaired: Vec<Repaired>,
}

impl<'a> BackupWriter<'a> {
    /// Reads the links of a registry.
    ///
    /// # Errors
    /// The directory is not a registry, another process is restoring it, it is empty although an
    /// earlier backup is not, or a system call fails.
    pub fn new(data: &Folder, to: &'a Path, earlier: Vec<Backup>) -> Result<Self, Error> {
        create_private_dir(to)?;
        let unexpected = |place: &Path, why| {
            Err(Error::unusable(
                place,
                format!("{why}; it is not part of a registry"),
            ))
        };
        let v2 = match data.below(ROOT) {
            Lookup::Found(v2) => Some(v2),
            Lookup::Missing => None,
            Lookup::Unexpected(why) => return unexpected(&data.path().join(ROOT), why),
        };
        // A restore must not replace the links between the scan and the copying of blobs.
        if let Some(v2) = &v2
            && !v2.lock(false)?
        {
            let message = "another ctl restores this registry; wait until it has ended";
            return Err(Error::unusable(data.path(), message));
        }
        let tree = match v2
            .as_ref()
            .map_or(Lookup::Missing, |v2| v2.enter(REPOSITORIES))
        {
            Lookup::Found(repositories) => scan(&repositories, true),
            Lookup::Missing => Tree::default(),
            Lookup::Unexpected(why) => {
                return unexpected(&data.path().join(ROOT).join(REPOSITORIES), why);
            }
        };
        check_not_lost(data.path(), &tree, &earlier)?;
        let (damaged, repaired) = (Vec::new(), Vec::new());
        let (root, blobs, bytes, bytes_new) = (to.join(ROOT), 0, 0, 0);
        Ok(Self {
            v2,
            root,
            to,
            earlier,
            tree,
            blobs,
            bytes,
            bytes_new,
            damaged,
            repaired,
        })
    }

    /// Copies everything, and writes the metadata last.
    ///
    /// # Errors
    /// There is too little space, or a system call fails.
    pub fn write(
        mut self,
        time: Timestamp,
        progress: &mut dyn FnMut(&str),
    ) -> Result<BackupMetadata, Error> {
        progress("looking for new blobs");
        let plan = self.plan();
        self.check_space(&plan)?;
        let total = plan
            .values()
            .filter(|(source, _)| matches!(source, Source::Registry));
        let mut byte_progress =
            ByteProgress::new("copied", total.map(|(_, size)| size).sum(), progress);
        for (digest, (source, size)) in plan {
            if matches!(source, Source::Registry) {
                byte_progress.add(size);
            }
            self.add_blob(&digest, source, size)?;
        }
        self.write_links()?;
        for (path, why) in &self.tree.unexpected {
            let repository = path.split("/_").next().unwrap_or_default().to_owned();
            let what = format!("{REPOSITORIES}/{}", path.escape_debug());
            self.damaged.push(StoredDamage {
                what,
                why: why.clone(),
                repositories: vec![repository],
            });
        }
        let (repositories, tags) = self.tree.counts();
        let metadata = BackupMetadata {
            format: FORMAT,
            time,
            repositories,
            tags,
            links: self.tree.links.len(),
            links_sha256: self.tree.sha256(),
            blobs: self.blobs,
            bytes: self.bytes,
            bytes_new: self.bytes_new,
            damaged: self.damaged,
            repaired: self.repaired,
        };
        metadata.write(self.to)?;
        Ok(metadata)
    }

    /// The source of each blob, and its size in bytes.
    fn plan(&self) -> BTreeMap<Digest, (Source, u64)> {
        let source = |digest: &Digest| match self.open_live(digest) {
            Lookup::Found(file) => {
                let size = file
                    .metadata()
                    .map(|status| status.len())
                    .unwrap_or_default();
                match self.earlier(digest).find(|(_, earlier)| *earlier == size) {
                    Some((path, _)) => (Source::Earlier(path), size),
                    None => (Source::Registry, size),
                }
            }
            Lookup::Missing => (Source::Nowhere(BlobDamage::Missing), 0),
            Lookup::Unexpected(why) => (Source::Nowhere(BlobDamage::Unexpected(why)), 0),
        };
        self.tree
            .needs()
            .into_keys()
            .map(|digest| (digest.clone(), source(digest)))
            .collect()
    }

    fn open_live(&self, digest: &Digest) -> Lookup<File> {
        self.v2
            .as_ref()
            .map_or(Lookup::Missing, |v2| open_blob(v2, digest))
    }

    /// The same blob in earlier backups, the newest first.
    fn earlier(&self, digest: &Digest) -> impl Iterator<Item = (PathBuf, u64)> {
        self.readable().filter_map(|backup| backup.blob(digest))
    }

    fn readable(&self) -> impl Iterator<Item = &Backup> {
        self.earlier
            .iter()
            .rev()
            .filter(|backup| backup.metadata.is_ok())
    }

    fn check_space(&self, plan: &BTreeMap<Digest, (Source, u64)>) -> Result<(), Error> {
        let mut need = Need::default();
        for (source, size) in plan.values() {
            // A hard link needs no space, but each blob has its own directory.
            need.add(if matches!(source, Source::Registry) {
                *size
            } else {
                0
            });
        }
        for link in self.tree.links.values() {
            need.add(link.digest.to_string().len() as u64);
        }
        match Room::at(self.to)?.short(need, "the backup") {
            None => Ok(()),
            Some(what) => {
                let dir = self.to.parent().unwrap_or(self.to);
                let message = format!(
                    "{what}; no backup was made; free some space, or keep fewer backups (--keep)"
                );
                Err(Error::unusable(dir, message))
            }
        }
    }

    /// Adds a blob to the backup.
    fn add_blob(&mut self, digest: &Digest, source: Source, size: u64) -> Result<(), Error> {
        let dir = self.root.join(digest.folder());
        create_private_dir(&dir)?;
        let place = dir.join(CONTENT);
        let why = match source {
            Source::Nowhere(why) => why,
            // It is copied if the file system has no hard links, or if the file already has too
            // many.
            Source::Earlier(ref path) if fs::hard_link(path, &place).is_ok() => {
                self.count(size);
                return Ok(());
            }
            Source::Earlier(_) | Source::Registry => match self.copy(digest, &place)? {
                Ok(size) => {
                    self.count(size);
                    self.bytes_new += size;
                    return Ok(());
                }
                Err(why) => why,
            },
        };
        if !self.is_still_needed(digest) {
            return Ok(files::remove_dir(&dir)?);
        }
        let repositories = self.tree.repositories_of(digest);
        let damage = StoredDamage {
            what: digest.to_string(),
            why: chain(&why),
            repositories,
        };
        match self.take_earlier(digest, &place)? {
            Some((from, size)) => {
                self.count(size);
                self.repaired.push(Repaired { damage, from });
            }
            None => {
                self.damaged.push(damage);
                files::remove_dir(&dir)?;
            }
        }
        Ok(())
    }

    fn count(&mut self, size: u64) {
        self.blobs += 1;
        self.bytes += size;
    }

    /// Copies a blob of the registry. Returns its size, or its damage.
    fn copy(&self, digest: &Digest, place: &Path) -> Result<Result<u64, BlobDamage>, Error> {
        let mut from = match self.open_live(digest) {
            Lookup::Found(file) => file,
            Lookup::Missing => return Ok(Err(BlobDamage::Missing)),
            Lookup::Unexpected(why) => return Ok(Err(BlobDamage::Unexpected(why))),
        };
        let mut to = files::create(place, 0o600)?;
        let copied = digest
            .copy(&mut from, &mut to)
            .map_err(Error::file("write", place))?;
        if copied.is_err() {
            files::remove_any(place)?;
        }
        Ok(copied)
    }

    /// Returns true if links still need a blob that is missing. Links may have been deleted since
    /// the scan. The history of a tag may name deleted manifests, which cannot be pulled. Links to
    /// a blob that is not needed are removed from the tree.
    fn is_still_needed(&mut self, digest: &Digest) -> bool {
        let (mut gone, mut needed) = (Vec::new(), false);
        for (path, link) in self
            .tree
            .links
            .iter()
            .filter(|(_, link)| link.digest == *digest)
        {
            let below = format!("{REPOSITORIES}/{}", path.trim_end_matches("/link"));
            match self
                .v2
                .as_ref()
                .map_or(Lookup::Missing, |v2| v2.below(&below))
            {
                Lookup::Found(folder) if !matches!(read_link(&folder), Lookup::Missing) => {
                    needed |= link.kind != LinkKind::History;
                }
                _ => gone.push(path.clone()),
            }
        }
        if !needed {
            gone = self
                .tree
                .needs()
                .remove(digest)
                .into_iter()
                .flatten()
                .map(str::to_owned)
                .collect();
        }
        gone.iter().for_each(|path| self.tree.drop_link(path));
        needed
    }

    /// Adds a blob from an earlier backup in which it is intact. Returns that backup's name and the
    /// blob's size.
    fn take_earlier(&self, digest: &Digest, place: &Path) -> Result<Option<(String, u64)>, Error> {
        for backup in self.readable() {
            let Some((path, _)) = backup.blob(digest) else {
                continue;
            };
            let Ok(size) = File::open(&path)
                .map_err(BlobDamage::Unreadable)
                .and_then(|mut file| digest.check(&mut file))
            else {
                continue;
            };
            if fs::hard_link(&path, place).is_err() {
                files::copy(&path, place, 0o600)?;
            }
            return Ok(Some((backup.name(), size)));
        }
        Ok(None)
    }

    fn write_links(&self) -> Result<(), Error> {
        let repositories = self.root.join(REPOSITORIES);
        create_private_dir(&repositories)?;
        for folder in &self.tree.folders {
            create_private_dir(&repositories.join(folder))?;
        }
        for (path, link) in &self.tree.links {
            let path = repositories.join(path);
            create_private_dir(path.parent().unwrap_or(&repositories))?;
            files::write(&path, 0o600, link.digest.to_string().as_bytes())?;
        }
        Ok(())
    }
}

/// Refuses an empty registry if an earlier backup is not empty. An unmounted disk, or a new one,
/// looks like a registry without images; a backup of it would be the newest one, which
/// `ctl registry restore` restores.
fn check_not_lost(data: &Path, tree: &Tree, earlier: &[Backup]) -> Result<(), Error> {
    if !tree.links.is_empty() || !tree.unexpected.is_empty() {
        return Ok(());
    }
    let Some(last) = earlier.iter().rev().find(|backup| backup.has_images()) else {
        return Ok(());
    };
    let message = format!(
        "the registry is empty, and the backup {} is not: is its disk not mounted? No backup was made. If the images were \
         lost, `ctl registry restore` restores them; if they were removed on purpose, name another directory with --out, or \
         remove the backups in this one",
        last.name()
    );
    Err(Error::unusable(data, message))
}
