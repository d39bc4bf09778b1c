//! Reading the links of one repository, while the registry may be writing there.

use std::io::Read as _;

use super::digest::Digest;
use super::folder::{Folder, Found};
use super::tree::{Kind, Link, Tree, join};

/// More than any link holds, in bytes.
const LONGEST: u64 = 256;

/// How often one repository is read, at most, until nothing in it changes meanwhile. A reading
/// takes far less time than a push, whose every file the registry waits for.
const PASSES: usize = 100;

/// The links of one repository. Manifests come after what they name and tags after manifests; a
/// directory that is listed while something is added to it may show the later and not the earlier.
/// So it is read until nothing changes; where that does not come about, the repository is said to
/// be strange.
pub fn steady(folder: &Folder, name: &str, live: bool) -> Tree {
    let read = || Pass::read(folder, name);
    if live { settled(name, read) } else { read() }
}

fn settled(name: &str, mut read: impl FnMut() -> Tree) -> Tree {
    let mut last = read();
    for _ in 1..PASSES {
        let next = read();
        if next == last {
            return last;
        }
        last = next;
    }
    let why = format!(
        "was another each of the {PASSES} times that it was read, and images may be in it by half: make a backup while less \
         is pushed"
    );
    last.strange.insert(name.to_owned(), why);
    last
}

struct Pass<'a> {
    tree: Tree,
    repository: &'a str,
}

impl Pass<'_> {
    /// Reads in the opposite of the order in which the registry writes.
    fn read(folder: &Folder, repository: &str) -> Tree {
        let mut pass = Pass {
            tree: Tree::default(),
            repository,
        };
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
            if name.starts_with('_')
                && !["_manifests", "_layers", "_uploads"].contains(&name.as_str())
            {
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
        self.tree
            .strange
            .insert(path, "is nothing that a registry has".to_owned());
    }

    fn tags(&mut self, folder: &Folder, path: &str) {
        for tag in self.tree.names(folder, path).unwrap_or_default() {
            let path = join(path, &tag);
            let Some(folder) = self.tree.enter(folder, &tag, &path) else {
                continue;
            };
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
            let Some(folder) = self.tree.enter(folder, &algorithm, &path) else {
                continue;
            };
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
        match read(folder) {
            Found::Here(digest) => {
                let repository = self.repository.to_owned();
                self.tree.links.insert(
                    path,
                    Link {
                        repository,
                        kind,
                        digest,
                    },
                );
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

/// What the link in a directory names. The registry moves links to their places when they are on
/// the disk, so there is never half of one.
pub fn read(folder: &Folder) -> Found<Digest> {
    let file = match folder.plain("link") {
        Found::Here(file) => file,
        Found::Gone => return Found::Gone,
        Found::Strange(why) => return Found::Strange(why),
    };
    let mut text = String::new();
    let named = match file.take(LONGEST).read_to_string(&mut text) {
        Ok(_) => text.parse(),
        Err(error) => Err(format!("it cannot be read: {error}")),
    };
    named.map_or_else(
        |why| Found::Strange(format!("names no blob: {why}")),
        Found::Here,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository after so many pushes.
    fn after(pushes: usize) -> Tree {
        let mut tree = Tree::default();
        tree.folders
            .extend((0..pushes).map(|push| format!("app/{push}")));
        tree
    }

    #[test]
    fn what_never_settles_is_told() {
        for (last, told) in [
            (0, false),
            (1, false),
            (PASSES - 2, false),
            (PASSES - 1, true),
            (usize::MAX, true),
        ] {
            let mut readings = 0;
            let tree = settled("app", || {
                readings += 1;
                after(readings.min(last.saturating_add(1)))
            });
            assert_eq!(
                tree.strange.contains_key("app"),
                told,
                "{last} pushes: {readings} readings"
            );
            assert_eq!(readings, if told { PASSES } else { last + 2 });
            assert_eq!(
                tree.folders,
                after(readings.min(last.saturating_add(1))).folders
            );
        }
    }
}
