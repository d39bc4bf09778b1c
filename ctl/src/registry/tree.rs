//! The links of a registry: which repository has which blobs, manifests and tags.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read as _,
    thread,
    time::{Duration, SystemTime},
};

use halite_bundle::files;

use super::{
    digest::Digest,
    folder::{Folder, Found},
};

/// More than any link holds, in bytes.
const LONGEST: u64 = 256;

/// How often one repository is read until nothing in it changes meanwhile.
const PASSES: usize = 10;

/// So soon after it was written, a file may be in the middle of that: the registry writes links and manifests in place.
const FRESH: Duration = Duration::from_secs(5);

/// How often such a file is looked at again, and the pause before.
pub const AGAIN: (u32, Duration) = (100, Duration::from_millis(50));

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
    /// Reads everything below `repositories`. A registry may be writing there if it is `live`: what comes or goes meanwhile
    /// is in the tree or not, and whatever is has everything that it needs.
    pub fn read(repositories: &Folder, live: bool) -> Self {
        let mut tree = Self::default();
        tree.gather(repositories, "", live);
        tree
    }

    fn gather(&mut self, folder: &Folder, name: &str, live: bool) {
        let Some(names) = self.names(folder, name) else { return };
        let (own, nested): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|entry| !name.is_empty() && entry.starts_with('_'));
        if !own.is_empty() {
            self.merge(steady(folder, name, live));
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
    fn names(&mut self, folder: &Folder, path: &str) -> Option<Vec<String>> {
        let mut names = match folder.names() {
            Ok(names) => names,
            Err(error) => {
                self.strange.insert(path.to_owned(), format!("cannot be listed: {error}"));
                return None;
            }
        };
        names.retain(|name| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            let good = name.bytes().all(plain) && !name.starts_with('.');
            if !good {
                self.strange.insert(join(path, name), "has a name that no registry gives".to_owned());
            }
            good
        });
        Some(names)
    }

    fn enter(&mut self, folder: &Folder, name: &str, path: &str) -> Option<Folder> {
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
        of.map(|link| link.repository.clone()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// How many repositories there are, and how many tags.
    pub fn counts(&self) -> (usize, usize) {
        let repositories: BTreeSet<_> = self.links.values().map(|link| &link.repository).collect();
        (repositories.len(), self.links.values().filter(|link| link.kind == Kind::Tag).count())
    }

    /// One SHA-256 for all links.
    pub fn sha256(&self) -> String {
        let lines = self.links.iter().map(|(path, link)| format!("{path} {}\n", link.digest));
        files::sha256(lines.collect::<String>().as_bytes())
    }

    /// Takes a link out, and with that of a tag its history.
    pub fn drop_link(&mut self, path: &str) {
        self.links.remove(path);
        if let Some(tag) = path.strip_suffix("current/link") {
            self.links.retain(|other, _| !other.starts_with(&format!("{tag}index/")));
        }
    }
}

/// The links of one repository. Manifests come after what they name and tags after manifests; a directory that is listed
/// while something is added to it may show the later and not the earlier. So it is read until nothing changes.
fn steady(folder: &Folder, name: &str, live: bool) -> Tree {
    let mut last = Pass::read(folder, name, live);
    for _ in 1..if live { PASSES } else { 1 } {
        let next = Pass::read(folder, name, live);
        if next == last {
            break;
        }
        last = next;
    }
    last
}

struct Pass<'a> {
    tree: Tree,
    repository: &'a str,
    live: bool,
}

