//! The links of a registry: which repository has which blobs, manifests and tags.

use std::collections::{BTreeMap, BTreeSet};

use halite_durable::digest;

use super::digest::Digest;
use super::folder::{Folder, Found};
use super::pass;

/// What a link is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A blob that can be pulled from a repository.
    Layer,
    /// A manifest that can be.
    Revision,
    /// The manifest that a tag names.
    Tag,
    /// A manifest that a tag names or named. It outlives that manifest.
    History,
}

/// A link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub repository: String,
    pub kind: Kind,
    pub digest: Digest,
}

/// Links by their paths below `repositories`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tree {
    pub links: BTreeMap<String, Link>,
    /// Directories that mean something without a link in them.
    pub folders: BTreeSet<String>,
    /// What is not as the registry makes it, and why.
    pub strange: BTreeMap<String, String>,
}

impl Tree {
    /// Reads everything below `repositories`. A registry may be writing there if it is `live`: what
    /// comes or goes meanwhile is in the tree or not, and whatever is has everything that it needs.
    pub fn read(repositories: &Folder, live: bool) -> Self {
        let mut tree = Self::default();
        tree.gather(repositories, "", live);
        tree
    }

    fn gather(&mut self, folder: &Folder, name: &str, live: bool) {
        let Some(names) = self.names(folder, name) else {
            return;
        };
        let (own, nested): (Vec<_>, Vec<_>) = names
            .into_iter()
            .partition(|entry| !name.is_empty() && entry.starts_with('_'));
        if !own.is_empty() {
            self.merge(pass::steady(folder, name, live));
        }
        for entry in nested {
            let path = join(name, &entry);
            if let Some(below) = self.enter(folder, &entry, &path) {
                self.gather(&below, &path, live);
                self.folders.insert(path);
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.links.extend(other.links);
        self.folders.extend(other.folders);
        self.strange.extend(other.strange);
    }

    /// The names in a directory that the registry can have given.
    pub fn names(&mut self, folder: &Folder, path: &str) -> Option<Vec<String>> {
        let mut names = match folder.names() {
            Ok(names) => names,
            Err(error) => {
                self.strange
                    .insert(path.to_owned(), format!("cannot be listed: {error}"));
                return None;
            }
        };
        names.retain(|name| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            let good = name.bytes().all(plain) && !name.starts_with('.');
            if !good {
                self.strange.insert(
                    join(path, name),
                    "has a name that no registry gives".to_owned(),
                );
            }
            good
        });
        Some(names)
    }

    /// A directory in one, if there is one.
    pub fn enter(&mut self, folder: &Folder, name: &str, path: &str) -> Option<Folder> {
        match folder.enter(name) {
            Found::Here(below) => Some(below),
            Found::Gone => None,
            Found::Strange(why) => {
                self.strange.insert(path.to_owned(), why);
                None
            }
        }
    }

    /// Every blob that is named, with the paths of the links that do.
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

    /// How many repositories there are, and how many tags.
    pub fn counts(&self) -> (usize, usize) {
        let repositories: BTreeSet<_> = self.links.values().map(|link| &link.repository).collect();
        (
            repositories.len(),
            self.links
                .values()
                .filter(|link| link.kind == Kind::Tag)
                .count(),
        )
    }

    /// One SHA-256 for all links.
    pub fn sha256(&self) -> String {
        let lines = self
            .links
            .iter()
            .map(|(path, link)| format!("{path} {}\n", link.digest));
        digest::sha256(lines.collect::<String>().as_bytes())
    }

    /// Takes a link out, and with that of a tag its history.
    pub fn drop_link(&mut self, path: &str) {
        self.links.remove(path);
        if let Some(tag) = path.strip_suffix("current/link") {
            self.links
                .retain(|other, _| !other.starts_with(&format!("{tag}index/")));
        }
    }
}

/// A path of names.
pub fn join(above: &str, name: &str) -> String {
    if above.is_empty() {
        name.to_owned()
    } else {
        format!("{above}/{name}")
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
