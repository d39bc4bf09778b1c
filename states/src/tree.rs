//! The state tree: SLS files, templates and files to deliver, by path relative to its root.

mod reading;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use halite_document::Problem;
use sha2::{Digest, Sha256};

/// Largest file that is read into memory, in bytes; larger files belong into the bundle.
pub const MAX_FILE: u64 = 64 * 1024 * 1024;

/// Folder of the bundle's charts, in the tree as in the bundle: `charts/NAME.yaml`.
const CHARTS: &str = "charts";

/// Folder of a bundle that contains the rest of its tree.
const STATES: &str = "states";

/// The number of nested directories that are entered below a root.
const DEEPEST: usize = 32;

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// The path in a bundle of a file of its tree.
#[must_use]
pub fn to_bundle_path(path: &str) -> String {
    if is_below(path, CHARTS) {
        path.to_owned()
    } else {
        format!("{STATES}/{path}")
    }
}

/// The path in the tree of one of the bundle's files; `None` for a file that is not part of the
/// tree.
#[must_use]
pub fn from_bundle_path(path: &str) -> Option<&str> {
    if is_below(path, CHARTS) {
        Some(path)
    } else {
        path.strip_prefix(STATES)?.strip_prefix('/')
    }
}

/// A state tree, from which the compiler reads. Paths use `/`, are relative, and have no `.` or
/// `..` parts.
pub trait Tree: Sync {
    /// The content of a file; `None` if it does not exist.
    fn read(&self, path: &str) -> Option<Vec<u8>>;

    /// All paths, sorted.
    fn list(&self) -> Vec<String>;

    /// Permission bits of a file, for `file.recurse` with `file_mode: keep`.
    fn mode(&self, path: &str) -> Option<u32> {
        let _ = path;
        None
    }
}