impl Pass<'_> {
    /// Reads in the opposite of the order in which the registry writes.
    fn read(folder: &Folder, repository: &str, live: bool) -> Tree {
        let mut pass = Pass { tree: Tree::default(), repository, live };
        let manifests = pass.part(folder, repository, "_manifests");
        if let Some((manifests, path)) = &manifests {
            if let Some((tags, path)) = pass.part(manifests, path, "tags") {
                pass.tags(&tags, &path);
            }
            if let Some((revisions, path)) = pass.part(manifests, path, "revisions") {
                pass.digests(&revisions, &path, Kind::Revision);
            }
            pass.only(manifests, path, &["tags", "revisions"]);
        }
        if let Some((layers, path)) = pass.part(folder, repository, "_layers") {
            pass.digests(&layers, &path, Kind::Layer);
        }
        // Uploads are no images yet.
        for name in pass.tree.names(folder, repository).unwrap_or_default() {
            if name.starts_with('_') && !["_manifests", "_layers", "_uploads"].contains(&name.as_str()) {
                pass.unknown(join(repository, &name));
            }
        }
        pass.tree
    }

    fn part(&mut self, folder: &Folder, above: &str, name: &str) -> Option<(Folder, String)> {
        let path = join(above, name);
        let found = self.tree.enter(folder, name, &path)?;
        self.tree.folders.insert(path.clone());
        Some((found, path))
    }

    fn only(&mut self, folder: &Folder, path: &str, known: &[&str]) {
        for name in self.tree.names(folder, path).unwrap_or_default() {
            if !known.contains(&name.as_str()) {
                self.unknown(join(path, &name));
            }
        }
    }

    fn unknown(&mut self, path: String) {
        self.tree.strange.insert(path, "is nothing that a registry has".to_owned());
    }

    fn tags(&mut self, folder: &Folder, path: &str) {
        for tag in self.tree.names(folder, path).unwrap_or_default() {
            let path = join(path, &tag);
            let Some(folder) = self.tree.enter(folder, &tag, &path) else { continue };
            let current = join(&path, "current");
            let found = self.tree.enter(&folder, "current", &current);
            // One without is coming or going: it names nothing.
            if found.is_some_and(|found| self.link(&found, &current, Kind::Tag)) {
                let index = join(&path, "index");
                if let Some(found) = self.tree.enter(&folder, "index", &index) {
                    self.digests(&found, &index, Kind::History);
                }
                self.only(&folder, &path, &["current", "index"]);
            }
        }
    }

    /// `ALGORITHM/HEX/link`.
    fn digests(&mut self, folder: &Folder, path: &str, kind: Kind) {
        for algorithm in self.tree.names(folder, path).unwrap_or_default() {
            let path = join(path, &algorithm);
            let Some(folder) = self.tree.enter(folder, &algorithm, &path) else { continue };
            for hex in self.tree.names(&folder, &path).unwrap_or_default() {
                let path = join(&path, &hex);
                if let Some(folder) = self.tree.enter(&folder, &hex, &path) {
                    self.link(&folder, &path, kind);
                }
            }
        }
    }

    /// Whether there is one.
    fn link(&mut self, folder: &Folder, path: &str, kind: Kind) -> bool {
        let path = join(path, "link");
        match read(folder, self.live) {
            Found::Here(digest) => {
                let repository = self.repository.to_owned();
                self.tree.links.insert(path, Link { repository, kind, digest });
                return true;
            }
            Found::Gone => {}
            Found::Strange(why) => {
                self.tree.strange.insert(path, why);
            }
        }
        false
    }
}

/// What the link in a directory names.
pub fn read(folder: &Folder, live: bool) -> Found<Digest> {
    let attempts = if live { AGAIN.0 } else { 1 };
    for attempt in 1.. {
        let file = match folder.plain("link") {
            Found::Here(file) => file,
            Found::Gone => return Found::Gone,
            Found::Strange(why) => return Found::Strange(why),
        };
        let mut text = String::new();
        let named = match (&file).take(LONGEST).read_to_string(&mut text) {
            Ok(_) => text.parse::<Digest>(),
            Err(error) => Err(format!("it cannot be read: {error}")),
        };
        match named {
            Ok(digest) => return Found::Here(digest),
            Err(_) if attempt < attempts && is_fresh(&file) => thread::sleep(AGAIN.1),
            Err(why) => return Found::Strange(format!("names no blob: {why}")),
        }
    }
    Found::Gone
}

/// Whether a file was written a moment ago.
pub fn is_fresh(file: &File) -> bool {
    let written = file.metadata().and_then(|facts| facts.modified());
    written.is_ok_and(|at| SystemTime::now().duration_since(at).unwrap_or_default() < FRESH)
}

fn join(above: &str, name: &str) -> String {
    if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
