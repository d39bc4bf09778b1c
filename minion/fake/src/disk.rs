//! The fake host's disk: its entries as programs see them, and as they would be after a power cut.
//!
//! Content belongs to inodes, names belong to directories, and each becomes durable only by its own
//! fsync, as POSIX promises and no more. Every primitive is counted, so that a test can cut the
//! power at each of them.

mod cover;
mod rename;

use std::collections::{BTreeMap, HashMap};

use halite_minion::host::effect::Meta;
use halite_minion::host::{FileKind, HostError, HostResult, Stat};

pub use cover::Covered;

/// Text of the error after a crash; see [`Disk::crash_after`].
pub const CRASHED: &str = "the host has crashed";

/// A file, directory or link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Kind.
    pub kind: FileKind,
    /// Content of a file, target of a link.
    pub content: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Owner's name.
    pub user: String,
    /// Group's name.
    pub group: String,
}

/// Names and inodes, each as programs see them and as they are durable.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    inodes: HashMap<u64, Node>,
    durable_inodes: HashMap<u64, Node>,
    next: u64,
    writes: u64,
    crash_at: Option<u64>,
    crashed: bool,
}

impl Disk {
    /// Number of primitive writes so far.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Cuts the power after `n` more primitive writes: the next one and all later ones fail until
    /// [`Disk::reboot`].
    pub fn crash_after(&mut self, n: u64) {
        self.crash_at = Some(self.writes + n);
    }

    /// Returns whether the power is out.
    #[must_use]
    pub fn crashed(&self) -> bool {
        self.crashed
    }

    /// Cuts the power, if that has not happened yet, and restarts: only fsynced data are left.
    pub fn reboot(&mut self) {
        self.crashed = false;
        self.crash_at = None;
        let durable = &self.durable_inodes;
        self.durable_names
            .retain(|_, inode| durable.contains_key(inode));
        let kept = self.durable_names.clone();
        self.durable_names.retain(|path, _| {
            let mut at = path.as_str();
            while let Some(parent) = parent(at) {
                if parent != "/" && !kept.contains_key(parent) {
                    return false;
                }
                at = parent;
            }
            true
        });
        self.names = self.durable_names.clone();
        self.inodes = self.durable_inodes.clone();
    }

    /// Counts one primitive write; an error once the power is out.
    ///
    /// # Errors
    /// [`CRASHED`].
    pub fn tick(&mut self) -> HostResult<()> {
        if self.crashed || self.crash_at.is_some_and(|at| self.writes >= at) {
            self.crashed = true;
            return Err(HostError::refused(CRASHED));
        }
        self.writes += 1;
        Ok(())
    }

    /// The entry at `path`; the final component is not followed.
    #[must_use]
    pub fn node(&self, path: &str) -> Option<&Node> {
        self.inodes.get(self.names.get(&self.physical(path))?)
    }

    /// `path` with links in it and at its end followed; the path itself if a link leads nowhere.
    #[must_use]
    pub fn follow(&self, path: &str) -> String {
        let mut at = self.physical(path);
        for _ in 0..16 {
            match self.names.get(&at).and_then(|inode| self.inodes.get(inode)) {
                Some(node) if node.kind == FileKind::Symlink => {
                    let target = String::from_utf8_lossy(&node.content).into_owned();
                    let joined = if target.starts_with('/') {
                        target
                    } else {
                        format!("{}/{target}", parent(&at).unwrap_or("/"))
                    };
                    at = self.physical(&joined);
                }
                _ => break,
            }
        }
        at
    }

