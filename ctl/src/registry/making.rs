//! Copying what the links of a registry name into a backup.

use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};

use halite_durable::disk_space::{Need, Room};
use halite_durable::{ByteProgress, Error, files};
use jiff::Timestamp;

use super::backups::Backup;
use super::digest::Digest;
use super::facts::{Damage, Facts, Mended};
use super::folder::{Folder, Found};
use super::tree::{Kind, Tree};
use super::{CONTENT, REPOSITORIES, ROOT, backups, blob, facts, pass};

/// From where a blob can be had.
enum Source {
    /// An earlier backup has it, at that path.
    Earlier(PathBuf),
    /// The registry has it.
    Registry,
    /// The registry does not; why.
    Nowhere(String),
}

/// A backup that is being made.
pub struct Making<'a> {
    v2: Option<Folder>,
    /// Where the registry's layout begins in the backup.
    root: PathBuf,
    to: &'a Path,
    earlier: Vec<Backup>,
    tree: Tree,
    blobs: usize,
    bytes: u64,
    bytes_new: u64,
    damaged: Vec<Damage>,
    mended: Vec<Mended>,
}

impl<'a> Making<'a> {
    /// Reads the links of a registry.
    ///
    /// # Errors
    /// It is none, somebody restores it, it has lost everything that earlier backups have, or the
    /// system refuses.
    pub fn new(data: &Folder, to: &'a Path, earlier: Vec<Backup>) -> Result<Self, Error> {
        backups::private(to)?;
        let strange = |place: &Path, why| {
            Err(Error::content(
                place,
                format!("{why}; it belongs to no registry"),
            ))
        };
        let v2 = match data.below(ROOT) {
            Found::Here(v2) => Some(v2),
            Found::Gone => None,
            Found::Strange(why) => return strange(&data.path().join(ROOT), why),
        };
        // Its links must not be exchanged between the reading of them and the copying of what they
        // name.
        if let Some(v2) = &v2
            && !v2.lock(false)?
        {
            let message = "another ctl restores this registry: wait until that has ended";
            return Err(Error::content(data.path(), message));
        }
        let tree = match v2.as_ref().map_or(Found::Gone, |v2| v2.enter(REPOSITORIES)) {
            Found::Here(repositories) => Tree::read(&repositories, true),
            Found::Gone => Tree::default(),
            Found::Strange(why) => return strange(&data.path().join(ROOT).join(REPOSITORIES), why),
        };
        look_for_loss(data.path(), &tree, &earlier)?;
        let (damaged, mended) = (Vec::new(), Vec::new());
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
            mended,
        })
    }

    /// Copies everything; what the backup says of itself is written last.
    ///
    /// # Errors
    /// There is no room, or the system refuses.
    pub fn run(mut self, time: Timestamp, progress: &mut dyn FnMut(&str)) -> Result<Facts, Error> {
        progress("looking for what is new");
        let plan = self.plan();
        self.look_for_room(&plan)?;
        let total = plan
            .values()
            .filter(|(source, _)| matches!(source, Source::Registry));
        let mut tenths = ByteProgress::new("copied", total.map(|(_, size)| size).sum(), progress);
        for (digest, (source, size)) in plan {
            if matches!(source, Source::Registry) {
                tenths.add(size);
            }
            self.take(&digest, source, size)?;
        }
        self.write_links()?;
        for (path, why) in &self.tree.strange {
            let repository = path.split("/_").next().unwrap_or_default().to_owned();
            let what = format!("{REPOSITORIES}/{}", path.escape_debug());
            self.damaged.push(Damage {
                what,
                why: why.clone(),
                repositories: vec![repository],
            });
        }
        let (repositories, tags) = self.tree.counts();
        let facts = Facts {
            format: facts::FORMAT,
            time,
            repositories,
            tags,
            links: self.tree.links.len(),
            links_sha256: self.tree.sha256(),
            blobs: self.blobs,
            bytes: self.bytes,
            bytes_new: self.bytes_new,
            damaged: self.damaged,
            mended: self.mended,
        };
        facts.write(self.to)?;
        Ok(facts)
    }

    /// Where each blob can be had, and its size in bytes.
    fn plan(&self) -> BTreeMap<Digest, (Source, u64)> {
        let source = |digest: &Digest| match self.live(digest) {
            Found::Here(file) => {
                let size = file.metadata().map(|facts| facts.len()).unwrap_or_default();
                match self.kept(digest).find(|(_, kept)| *kept == size) {
                    Some((path, _)) => (Source::Earlier(path), size),
                    None => (Source::Registry, size),
                }
            }
            Found::Gone => (Source::Nowhere("it is missing".to_owned()), 0),
            Found::Strange(why) => (Source::Nowhere(format!("its file {why}")), 0),
        };
        self.tree
            .needs()
            .into_keys()
            .map(|digest| (digest.clone(), source(digest)))
            .collect()
    }

    fn live(&self, digest: &Digest) -> Found<File> {
        self.v2.as_ref().map_or(Found::Gone, |v2| blob(v2, digest))
    }

    /// The same blob in earlier backups, the newest first.
    fn kept(&self, digest: &Digest) -> impl Iterator<Item = (PathBuf, u64)> {
        self.readable().filter_map(|backup| backup.blob(digest))
    }

    fn readable(&self) -> impl Iterator<Item = &Backup> {
        self.earlier
            .iter()
            .rev()
            .filter(|backup| backup.facts.is_ok())
    }

    fn look_for_room(&self, plan: &BTreeMap<Digest, (Source, u64)>) -> Result<(), Error> {
        let mut need = Need::default();
        for (source, size) in plan.values() {
            // Each has a directory of its own.
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
                let message =
                    format!("{what}; no backup was made: make room there, or keep fewer (--keep)");
                Err(Error::content(dir, message))
            }
        }
    }

    /// Puts a blob into the backup.
    fn take(&mut self, digest: &Digest, source: Source, size: u64) -> Result<(), Error> {
        let dir = self.root.join(digest.folder());
        backups::private(&dir)?;
        let place = dir.join(CONTENT);
        let why = match source {
            Source::Nowhere(why) => why,
            // Where there are no further names for a file, or too many already, it is copied.
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
        if !self.is_needed(digest) {
            return files::remove_dir(&dir);
        }
        let repositories = self.tree.repositories_of(digest);
        let damage = Damage {
            what: digest.to_string(),
            why,
            repositories,
        };
        match self.mend(digest, &place)? {
            Some((from, size)) => {
                self.count(size);
                self.mended.push(Mended { damage, from });
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

    /// Copies a blob of the registry; its size, or what is wrong with it.
    fn copy(&self, digest: &Digest, place: &Path) -> Result<Result<u64, String>, Error> {
        let mut from = match self.live(digest) {
            Found::Here(file) => file,
            Found::Gone => return Ok(Err("it is missing".to_owned())),
            Found::Strange(why) => return Ok(Err(format!("its file {why}"))),
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

    /// Whether links name a blob yet that is not there: some may have gone since they were read.
    /// The history of a tag may name manifests that were deleted; nobody can pull these, and what
    /// names nothing is left out.
    fn is_needed(&mut self, digest: &Digest) -> bool {
        let (mut gone, mut needed) = (Vec::new(), false);
        for (path, link) in self
            .tree
            .links
            .iter()
            .filter(|(_, link)| link.digest == *digest)
        {
            let below = format!("{REPOSITORIES}/{}", path.trim_end_matches("/link"));
            match self.v2.as_ref().map_or(Found::Gone, |v2| v2.below(&below)) {
                Found::Here(folder) if !matches!(pass::read(&folder), Found::Gone) => {
                    needed |= link.kind != Kind::History;
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

    /// Takes a blob from an earlier backup that has it as it should be: that backup's name, and the
    /// size.
    fn mend(&self, digest: &Digest, place: &Path) -> Result<Option<(String, u64)>, Error> {
        for backup in self.readable() {
            let Some((path, _)) = backup.blob(digest) else {
                continue;
            };
            let Ok(size) = File::open(&path)
                .map_err(|error| error.to_string())
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
        backups::private(&repositories)?;
        for folder in &self.tree.folders {
            backups::private(&repositories.join(folder))?;
        }
        for (path, link) in &self.tree.links {
            let path = repositories.join(path);
            backups::private(path.parent().unwrap_or(&repositories))?;
            files::write(&path, 0o600, link.digest.to_string().as_bytes())?;
        }
        Ok(())
    }
}

/// A disk that is not mounted, or a new one, looks like a registry that nothing was ever pushed to.
/// A backup of it would be the newest, and `ctl registry restore` would take it for what is to be
/// put back.
fn look_for_loss(data: &Path, tree: &Tree, earlier: &[Backup]) -> Result<(), Error> {
    if !tree.links.is_empty() || !tree.strange.is_empty() {
        return Ok(());
    }
    let Some(last) = earlier.iter().rev().find(|backup| backup.has_images()) else {
        return Ok(());
    };
    let message = format!(
        "the registry is empty, and the backup {} is not: is its disk not mounted? No backup was made. If the images were \
         lost, `ctl registry restore` brings them back; if they were removed on purpose, name another directory with --to, \
         or remove the backups in this one",
        last.name()
    );
    Err(Error::content(data, message))
}
