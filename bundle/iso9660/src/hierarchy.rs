//! One view of an image: its names in order, and the places of its directories.

use super::names;
use super::names::{Name, View};
use super::tree::{Child, Tree};

/// Position of a run of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// The first sector.
    pub sector: u32,
    /// Number of bytes.
    pub size: u32,
}

/// A view with all its names in order, and the positions of its directories.
pub struct Hierarchy {
    /// The kind of the view.
    pub view: View,
    /// The entries of each directory, in the order of its records; by the directory's index in the
    /// tree.
    pub listed: Vec<Vec<DirectoryEntry>>,
    /// Each directory's own identifier, by index.
    pub identifiers: Vec<Vec<u8>>,
    /// The directories in the order of the path table (ECMA-119 6.9.1), which is also the order of
    /// their positions.
    pub order: Vec<usize>,
    /// Each directory's records, by index. Their continuations are in the following sectors.
    pub places: Vec<Extent>,
    /// The path table with the less significant bytes first.
    pub little: Extent,
    /// The path table with the more significant bytes first.
    pub big: Extent,
}

/// An entry of a directory, with its identifier in a view.
pub struct DirectoryEntry {
    /// The file identifier.
    pub identifier: Vec<u8>,
    /// Its name.
    pub name: String,
    /// The file or directory.
    pub child: Child,
}

impl Hierarchy {
    pub fn new(view: View, tree: &Tree) -> Self {
        let count = tree.directories.len();
        let mut identifiers = vec![vec![0]; count];
        let mut listed = Vec::with_capacity(count);
        for directory in &tree.directories {
            let names = names::names(view, directory);
            let mut inside: Vec<(Vec<u8>, DirectoryEntry)> = names
                .into_iter()
                .zip(&directory.children)
                .map(
                    |(
                        Name {
                            identifier, key, ..
                        },
                        (name, child),
                    )| {
                        (
                            key,
                            DirectoryEntry {
                                identifier,
                                name: name.clone(),
                                child: *child,
                            },
                        )
                    },
                )
                .collect();
            inside.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            let inside: Vec<DirectoryEntry> =
                inside.into_iter().map(|(_, listed)| listed).collect();
            for DirectoryEntry {
                identifier, child, ..
            } in &inside
            {
                if let Child::Directory(index) = child {
                    identifiers[*index].clone_from(identifier);
                }
            }
            listed.push(inside);
        }
        let order = order(&listed);
        let none = Extent::default();
        Self {
            view,
            listed,
            identifiers,
            order,
            places: vec![none; count],
            little: none,
            big: none,
        }
    }
}

/// The directories level by level; within a level, ordered by the parent directory and then by
/// name.
fn order(listed: &[Vec<DirectoryEntry>]) -> Vec<usize> {
    let mut order = vec![0];
    let mut at = 0;
    while let Some(index) = order.get(at).copied() {
        order.extend(
            listed[index]
                .iter()
                .filter_map(|listed| match listed.child {
                    Child::Directory(index) => Some(index),
                    Child::File(_) => None,
                }),
        );
        at += 1;
    }
    order
}

/// Size of a path table in bytes.
pub fn path_table_size(hierarchy: &Hierarchy) -> u64 {
    hierarchy
        .identifiers
        .iter()
        .map(|identifier| (8 + identifier.len().next_multiple_of(2)) as u64)
        .sum()
}
