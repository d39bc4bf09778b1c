//! The links of a registry: the blobs, manifests and tags of each repository.

use std::collections::{BTreeMap, BTreeSet};

use halite_durable::digest;

use crate::digest::Digest;
use crate::folder::{Folder, Lookup};

/// The purpose of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// Names a blob that can be pulled from the repository.
    Layer,
    /// Names a manifest that can be pulled from the repository.
    Revision,
    /// Names the manifest of a tag.
    Tag,
    /// Names a current or earlier manifest of a tag. The link remains when that manifest is
    /// deleted.
    History,
}

/// A file that names a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub repository: String,
    pub kind: LinkKind,
    pub digest: Digest,
}

/// All links of a registry, by their paths below `repositories`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tree {
    pub links: BTreeMap<String, Link>,
    /// Directories that have a meaning even without a link in them.
    pub folders: BTreeSet<String>,
    /// Files and directories that a registry does not create, with the reason, which follows the
    /// path.
    pub unexpected: BTreeMap<String, String>,
}

impl Tree {
    /// Adds another tree.
    pub fn merge(&mut self, other: Self) {
        self.links.extend(other.links);
        self.folders.extend(other.folders);
        self.unexpected.extend(other.unexpected);
    }

    /// The names in a directory that a registry can create. Other names become unexpected.
    pub fn names(&mut self, folder: &Folder, path: &str) -> Option<Vec<String>> {
        let mut names = match folder.names() {
            Ok(names) => names,
            Err(error) => {
                self.unexpected
                    .insert(path.to_owned(), format!("cannot be listed: {error}"));
                return None;
            }
        };
        names.retain(|name| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            let valid = name.bytes().all(plain) && !name.starts_with('.');
            if !valid {
                self.unexpected.insert(
                    join(path, name),
                    "has a name that no registry gives".to_owned(),
                );
            }
            valid
        });
        Some(names)
    }

    /// Opens a directory, if it exists. Anything else with that name becomes unexpected.
    pub fn enter(&mut self, folder: &Folder, name: &str, path: &str) -> Option<Folder> {
        match folder.enter(name) {
            Lookup::Found(below) => Some(below),
            Lookup::Missing => None,
            Lookup::Unexpected(why) => {
                self.unexpected.insert(path.to_owned(), why);
                None
            }
        }
    }

    /// Every blob that a link names, with the paths of these links.
    pub fn needs(&self) -> BTreeMap<&Digest, Vec<&str>> {
        let mut needs: BTreeMap<&Digest, Vec<&str>> = BTreeMap::new();
        for (path, link) in &self.links {
            needs.entry(&link.digest).or_default().push(path);
        }
        needs
    }

    /// The repositories that name a blob.
    pub fn repositories_of(&self, digest: &Digest) -> Vec<String> {
        let of = self.links.values().filter(|link| link.digest == *digest);
        of.map(|link| link.repository.clone())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    /// The number of repositories and the number of tags.
    pub fn counts(&self) -> (usize, usize) {
        let repositories: BTreeSet<_> = self.links.values().map(|link| &link.repository).collect();
        (
            repositories.len(),
            self.links
                .values()
                .filter(|link| link.kind == LinkKind::Tag)
                .count(),
        )
    }

    /// The SHA-256 over all links and their paths.
    pub fn sha256(&self) -> String {
        let lines = self
            .links
            .iter()
            .map(|(path, link)| format!("{path} {}\n", link.digest));
        digest::sha256(lines.collect::<String>().as_bytes())
    }

    /// Removes a link; with a tag's link, also the tag's history.
    pub fn drop_link(&mut self, path: &str) {
        self.links.remove(path);
        if let Some(tag) = path.strip_suffix("current/link") {
            self.links
                .retain(|other, _| !other.starts_with(&format!("{tag}index/")));
        }
    }
}

/// Joins names to a path with `/`; `above` may be empty.
pub fn join(above: &str, name: &str) -> String {
    if above.is_empty() {
        name.to_owned()
    } else {
        format!("{above}/{name}")
    }
}
