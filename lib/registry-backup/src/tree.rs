//! A new tree in a registry's layout, built from links and the blobs that they name.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use halite_durable::disk_space::{Need, Room};
use halite_durable::{ByteProgress, Digest, Error, files};

use crate::blobs;
use crate::links::Links;
use crate::owner::Owner;

/// The directory of the tree in a data directory and in a backup.
pub const ROOT: &str = "docker/registry/v2";
/// Its first component, which a backup or a restore locks in a data directory.
pub const TOP: &str = "docker";

/// A tree that is being built. Unless it has been renamed, it is removed on drop.
pub struct NewTree {
    /// The directory that is renamed, with the tree in it.
    pub dir: PathBuf,
    v2: PathBuf,
    owner: Owner,
}

/// The content of a new tree.
#[derive(Debug, Default)]
pub struct TreeContent {
    /// The number of blobs.
    pub blobs: usize,
    /// Their size in bytes.
    pub bytes: u64,
    /// The size of the blobs that were copied, not hard-linked, in bytes.
    pub bytes_new: u64,
}

impl NewTree {
    /// Starts the tree `v2` in the directory `dir`, which is removed first if it exists. The files
    /// are written with the rights of `owner`. Only that user can read them: images may contain
    /// secrets.
    pub fn new(dir: PathBuf, v2: &str, owner: Owner) -> Result<Self, Error> {
        files::remove_any(&dir)?;
        let _acting = owner.act(&dir)?;
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&dir);
        made.map_err(Error::file("create", &dir))?;
        let v2 = dir.join(v2);
        Ok(Self { dir, v2, owner })
    }

    /// Fills the tree with the links of `source`, a registry or a backup, and the blobs that they
    /// name. Returns when everything is on the disk. `link` hard-links a blob to a path and returns
    /// `true`, if it can; the other blobs are copied from `source`.
    ///
    /// # Errors
    /// Blobs of `source` are damaged (`remedy` ends the message), there is too little space, or a
    /// system call fails.
    pub fn fill(
        &self,
        (source, links): (&Path, &Links),
        link: impl Fn(&Digest, &Path) -> bool,
        remedy: &str,
        progress: &mut dyn FnMut(&str),
    ) -> Result<TreeContent, Error> {
        let (from, mut content, mut to_copy) =
            (source.join(ROOT), TreeContent::default(), Vec::new());
        let acting = self.owner.act(&self.dir)?;
        for (digest, repositories) in links.blobs() {
            let place = blobs::path(&self.v2, digest);
            files::make_dir(place.parent().unwrap_or(&self.v2))?;
            content.blobs += 1;
            if link(digest, &place) {
                content.bytes += blobs::size(&self.v2, digest);
            } else {
                to_copy.push((digest, repositories, blobs::size(&from, digest)));
            }
        }
        drop(acting);
        // A hard link needs no space, but each link to a blob is a file.
        let sizes = to_copy.iter().map(|(.., size)| *size);
        let need = Need::for_sizes(sizes.clone().chain((0..links.len()).map(|_| 0)));
        if let Some(short) = Room::at(&self.dir)?.short(need, "the registry's data") {
            let message = format!("{short}; nothing was changed; free some space");
            return Err(Error::content(&self.dir, message));
        }
        let mut byte_progress = ByteProgress::new("copied", sizes.sum(), progress);
        let mut damaged = Vec::new();
        for (digest, repositories, _) in to_copy {
            let blob = blobs::open(&blobs::path(&from, digest));
            let _acting = self.owner.act(&self.dir)?;
            let place = blobs::path(&self.v2, digest);
            let mut file = files::create(&place, blobs::MODE)?;
            match blobs::copy(blob, digest, &mut file).map_err(Error::file("write", place))? {
                Ok(size) => {
                    content.bytes_new += size;
                    byte_progress.add(size);
                }
                Err(damage) => damaged.push(blobs::describe(digest, repositories, &damage)),
            }
        }
        if !damaged.is_empty() {
            return Err(blobs::damaged(source, damaged, remedy));
        }
        content.bytes += content.bytes_new;
        let acting = self.owner.act(&self.dir)?;
        links.write(&self.v2)?;
        drop(acting);
        files::settle(&self.dir)?;
        Ok(content)
    }
}

impl Drop for NewTree {
    fn drop(&mut self) {
        // A finished tree has another name. A leftover that cannot be removed now is removed by the
        // next run.
        let _ = files::remove_any(&self.dir);
    }
}
