//! Renames a tree of the fake host's disk.

use std::collections::BTreeMap;

use halite_minion::host::{HostError, HostResult};

use super::Disk;

impl Disk {
    /// Renames a tree within its directory; two primitives.
    ///
    /// # Errors
    /// A crash, nothing at `from`, or an entry at `to`.
    pub fn rename(&mut self, from: &str, to: &str) -> HostResult<()> {
        let (from, to) = (self.physical(from), self.physical(to));
        if self.node(&from).is_none() || self.node(&to).is_some() {
            return Err(HostError::refused(format!("cannot rename {from} to {to}")));
        }
        self.tick()?;
        moved(&mut self.names, &from, &to);
        self.tick()?;
        moved(&mut self.durable_names, &from, &to);
        Ok(())
    }
}

/// Moves the names of a tree.
fn moved(names: &mut BTreeMap<String, u64>, from: &str, to: &str) {
    let is_moved = |name: &str| {
        name.strip_prefix(from)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let (tree, rest): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(names)
        .into_iter()
        .partition(|(name, _)| is_moved(name));
    *names = rest;
    let renamed = tree.into_iter().map(|(name, inode)| {
        let below = name.get(from.len()..).unwrap_or_default();
        (format!("{to}{below}"), inode)
    });
    names.extend(renamed);
}
