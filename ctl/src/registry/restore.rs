//! Putting a backup back, also while the registry serves.

use std::collections::BTreeSet;
use std::io;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use halite_durable::disk_space::{Need, Room};
use halite_durable::{ByteProgress, Error, files};

use super::backups::{Backup, Backups};
use super::digest::Digest;
use super::facts::{Damage, Facts};
use super::folder::{Folder, Found, Owner};
use super::verify::Opened;
use super::{CONTENT, REPOSITORIES, ROOT, apart, blob, images};

/// What is copied, until all of it is known to be good.
const STAGED: &str = ".restore";

/// The mode of the registry's directories where there are none.
const MODE: u32 = 0o755;

/// No manifest is larger, in bytes: the registry takes none that is.
const MANIFEST: u64 = 4 << 20;

/// What came of it.
#[derive(Debug)]
pub struct Restored {
    /// What the backup says of itself.
    pub facts: Facts,
    /// Blobs that had to be put back.
    pub copied: usize,
    /// Their size in bytes.
    pub bytes_new: u64,
    /// Blobs of the registry that were damaged and are as they were.
    pub mended: Vec<String>,
    /// What is damaged in the backup, or is not in it since the registry's own was damaged, and was
    /// left out.
    pub damaged: Vec<Damage>,
    /// What cannot be pulled without that: `REPOSITORY:TAG` and `REPOSITORY@DIGEST`.
    pub lost: Vec<String>,
}

/// Either what came of it, or why nothing was changed.
pub type Outcome = Result<Restored, Vec<Damage>>;

