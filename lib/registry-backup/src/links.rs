//! The links of a registry: files that name blobs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use halite_durable::digest::{self, Digest, InvalidDigest};
use halite_durable::{Error, files};

use crate::blobs;

/// The directory of the links in a tree.
const REPOSITORIES: &str = "repositories";
/// A limit above the size of any link, in bytes.
const MAX_LINK: u64 = 256;

/// The links of a registry: the digest that each one names, by its path below the repositories.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Links(BTreeMap<String, Digest>);

impl Links {
    /// Reads the links of the tree `v2`, to which a registry may be writing. Omits the history of a
    /// tag, which may name deleted manifests and which the registry serves to no client.
    pub fn read(v2: &Path) -> Result<Self, Error> {
        let mut links = Self::default();
        let root = v2.join(REPOSITORIES);
        for name in directories(&root)? {
            links.read_repository(&root, &name)?;
        }
        Ok(links)
    }

    /// Reads a repository and those below it: repository names contain `/`, and no part of them
    /// begins with `_`.
    ///
    /// The registry writes the links of an image in this order: layers, manifests, an index of
    /// manifests, the tag. Reading them in the opposite order gives every tag its manifests,
    /// and every manifest its layers, at any moment of a push. Only an index without a tag, pushed
    /// at that moment, may lack a manifest.
    fn read_repository(&mut self, root: &Path, name: &str) -> Result<(), Error> {
        let tags = format!("{name}/_manifests/tags");
        for tag in directories(&root.join(&tags))? {
            self.read_link(root, &format!("{tags}/{tag}/current"))?;
        }
        self.read_below(root, &format!("{name}/_manifests/revisions"))?;
        self.read_below(root, &format!("{name}/_layers"))?;
        for below in directories(&root.join(name))? {
            if !below.starts_with('_') {
                self.read_repository(root, &format!("{name}/{below}"))?;
            }
        }
        Ok(())
    }

    /// Reads all links in and below a directory.
    fn read_below(&mut self, root: &Path, dir: &str) -> Result<(), Error> {
        self.read_link(root, dir)?;
        for below in directories(&root.join(dir))? {
            self.read_below(root, &format!("{dir}/{below}"))?;
        }
        Ok(())
    }

    /// Reads the link in a directory, if there is one. The registry renames links to their places
    /// when they are on the disk, so a link is never incomplete.
    fn read_link(&mut self, root: &Path, dir: &str) -> Result<(), Error> {
        let name = format!("{dir}/link");
        let (path, mut text) = (root.join(&name), String::new());
        let read = blobs::open(&path);
        match read.and_then(|file| file.take(MAX_LINK).read_to_string(&mut text)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Error::file("read", path)(error)),
            Ok(_) => {}
        }
        let invalid = |error: InvalidDigest| Error::invalid(path, error);
        self.0.insert(name, text.parse().map_err(invalid)?);
        Ok(())
    }

    /// Writes the links to the tree `v2`.
    pub fn write(&self, v2: &Path) -> Result<(), Error> {
        let root = v2.join(REPOSITORIES);
        // Without this directory, `registry garbage-collect --delete-untagged` removes the blobs of
        // a repository, but not its links.
        for repository in self.blobs().into_values().flatten() {
            files::make_dir(&root.join(repository).join("_manifests/tags"))?;
        }
        for (path, digest) in &self.0 {
            files::write(&root.join(path), blobs::MODE, digest.oci().as_bytes())?;
        }
        Ok(())
    }

    /// The number of links.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The blobs that the links name, with the repositories that use them.
    pub fn blobs(&self) -> BTreeMap<&Digest, BTreeSet<&str>> {
        let mut blobs: BTreeMap<&Digest, BTreeSet<&str>> = BTreeMap::new();
        for (path, digest) in &self.0 {
            let repository = path.split("/_").next().unwrap_or_default();
            blobs.entry(digest).or_default().insert(repository);
        }
        blobs
    }

    /// The number of tags.
    pub fn tags(&self) -> usize {
        let is_tag = |path: &&String| path.ends_with("/current/link");
        self.0.keys().filter(is_tag).count()
    }

    /// The SHA-256 of all links and their paths.
    pub fn sha256(&self) -> String {
        let lines = self.0.iter();
        let lines = lines.map(|(path, digest)| format!("{path} {digest}\n"));
        digest::sha256(lines.collect::<String>().as_bytes())
    }
}

/// The names of the directories in a directory, sorted; none if it is missing. Files are skipped:
/// the registry writes temporary ones beside its links.
fn directories(dir: &Path) -> Result<Vec<String>, Error> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::file("list", dir))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::file("list", dir))?;
        let kind = entry.file_type().map_err(Error::file("list", dir))?;
        match entry.file_name().into_string() {
            Ok(name) if kind.is_dir() => names.push(name),
            Ok(_) if kind.is_file() => {}
            _ => {
                let message = "it is a symbolic link, or the registry did not create it; remove it";
                return Err(Error::content(entry.path(), message));
            }
        }
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