/// SHA-256 of a content, in hexadecimal: the name of a blob.
#[must_use]
pub fn sha256(content: &[u8]) -> String {
    Sha256::digest(content)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Tests whether a path is safe to look up: relative, without empty, `.` and `..` parts, without
/// NUL and backslash.
#[must_use]
pub fn is_plain_path(path: &str) -> bool {
    !path.is_empty()
        && !path.contains(['\0', '\\'])
        && path
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..")
}

/// A stack of directories, of which the first that has a file wins. A directory may be mounted at a
/// prefix (`custom`). The last layer may be a tree in memory.
#[derive(Debug, Clone, Default)]
pub struct DirTree {
    roots: Vec<(String, PathBuf)>,
    /// The files of all directories, if they are not read from the disk any more.
    read: Option<Arc<MemoryTree>>,
    below: Arc<MemoryTree>,
}

impl DirTree {
    /// A tree without roots.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory below those already added.
    #[must_use]
    pub fn root(mut self, directory: impl Into<PathBuf>) -> Self {
        self.roots.push((String::new(), directory.into()));
        self
    }

    /// Adds a directory whose files appear below `prefix/`.
    #[must_use]
    pub fn mount(mut self, prefix: &str, directory: impl Into<PathBuf>) -> Self {
        self.roots
            .push((format!("{}/", prefix.trim_matches('/')), directory.into()));
        self
    }

    /// Adds the state tree of the bundle in a directory, with the bundle's charts below `charts`.
    #[must_use]
    pub fn bundle(self, directory: &Path) -> Self {
        self.mount(CHARTS, directory.join(CHARTS))
            .root(directory.join(STATES))
    }

    /// Adds a tree in memory (of a bundle, for example) below all directories.
    #[must_use]
    pub fn with_fallback(mut self, tree: impl Into<Arc<MemoryTree>>) -> Self {
        self.below = tree.into();
        self
    }

    /// The same tree with files that were read before in place of those of its directories; later
    /// changes of the disk have no effect.
    #[must_use]
    pub fn with_read(&self, files: &Arc<MemoryTree>) -> Self {
        Self {
            read: Some(Arc::clone(files)),
            ..self.clone()
        }
    }

    /// Paths of the files of all directories.
    fn names(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (prefix, directory) in &self.roots {
            walk(directory, prefix, 0, &mut found);
        }
        found
    }

    /// The file on disk behind a path of the tree. Links that lead out of their root are not
    /// followed.
    #[must_use]
    pub fn locate(&self, path: &str) -> Option<PathBuf> {
        if !is_plain_path(path) {
            return None;
        }
        self.roots.iter().find_map(|(prefix, directory)| {
            let file = directory.join(path.strip_prefix(prefix.as_str())?);
            let real = file.canonicalize().ok()?;
            let inside = real.starts_with(directory.canonicalize().ok()?);
            (inside
                && real
                    .metadata()
                    .is_ok_and(|data| data.is_file() && data.len() <= MAX_FILE))
            .then_some(real)
        })
    }
}

impl DirTree {
    /// The file on disk behind a path of the tree, if it is in a mounted directory and not in a
    /// root. Messages name it by this path, which its owner knows.
    #[must_use]
    pub fn mounted_file(&self, path: &str) -> Option<PathBuf> {
        let real = self.locate(path)?;
        let mounts = self.roots.iter().filter(|(prefix, _)| !prefix.is_empty());
        let holds =
            |directory: &PathBuf| directory.canonicalize().is_ok_and(|d| real.starts_with(d));
        mounts
            .map(|(_, directory)| directory)
            .any(holds)
            .then_some(real)
    }

    /// Replaces paths of mounted files in problems by their paths on disk.
    #[must_use]
    pub fn with_disk_paths(&self, mut problems: Vec<Problem>) -> Vec<Problem> {
        for problem in &mut problems {
            if let Some(real) = self.mounted_file(&problem.file) {
                problem.file = real.display().to_string();
            }
        }
        problems
    }
}

impl Tree for DirTree {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        if let Some(read) = &self.read {
            return read.read(path).or_else(|| self.below.read(path));
        }
        match self.locate(path) {
            Some(real) => std::fs::read(real).ok(),
            None => self.below.read(path),
        }
    }

    fn list(&self) -> Vec<String> {
        let mut found = match &self.read {
            Some(read) => read.list(),
            None => self.names(),
        };
        found.extend(self.below.list());
        found.sort();
        found.dedup();
        found
    }

    fn mode(&self, path: &str) -> Option<u32> {
        use std::os::unix::fs::PermissionsExt;
        if let Some(read) = &self.read {
            return read.mode(path).or_else(|| self.below.mode(path));
        }
        match self.locate(path) {
            Some(real) => Some(real.metadata().ok()?.permissions().mode() & 0o7777),
            None => self.below.mode(path),
        }
    }
}

/// Lists files below a directory; links to directories are not entered.
fn walk(directory: &Path, prefix: &str, depth: usize, found: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() {
            if depth < DEEPEST && name != ".git" {
                walk(&entry.path(), &format!("{prefix}{name}/"), depth + 1, found);
            }
        } else {
            found.push(format!("{prefix}{name}"));
        }
    }
}

/// A tree in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryTree {
    files: BTreeMap<String, Vec<u8>>,
    modes: BTreeMap<String, u32>,
}

impl MemoryTree {
    /// An empty tree.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a file.
    #[must_use]
    pub fn with(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.insert(path, content.into(), None);
        self
    }

    /// Adds or replaces a file with its permission bits, if they are known.
    pub fn insert(&mut self, path: &str, content: Vec<u8>, mode: Option<u32>) {
        self.files.insert(path.to_owned(), content);
        match mode {
            Some(mode) => self.modes.insert(path.to_owned(), mode),
            None => self.modes.remove(path),
        };
    }
}