/// Puts a backup back into the data directory of a registry, whose owner gets everything. Its
/// repositories are what they were then, in one step; blobs that nothing names any more stay. It
/// can be cut off at any moment and done again. With `without_damaged`, what needs a blob that is
/// damaged is left out; without it, nothing is changed then.
///
/// # Errors
/// There is no such directory, somebody else works there, there is no room, or the system refuses.
/// Repositories are as they were then.
pub fn restore(
    backups: &Backups,
    backup: &Backup,
    data: &Path,
    without_damaged: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<Outcome, Error> {
    if !data.is_dir() {
        let message = "there is no such directory: make it, for the user that the registry runs as, or name another \
                       one with --data";
        return Err(Error::content(data, message));
    }
    let data = Folder::open(&apart(data, backups.dir())?)?;
    // A medium that cannot be written to changes under nobody's hands.
    let _claim = match backups.claim() {
        Err(Error::File { cause, .. }) if cause.kind() == io::ErrorKind::ReadOnlyFilesystem => None,
        claim => Some(claim?),
    };
    let opened = Opened::new(backup)?;
    if !opened.damaged.is_empty() {
        return Ok(Err(opened.damaged));
    }
    let mode = match data.below(ROOT) {
        Found::Here(v2) => {
            let facts = v2
                .file()
                .metadata()
                .map_err(Error::file("look at", v2.path()))?;
            facts.permissions().mode() & 0o777 | 0o700
        }
        _ => MODE,
    };
    let owner = Owner::of(&data, mode)?;
    let v2 = data.make(ROOT, &owner)?;
    if !v2.lock(true)? {
        let message =
            "another ctl restores this registry or backs it up: wait until that has ended";
        return Err(Error::content(data.path(), message));
    }
    let mut restoring = Restoring { opened, v2, owner };
    restoring.clear()?;
    let done = restoring.run(without_damaged, progress);
    // The first error is the one that matters; what stays goes the next time.
    match (done, restoring.clear()) {
        (Ok(Ok(restored)), cleared) => cleared.map(|()| Ok(restored)),
        (done, _) => done,
    }
}

struct Restoring {
    opened: Opened,
    v2: Folder,
    owner: Owner,
}

impl Restoring {
    fn new_repositories(&self) -> String {
        format!(".{REPOSITORIES}.new")
    }

    /// Removes what was being made.
    fn clear(&self) -> Result<(), Error> {
        let at = self.v2.path();
        files::remove_any(&at.join(STAGED))?;
        files::remove_any(&at.join(self.new_repositories()))?;
        // Where two trees cannot be exchanged in one step, the old one is aside for a moment: it
        // stays until there is one.
        let place = at.join(REPOSITORIES);
        if place.exists() {
            files::remove_any(&files::sibling(&place, "replaced"))
        } else {
            Ok(())
        }
    }

    fn run(
        &mut self,
        without_damaged: bool,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Outcome, Error> {
        let (mut missing, spoilt) = self.missing(progress)?;
        let mut need = Need::default();
        let sizes = missing.iter().map(|digest| self.size(digest));
        sizes
            .chain(self.opened.tree.links.values().map(|_| 0))
            .for_each(|size| need.add(size));
        if let Some(what) = Room::at(self.v2.path())?.short(need, "what is missing") {
            let message = format!("{what}; nothing was changed: make room there");
            return Err(Error::content(self.v2.path(), message));
        }
        let mut damaged = self.stage(&missing, progress)?;
        damaged.extend(self.opened.lacking());
        let mut lost = Vec::new();
        if !damaged.is_empty() {
            if !without_damaged {
                return Ok(Err(damaged));
            }
            lost = self.leave_out(&damaged, &mut missing)?;
        }
        progress("putting everything in its place");
        files::settle(self.v2.path())?;
        self.place(&missing)?;
        let (mended, left): (Vec<_>, Vec<_>) = spoilt
            .into_iter()
            .partition(|digest| missing.contains(digest));
        left.iter().try_for_each(|digest| self.discard(digest))?;
        self.link()?;
        let mended = mended.iter().map(ToString::to_string).collect();
        let (facts, copied) = (self.opened.facts.clone(), missing.len());
        let bytes_new = missing.iter().map(|digest| self.size(digest)).sum();
        Ok(Ok(Restored {
            facts,
            copied,
            bytes_new,
            mended,
            damaged,
            lost,
        }))
    }

    /// Takes out of the backup's links what needs something damaged, and out of what is missing all
    /// that they name no more.
    fn leave_out(
        &mut self,
        damaged: &[Damage],
        missing: &mut BTreeSet<Digest>,
    ) -> Result<Vec<String>, Error> {
        let damaged = damaged
            .iter()
            .filter_map(|damage| damage.what.parse().ok())
            .collect();
        let staged = self.staged()?;
        let lost = images::leave_out(&mut self.opened.tree, &damaged, |digest| {
            let file = match missing.contains(digest) {
                true => staged.plain(&digest.file_name()),
                false => blob(&self.v2, digest),
            };
            let mut content = Vec::new();
            if let Found::Here(file) = file {
                // Both were compared with their digests a moment ago.
                let _ = file.take(MANIFEST).read_to_end(&mut content);
            }
            content
        });
        let needs = self.opened.tree.needs();
        missing.retain(|digest| needs.contains_key(digest));
        Ok(lost)
    }

    /// Removes a damaged blob of the registry that will have no name: pushed again it would be
    /// taken for whole.
    fn discard(&self, digest: &Digest) -> Result<(), Error> {
        match self.v2.below(&digest.folder()) {
            Found::Here(folder) => folder.remove(CONTENT),
            _ => Ok(()),
        }
    }

    fn staged(&self) -> Result<Folder, Error> {
        match self.v2.enter(STAGED) {
            Found::Here(staged) => Ok(staged),
            _ => Err(Error::content(
                self.v2.path().join(STAGED),
                "somebody has removed it",
            )),
        }
    }

    /// The blobs that the registry does not have as they should be, and which of those it has
    /// damaged.
    fn missing(
        &self,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(BTreeSet<Digest>, Vec<Digest>), Error> {
        let (mut missing, mut spoilt) = (BTreeSet::new(), Vec::new());
        let mut tenths = ByteProgress::new("compared", self.opened.facts.bytes, progress);
        for digest in self.opened.tree.needs().into_keys() {
            match blob(&self.v2, digest) {
                Found::Here(mut file) => match digest.check(&mut file) {
                    Ok(size) => tenths.add(size),
                    Err(_) => {
                        missing.insert(digest.clone());
                        spoilt.push(digest.clone());
                    }
                },
                Found::Gone => {
                    missing.insert(digest.clone());
                }
                Found::Strange(why) => {
                    let path = self.v2.path().join(digest.folder());
                    return Err(Error::content(
                        path,
                        format!("it or its content {why}: remove it"),
                    ));
                }
            }
        }
        Ok((missing, spoilt))
    }

    fn size(&self, digest: &Digest) -> u64 {
        match blob(&self.opened.v2, digest) {
            Found::Here(file) => file.metadata().map(|facts| facts.len()).unwrap_or_default(),
            _ => 0,
        }
    }

    /// Copies blobs beside those of the registry. All that are damaged.
    fn stage(
        &self,
        missing: &BTreeSet<Digest>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Vec<Damage>, Error> {
        let mut damaged = Vec::new();
        let staged = self.v2.make(STAGED, &self.owner)?;
        let mut tenths = ByteProgress::new(
            "copied",
            missing.iter().map(|digest| self.size(digest)).sum(),
            progress,
        );
        for digest in missing {
            let copied = match blob(&self.opened.v2, digest) {
                Found::Here(mut from) => {
                    let mut to = staged.create(&digest.file_name(), &self.owner)?;
                    digest
                        .copy(&mut from, &mut to)
                        .map_err(Error::file("write", staged.path()))?
                }
                Found::Gone => Err("it is missing".to_owned()),
                Found::Strange(why) => Err(format!("its file {why}")),
            };
            match copied {
                Ok(size) => tenths.add(size),
                Err(why) => damaged.push(self.opened.damage(digest, why)),
            }
        }
        Ok(damaged)
    }

    /// Gives every blob its place and its owner.
    fn place(&self, missing: &BTreeSet<Digest>) -> Result<(), Error> {
        let staged = self.staged()?;
        for digest in self.opened.tree.needs().into_keys() {
            let folder = self.v2.make(&digest.folder(), &self.owner)?;
            if missing.contains(digest) {
                staged.hand_over(&digest.file_name(), &folder, CONTENT)?;
            } else if let Found::Here(file) = folder.plain(CONTENT) {
                // Somebody may have copied it there by hand.
                let path = folder.path().join(CONTENT);
                self.owner
                    .take(&file, self.owner.mode & 0o666)
                    .map_err(Error::file("change the owner of", path))?;
            }
        }
        Ok(())
    }

    /// Makes the repositories anew, beside those that there are, and puts them in their place.
    fn link(&self) -> Result<(), Error> {
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
        files::put_in_place(new.path(), &self.v2.path().join(REPOSITORIES))
    }
}
