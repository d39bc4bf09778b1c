//! Reads the links of a registry that may be writing at the same time.

use std::io::Read as _;

use crate::digest::{Digest, InvalidDigest};
use crate::folder::{Folder, Lookup};
use crate::tree::{Link, LinkKind, Tree, join};

/// A limit above the size of any link, in bytes.
const MAX_LINK: u64 = 256;

/// The maximum number of scans of one repository until two in a row are equal. A scan takes far
/// less time than a push, in which the registry waits for the disk with each file.
const MAX_SCANS: usize = 100;

/// Reads all links below `repositories`. If the registry is `live`, it may be writing: links that
/// it adds or removes during the scan are in the tree or not, but each link in the tree has the
/// links that it needs.
pub fn scan(repositories: &Folder, live: bool) -> Tree {
    let mut tree = Tree::default();
    scan_below(&mut tree, repositories, "", live);
    tree
}

/// Adds the links of a repository, and of those below it: repository names contain `/`.
fn scan_below(tree: &mut Tree, folder: &Folder, name: &str, live: bool) {
    let Some(names) = tree.names(folder, name) else {
        return;
    };
    let (own, nested): (Vec<_>, Vec<_>) = names
        .into_iter()
        .partition(|entry| !name.is_empty() && entry.starts_with('_'));
    if !own.is_empty() {
        let scan = || RepositoryScan::run(folder, name);
        tree.merge(if live {
            scan_until_stable(name, scan)
        } else {
            scan()
        });
    }
    for entry in nested {
        let path = join(name, &entry);
        if let Some(below) = tree.enter(folder, &entry, &path) {
            scan_below(tree, &below, &path, live);
            tree.folders.insert(path);
        }
    }
}

/// Scans a repository until two scans in a row are equal. The registry writes a manifest after what
/// it names, and a tag after its manifest; but a directory that is listed during a write may show
/// the later entry without the earlier one. A repository that never becomes stable is unexpected.
fn scan_until_stable(name: &str, mut read: impl FnMut() -> Tree) -> Tree {
    let mut last = read();
    for _ in 1..MAX_SCANS {
        let next = read();
        if next == last {
            return last;
        }
        last = next;
    }
    let why = format!(
        "changed during each of {MAX_SCANS} scans, and images in it may be incomplete; repeat the backup while fewer images are pushed"
    );
    last.unexpected.insert(name.to_owned(), why);
    last
}

/// A scan of one repository.
struct RepositoryScan<'a> {
    tree: Tree,
    repository: &'a str,
}

impl RepositoryScan<'_> {
    /// Reads in the opposite order of the registry's writes.
    fn run(folder: &Folder, repository: &str) -> Tree {
        let mut scan = RepositoryScan {
            tree: Tree::default(),
            repository,
        };
        let manifests = scan.enter(folder, repository, "_manifests");
        if let Some((manifests, path)) = &manifests {
            if let Some((tags, path)) = scan.enter(manifests, path, "tags") {
                scan.tags(&tags, &path);
            }
            if let Some((revisions, path)) = scan.enter(manifests, path, "revisions") {
                scan.digests(&revisions, &path, LinkKind::Revision);
            }
            scan.report_unknown(manifests, path, &["tags", "revisions"]);
        }
        if let Some((layers, path)) = scan.enter(folder, repository, "_layers") {
            scan.digests(&layers, &path, LinkKind::Layer);
        }
        // Uploads are not images yet.
        for name in scan.tree.names(folder, repository).unwrap_or_default() {
            if name.starts_with('_')
                && !["_manifests", "_layers", "_uploads"].contains(&name.as_str())
            {
                scan.unknown(join(repository, &name));
            }
        }
        scan.tree
    }

    fn enter(&mut self, folder: &Folder, above: &str, name: &str) -> Option<(Folder, String)> {
        let path = join(above, name);
        let found = self.tree.enter(folder, name, &path)?;
        self.tree.folders.insert(path.clone());
        Some((found, path))
    }

    fn report_unknown(&mut self, folder: &Folder, path: &str, known: &[&str]) {
        for name in self.tree.names(folder, path).unwrap_or_default() {
            if !known.contains(&name.as_str()) {
                self.unknown(join(path, &name));
            }
        }
    }

    fn unknown(&mut self, path: String) {
        self.tree
            .unexpected
            .insert(path, "is not part of a registry".to_owned());
    }

    fn tags(&mut self, folder: &Folder, path: &str) {
        for tag in self.tree.names(folder, path).unwrap_or_default() {
            let path = join(path, &tag);
            let Some(folder) = self.tree.enter(folder, &tag, &path) else {
                continue;
            };
            let current = join(&path, "current");
            let found = self.tree.enter(&folder, "current", &current);
            // A tag without this link is being created or deleted, so it names nothing.
            if found.is_some_and(|found| self.link(&found, &current, LinkKind::Tag)) {
                let index = join(&path, "index");
                if let Some(found) = self.tree.enter(&folder, "index", &index) {
                    self.digests(&found, &index, LinkKind::History);
                }
                self.report_unknown(&folder, &path, &["current", "index"]);
            }
        }
    }

    /// Reads the links `ALGORITHM/HEX/link` of a directory.
    fn digests(&mut self, folder: &Folder, path: &str, kind: LinkKind) {
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

    /// Reads the link in a directory. Returns `true` if there is one.
    fn link(&mut self, folder: &Folder, path: &str, kind: LinkKind) -> bool {
        let path = join(path, "link");
        match read_link(folder) {
            Lookup::Found(digest) => {
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
            Lookup::Missing => {}
            Lookup::Unexpected(why) => {
                self.tree.unexpected.insert(path, why);
            }
        }
        false
    }
}

/// The digest that the link in a directory names. The registry renames links to their places after
/// they are on the disk, so a link is never incomplete.
pub fn read_link(folder: &Folder) -> Lookup<Digest> {
    let file = match folder.open_file("link") {
        Lookup::Found(file) => file,
        Lookup::Missing => return Lookup::Missing,
        Lookup::Unexpected(why) => return Lookup::Unexpected(why),
    };
    let mut text = String::new();
    if let Err(error) = file.take(MAX_LINK).read_to_string(&mut text) {
        return Lookup::Unexpected(format!("names no blob: it cannot be read: {error}"));
    }
    text.parse().map_or_else(
        |why: InvalidDigest| Lookup::Unexpected(format!("names no blob: {why}")),
        Lookup::Found,
    )
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;

#[cfg(test)]
mod stability_tests {
    use super::*;

    /// A repository after a number of pushes.
    fn after(pushes: usize) -> Tree {
        let mut tree = Tree::default();
        tree.folders
            .extend((0..pushes).map(|push| format!("app/{push}")));
        tree
    }

    #[test]
    fn an_unstable_repository_is_unexpected() {
        for (last, unstable) in [
            (0, false),
            (1, false),
            (MAX_SCANS - 2, false),
            (MAX_SCANS - 1, true),
            (usize::MAX, true),
        ] {
            let mut scans = 0;
            let tree = scan_until_stable("app", || {
                scans += 1;
                after(scans.min(last.saturating_add(1)))
            });
            assert_eq!(
                tree.unexpected.contains_key("app"),
                unstable,
                "{last} pushes: {scans} scans"
            );
            assert_eq!(scans, if unstable { MAX_SCANS } else { last + 2 });
            assert_eq!(
                tree.folders,
                after(scans.min(last.saturating_add(1))).folders
            );
        }
    }
}
