//! The positions of everything in an image. They depend only on the names, modes and sizes of the
//! files.

use std::path::Path;

use halite_durable::Error;

use super::directory::Listing;
use super::hierarchy::{Extent, Hierarchy, path_table_size};
use super::names::View;
use super::tree::Tree;
use super::{FIRST_DESCRIPTOR, SECTOR, directory, sectors};

/// The largest number of directories: a path table has two bytes for the number of one (ECMA-119
/// 9.4.4).
const MOST_DIRECTORIES: usize = u16::MAX as usize;

/// The number of descriptors: the primary view's, the Joliet view's, and the terminator.
const DESCRIPTORS: u64 = 3;

/// Positions of all parts of an image.
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
            let size = path_table_size(hierarchy);
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

/// Allocates sectors, one run after the other.
struct Allocation<'a> {
    out: &'a Path,
    next: u64,
}

impl Allocation<'_> {
    /// Allocates `whole` bytes, of which the first `size` are the returned place.
    fn take(&mut self, size: u64, whole: u64) -> Result<Extent, Error> {
        let place = u32::try_from(self.next).ok().zip(u32::try_from(size).ok());
        let (sector, size) = place.ok_or_else(|| {
            Error::content(
                self.out,
                "the content is more than ISO 9660 can hold (8 TiB, 4 GiB in a directory)",
            )
        })?;
        self.next += sectors(whole);
        Ok(Extent { sector, size })
    }
}
