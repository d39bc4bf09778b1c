//! Mounts on the fake host's disk: the files of a mounted file system hide those of the directory.

use std::collections::BTreeMap;

use super::{Disk, Node};

/// The names under a mount point, as programs see them and as they are durable.
#[derive(Debug, Clone, Default)]
pub struct Covered {
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
}

impl Disk {
    /// Removes a tree durably and without counting: for damaging a host in a test.
    pub fn take(&mut self, path: &str) {
        let path = self.physical(path);
        taken(&mut self.names, &path);
        taken(&mut self.durable_names, &path);
    }

    /// A copy of the entry at a path, links followed, and of everything below it, by their paths
    /// below it.
    pub(crate) fn tree(&self, path: &str) -> BTreeMap<String, Node> {
        let top = self.follow(path);
        let below = format!("{top}/");
        let is_within = |name: &str| name == top || name.starts_with(&below);
        let names = self.names.iter().filter(|(name, _)| is_within(name));
        names
            .filter_map(|(name, inode)| {
                let node = self.inodes.get(inode)?;
                Some((name.get(top.len()..)?.to_owned(), node.clone()))
            })
            .collect()
    }

    /// Hides a directory and its files under a file system with `files`, by their paths in it.
    pub(crate) fn cover(&mut self, path: &str, files: &BTreeMap<String, Node>) -> Covered {
        let covered = Covered {
            names: taken(&mut self.names, path),
            durable_names: taken(&mut self.durable_names, path),
        };
        self.put(path, Node::directory());
        for (file, node) in files {
            self.put(&format!("{path}{file}"), node.clone());
        }
        covered
    }

    /// Shows the hidden files again.
    pub(crate) fn uncover(&mut self, path: &str, covered: Covered) {
        self.take(path);
        self.names.extend(covered.names);
        self.durable_names.extend(covered.durable_names);
    }
}

/// Takes the names of a tree.
fn taken(names: &mut BTreeMap<String, u64>, path: &str) -> BTreeMap<String, u64> {
    let below = format!("{path}/");
    let (taken, kept) = std::mem::take(names)
        .into_iter()
        .partition(|(name, _)| name == path || name.starts_with(&below));
    *names = kept;
    taken
}
