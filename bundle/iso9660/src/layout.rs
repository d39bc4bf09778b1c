//! The positions of everything in an image. They depend only on the names, modes and sizes of the
//! files.

use std::path::Path;

use halite_durable::Error;

use super::directory::Listing;
use super::names::{Name, View};
use super::tree::{Child, Tree};
use super::{FIRST_DESCRIPTOR, SECTOR, directory, names, sectors, volume};

/// The largest number of directories: a path table has two bytes for the number of one (ECMA-119
/// 9.4.4).
const MOST_DIRECTORIES: usize = u16::MAX as usize;

/// The number of descriptors: the primary view's, the Joliet view's, and the terminator.
const DESCRIPTORS: u64 = 3;

/// The position of a run of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
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
    pub listed: Vec<Vec<Listed>>,
    /// Each directory's own identifier, by index.
    pub identifiers: Vec<Vec<u8>>,
    /// The directories in the order of the path table (ECMA-119 6.9.1), which is also that of their
    /// positions.
    pub order: Vec<usize>,
    /// The position of each directory's records, by index. Their continuations are in the sectors
    /// after them.
    pub places: Vec<Place>,
    /// The path table with the less significant bytes first.
    pub little: Place,
    /// The path table with the more significant bytes first.
    pub big: Place,
}

/// An entry of a directory, with its identifier in a view.
pub struct Listed {
    /// The file identifier.
    pub identifier: Vec<u8>,
    /// Its name.
    pub name: String,
    /// The file or directory.
    pub child: Child,
}

/// The positions of everything in an image.
pub struct Layout {
    /// The primary view.
    pub primary: Hierarchy,
    /// The Joliet view.
    pub joliet: Hierarchy,
    /// The first sector of each file's content, by index; 0 for an empty file.
    pub contents: Vec<u32>,
    /// Number of sectors of the image.
    pub sectors: u32,
}

impl Layout {
    /// Computes the layout of an image.
    pub fn new(out: &Path, tree: &Tree) -> Result<Self, Error> {
        if tree.directories.len() > MOST_DIRECTORIES {
            let count = tree.directories.len();
            return Err(Error::content(
                out,
                format!("{count} directories are more than ISO 9660 can hold"),
            ));
        }
        let mut next = Allocation {
            out,
            next: FIRST_DESCRIPTOR + DESCRIPTORS,
        };
        let mut primary = Hierarchy::new(View::Primary, tree);
        let mut joliet = Hierarchy::new(View::Joliet, tree);
        for hierarchy in [&mut primary, &mut joliet] {
            let size = volume::path_table_size(hierarchy);
            hierarchy.little = next.take(size, size)?;
            hierarchy.big = next.take(size, size)?;
        }
        for hierarchy in [&mut primary, &mut joliet] {
            for at in 0..hierarchy.order.len() {
                let index = hierarchy.order[at];
                let Listing { records, beside } = directory::listing(tree, hierarchy, index, &[]);
                let (records, beside) = (records.len() as u64, beside.len() as u64);
                hierarchy.places[index] = next.take(records, records + sectors(beside) * SECTOR)?;
            }
        }
        let mut contents = Vec::with_capacity(tree.files.len());
        for file in &tree.files {
            contents.push(if file.size == 0 {
                0
            } else {
                next.take(0, file.size)?.sector
            });
        }
        let sectors = next.take(0, 0)?.sector;
        Ok(Self {
            primary,
            joliet,
            contents,
            sectors,
        })
    }
}

impl Hierarchy {
    fn new(view: View, tree: &Tree) -> Self {
        let count = tree.directories.len();
        let mut identifiers = vec![vec![0]; count];
        let mut listed = Vec::with_capacity(count);
        for directory in &tree.directories {
            let names = names::names(view, directory);
            let mut inside: Vec<(Vec<u8>, Listed)> = names
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
                            Listed {
                                identifier,
                                name: name.clone(),
                                child: *child,
                            },
                        )
                    },
                )
                .collect();
            inside.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            let inside: Vec<Listed> = inside.into_iter().map(|(_, listed)| listed).collect();
            for Listed {
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
        let none = Place::default();
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
fn order(listed: &[Vec<Listed>]) -> Vec<usize> {
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

/// Allocates sectors, one run after the other.
struct Allocation<'a> {
    out: &'a Path,
    next: u64,
}

impl Allocation<'_> {
    /// Allocates `whole` bytes, of which the first `size` are the returned place.
    fn take(&mut self, size: u64, whole: u64) -> Result<Place, Error> {
        let place = u32::try_from(self.next).ok().zip(u32::try_from(size).ok());
        let (sector, size) = place.ok_or_else(|| {
            Error::content(
                self.out,
                "all of it is more than ISO 9660 can hold (8 TiB, 4 GiB in a directory)",
            )
        })?;
        self.next += sectors(whole);
        Ok(Place { sector, size })
    }
}