    /// The path with `.`, `..` and linked directories resolved, the final component unchanged.
    fn physical(&self, path: &str) -> String {
        let mut parts: Vec<&str> = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop();
                }
                other => parts.push(other),
            }
        }
        let clean = format!("/{}", parts.join("/"));
        match parent(&clean) {
            Some(directory) if directory != "/" => {
                let resolved = self.follow(directory);
                let name = clean.rsplit('/').next().unwrap_or_default();
                format!("{}/{name}", resolved.trim_end_matches('/'))
            }
            _ => clean,
        }
    }

    /// Like [`halite_minion::host::Host::stat`].
    #[must_use]
    pub fn stat(&self, path: &str) -> Option<Stat> {
        let node = self.node(path)?;
        let target = (node.kind == FileKind::Symlink)
            .then(|| String::from_utf8_lossy(&node.content).into_owned());
        Some(Stat {
            kind: node.kind,
            mode: node.mode,
            user: node.user.clone(),
            group: node.group.clone(),
            size: node.content.len() as u64,
            target,
        })
    }

    /// A file's content, links followed.
    #[must_use]
    pub fn read(&self, path: &str) -> Option<&[u8]> {
        let node = self.node(&self.follow(path))?;
        (node.kind == FileKind::File).then_some(node.content.as_slice())
    }

    /// Names in a directory, sorted.
    #[must_use]
    pub fn list(&self, path: &str) -> Vec<String> {
        let directory = self.follow(path);
        let prefix = if directory == "/" {
            directory
        } else {
            format!("{directory}/")
        };
        self.names
            .range(prefix.clone()..)
            .take_while(|(name, _)| name.starts_with(&prefix))
            .filter_map(|(name, _)| name.get(prefix.len()..))
            .filter(|name| !name.is_empty() && !name.contains('/'))
            .map(str::to_owned)
            .collect()
    }

    /// Puts a durable node there without counting, its parents included: for setting up a test.
    pub fn put(&mut self, path: &str, node: Node) {
        if let Some(directory) = parent(path)
            && directory != "/"
            && self.node(&self.follow(directory)).is_none()
        {
            self.put(directory, Node::directory());
        }
        let path = self.physical(path);
        let inode = self.inode(node.clone());
        self.durable_inodes.insert(inode, node);
        self.names.insert(path.clone(), inode);
        self.durable_names.insert(path, inode);
    }

    fn inode(&mut self, node: Node) -> u64 {
        self.next += 1;
        self.inodes.insert(self.next, node);
        self.next
    }

    fn need_parent(&self, path: &str) -> HostResult<()> {
        match parent(path) {
            None | Some("/") => Ok(()),
            Some(directory) => match self.node(directory) {
                Some(node) if node.kind == FileKind::Directory => Ok(()),
                Some(_) => Err(HostError::refused(format!(
                    "{directory} is not a directory"
                ))),
                None => Err(HostError::refused(format!(
                    "{path}: the directory {directory} does not exist"
                ))),
            },
        }
    }

    /// The same atomic write as the real host's: temporary file, content, owner and mode, fsync,
    /// rename, fsync of the directory; six primitives.
    ///
    /// # Errors
    /// A crash, a missing directory, or a directory at `path`.
    pub fn write(&mut self, path: &str, content: &[u8], meta: &Meta) -> HostResult<()> {
        let path = self.follow(path);
        self.need_parent(&path)?;
        let old = self.node(&path).cloned();
        if old
            .as_ref()
            .is_some_and(|node| node.kind == FileKind::Directory)
        {
            return Err(HostError::refused(format!("{path} is a directory")));
        }
        no_loop(&path, old.as_ref())?;
        let mut node = old.unwrap_or_else(|| Node::file(b""));
        node.kind = FileKind::File;
        node.content = Vec::new();
        let temporary = format!("{path}.halite-new");
        self.tick()?;
        let inode = self.inode(node.clone());
        self.names.insert(temporary.clone(), inode);
        self.tick()?;
        node.content = content.to_vec();
        self.inodes.insert(inode, node.clone());
        self.tick()?;
        node.apply(meta);
        self.inodes.insert(inode, node.clone());
        self.tick()?;
        self.durable_inodes.insert(inode, node);
        self.tick()?;
        self.names.remove(&temporary);
        self.names.insert(path.clone(), inode);
        self.tick()?;
        self.sync_directory(&path);
        Ok(())
    }

    /// Makes a directory; two primitives.
    ///
    /// # Errors
    /// A crash, or a missing parent.
    pub fn mkdir(&mut self, path: &str, meta: &Meta) -> HostResult<()> {
        let path = self.physical(path);
        self.need_parent(&path)?;
        if self
            .node(&self.follow(&path))
            .is_some_and(|node| node.kind == FileKind::Directory)
        {
            return self.set_meta(&path, meta);
        }
        if self.names.contains_key(&path) {
            return Err(HostError::refused(format!(
                "{path} exists and is not a directory"
            )));
        }
        let mut node = Node::directory();
        node.apply(meta);
        self.tick()?;
        let inode = self.inode(node.clone());
        self.names.insert(path.clone(), inode);
        self.tick()?;
        self.durable_inodes.insert(inode, node);
        self.sync_directory(&path);
        Ok(())
    }

    /// Makes or replaces a link; three primitives.
    ///
    /// # Errors
    /// A crash, a missing parent, or a directory at `path`.
    pub fn symlink(&mut self, path: &str, target: &str) -> HostResult<()> {
        let path = self.physical(path);
        self.need_parent(&path)?;
        if self
            .node(&path)
            .is_some_and(|node| node.kind == FileKind::Directory)
        {
            return Err(HostError::refused(format!("{path} is a directory")));
        }
        let temporary = format!("{path}.halite-new");
        self.tick()?;
        let node = Node {
            kind: FileKind::Symlink,
            mode: 0o777,
            ..Node::file(target.as_bytes())
        };
        let inode = self.inode(node.clone());
        self.names.insert(temporary.clone(), inode);
        self.tick()?;
        self.names.remove(&temporary);
        self.names.insert(path.clone(), inode);
        self.tick()?;
        self.durable_inodes.insert(inode, node);
        self.sync_directory(&path);
        Ok(())
    }

    /// Changes owner, group or mode, and makes that durable; two primitives.
    ///
    /// # Errors
    /// A crash, or nothing at `path`.
    pub fn set_meta(&mut self, path: &str, meta: &Meta) -> HostResult<()> {
        let path = self.follow(path);
        let Some(inode) = self.names.get(&path).copied() else {
            return Err(HostError::refused(format!("{path} does not exist")));
        };
        no_loop(&path, self.inodes.get(&inode))?;
        self.tick()?;
        if let Some(node) = self.inodes.get_mut(&inode) {
            // As the kernel does, for root too.
            if node.kind == FileKind::File && (meta.user.is_some() || meta.group.is_some()) {
                node.mode &= !0o6000;
            }
            node.apply(meta);
            let node = node.clone();
            self.tick()?;
            self.durable_inodes.insert(inode, node);
        }
        Ok(())
    }

    /// Removes a tree, children first; one primitive for each name, one for the directory.
    ///
    /// # Errors
    /// A crash.
    pub fn remove(&mut self, path: &str) -> HostResult<()> {
        let path = self.physical(path);
        let below = format!("{path}/");
        let mut doomed: Vec<String> = self
            .names
            .keys()
            .filter(|name| **name == path || name.starts_with(&below))
            .cloned()
            .collect();
        doomed.sort_by_key(|name| std::cmp::Reverse(name.len()));
        for name in &doomed {
            self.tick()?;
            self.names.remove(name);
        }
        self.tick()?;
        self.sync_directory(&path);
        if !self.names.contains_key(&path) {
            self.durable_names
                .retain(|name, _| *name != path && !name.starts_with(&below));
        }
        Ok(())
    }

    /// fsync of the directory that holds `path`: all its current names become durable.
    fn sync_directory(&mut self, path: &str) {
        let prefix = match parent(path) {
            None | Some("/") => "/".to_owned(),
            Some(directory) => format!("{directory}/"),
        };
        let inside = |name: &str| {
            name.strip_prefix(&prefix)
                .is_some_and(|rest| !rest.contains('/'))
        };
        self.durable_names.retain(|name, _| !inside(name));
        for (name, inode) in self.names.iter().filter(|(name, _)| inside(name)) {
            self.durable_names.insert(name.clone(), *inode);
        }
    }
}