impl Tree for MemoryTree {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.files.get(path).cloned()
    }

    fn list(&self) -> Vec<String> {
        self.files.keys().cloned().collect()
    }

    fn mode(&self, path: &str) -> Option<u32> {
        self.modes.get(path).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_have_the_same_path_in_bundle_and_tree() {
        for (bundle, tree) in [
            ("states/base/etcd.sls", "base/etcd.sls"),
            ("charts/web.yaml", "charts/web.yaml"),
            ("states/charts.sls", "charts.sls"),
        ] {
            assert_eq!(
                (from_bundle_path(bundle), to_bundle_path(tree).as_str()),
                (Some(tree), bundle)
            );
        }
        for path in ["bin/ctl", "states", "charts", "statesman/x"] {
            assert_eq!(from_bundle_path(path), None, "{path}");
        }
    }

    #[test]
    fn earlier_roots_win_and_no_file_outside_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path();
        let (one, two, own) = (base.join("one"), base.join("two"), base.join("own"));
        for directory in [&one, &two.join("sub"), &own] {
            std::fs::create_dir_all(directory).unwrap();
        }
        std::fs::write(one.join("a.sls"), "one").unwrap();
        std::fs::write(two.join("a.sls"), "two").unwrap();
        std::fs::write(two.join("sub/b.sls"), "b").unwrap();
        std::fs::write(own.join("c.sls"), "c").unwrap();
        std::fs::write(base.join("secret"), "x").unwrap();
        std::os::unix::fs::symlink(base.join("secret"), one.join("link")).unwrap();
        let tree = DirTree::new().mount("custom", &own).root(&one).root(&two);
        assert_eq!(tree.read("a.sls").unwrap(), b"one");
        assert_eq!(tree.read("custom/c.sls").unwrap(), b"c");
        assert_eq!(tree.list(), ["a.sls", "custom/c.sls", "link", "sub/b.sls"]);
        for path in [
            "link",
            "../secret",
            "/etc/hostname",
            "sub/../../secret",
            "sub//b.sls",
            "",
        ] {
            assert_eq!(tree.read(path), None, "{path}");
        }
        let of = |path: &str| {
            tree.with_disk_paths(vec![Problem::in_file(path, "wrong")])[0]
                .file
                .clone()
        };
        let on_disk = own.join("c.sls").canonicalize().unwrap();
        assert_eq!(
            of("custom/c.sls"),
            on_disk.display().to_string(),
            "its owner knows it by this name"
        );
        assert_eq!(of("a.sls"), "a.sls");

        let mut read = MemoryTree::new()
            .with("a.sls", "three")
            .with("custom/c.sls", "four");
        read.insert("d.sls", b"d".to_vec(), Some(0o755));
        let tree = DirTree::new()
            .mount("custom", &own)
            .root(&two)
            .with_fallback(read);
        assert_eq!(tree.read("a.sls").unwrap(), b"two");
        assert_eq!(tree.read("custom/c.sls").unwrap(), b"c");
        assert_eq!(
            (tree.read("d.sls").unwrap().as_slice(), tree.mode("d.sls")),
            (b"d".as_slice(), Some(0o755))
        );
        assert_eq!(tree.list(), ["a.sls", "custom/c.sls", "d.sls", "sub/b.sls"]);

        let frozen = tree.with_read(&Arc::new(tree.read_directories().unwrap()));
        std::fs::write(own.join("c.sls"), "changed").unwrap();
        std::fs::write(own.join("e.sls"), "new").unwrap();
        std::fs::remove_file(two.join("a.sls")).unwrap();
        assert_eq!(frozen.read("custom/c.sls").unwrap(), b"c");
        assert_eq!(frozen.read("a.sls").unwrap(), b"two");
        assert_eq!(frozen.read("d.sls").unwrap(), b"d");
        assert_eq!(
            frozen.list(),
            ["a.sls", "custom/c.sls", "d.sls", "sub/b.sls"]
        );
        assert_eq!(tree.read("custom/c.sls").unwrap(), b"changed");
    }
}