impl Node {
    /// A file of root's with mode 0644.
    #[must_use]
    pub fn file(content: &[u8]) -> Self {
        let root = || "root".to_owned();
        Self {
            kind: FileKind::File,
            content: content.to_vec(),
            mode: 0o644,
            user: root(),
            group: root(),
        }
    }

    /// A directory of root's with mode 0755.
    #[must_use]
    pub fn directory() -> Self {
        Self {
            kind: FileKind::Directory,
            mode: 0o755,
            ..Self::file(b"")
        }
    }

    fn apply(&mut self, meta: &Meta) {
        if let Some(mode) = meta.mode {
            self.mode = mode;
        }
        if let Some(user) = &meta.user {
            self.user.clone_from(user);
        }
        if let Some(group) = &meta.group {
            self.group.clone_from(group);
        }
    }
}

/// Refuses an entry that is still a link after all links were followed: a loop (ELOOP).
fn no_loop(path: &str, node: Option<&Node>) -> HostResult<()> {
    match node {
        Some(node) if node.kind == FileKind::Symlink => Err(HostError::refused(format!(
            "{path}: too many levels of symbolic links"
        ))),
        _ => Ok(()),
    }
}

/// The directory that holds `path`; `None` for the root.
fn parent(path: &str) -> Option<&str> {
    let at = path.rfind('/')?;
    match (at, path.len()) {
        (0, 1) => None,
        (0, _) => Some("/"),
        _ => path.get(..at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_whole_or_absent_after_a_power_cut_at_any_point() {
        for point in 0..7 {
            let mut disk = Disk::default();
            disk.put("/etc/a", Node::file(b"old"));
            disk.crash_after(point);
            let done = disk.write("/etc/a", b"new", &Meta::default()).is_ok();
            disk.reboot();
            let found = disk.read("/etc/a").map(<[u8]>::to_vec).unwrap();
            assert!(
                found == b"old" || found == b"new",
                "torn after {point} writes: {found:?}"
            );
            assert!(!done || found == b"new", "a finished write was lost");
        }
    }

    #[test]
    fn unsynced_changes_are_lost() {
        let mut disk = Disk::default();
        disk.crash_after(1);
        assert!(disk.mkdir("/srv", &Meta::default()).is_err());
        disk.reboot();
        assert_eq!(disk.stat("/srv"), None);
    }

    #[test]
    fn links_are_followed_within_a_path() {
        let mut disk = Disk::default();
        disk.put("/usr/lib/x", Node::file(b"1"));
        disk.symlink("/lib", "usr/lib").unwrap();
        assert_eq!(disk.read("/lib/x"), Some(b"1".as_slice()));
        assert_eq!(disk.list("/lib"), ["x"]);
        disk.remove("/lib").unwrap();
        assert_eq!(disk.read("/usr/lib/x"), Some(b"1".as_slice()));
    }
}
