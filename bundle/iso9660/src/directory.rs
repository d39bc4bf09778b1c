//! The records of one directory in one view, and the continuations of records that are too long.

use jiff::Timestamp;

use super::hierarchy::{DirectoryEntry, Extent, Hierarchy};
use super::names::View;
use super::records::DirectoryRecord;
use super::tree::{Child, Tree};
use super::{
    BLOCK, FLAG_CONTINUES, FLAG_DIRECTORY, SECTION, TYPE_DIRECTORY, TYPE_FILE, records, sectors,
};

/// The bytes of a directory.
#[derive(Default)]
pub struct Listing {
    /// Its records, padded to whole sectors.
    pub records: Vec<u8>,
    /// The continuations, which are written to the sectors after the records.
    pub beside: Vec<u8>,
}

/// Mode of every directory.
const DIRECTORY_MODE: u32 = TYPE_DIRECTORY | 0o755;

/// Makes the bytes of a directory. Their lengths are independent of all positions, so the layout
/// can use them before the positions are known: `contents` is then empty, and the written positions
/// are meaningless.
pub fn listing(tree: &Tree, hierarchy: &Hierarchy, index: usize, contents: &[u32]) -> Listing {
    let place = hierarchy.places[index];
    let mut writer = Writer {
        rock_ridge: hierarchy.view == View::Primary,
        beside_at: place
            .sector
            .wrapping_add(u32::try_from(sectors(u64::from(place.size))).unwrap_or(0)),
        date: tree.date,
        listing: Listing::default(),
    };
    let parent = tree.directories[index].parent;
    for (which, identifier) in [(index, &[0]), (parent, &[1])] {
        let name = Name::Dots {
            first: index == 0 && identifier == &[0],
        };
        writer.directory(tree, hierarchy, which, identifier, name);
    }
    for DirectoryEntry {
        identifier,
        name,
        child,
    } in &hierarchy.listed[index]
    {
        match *child {
            Child::Directory(index) => {
                writer.directory(tree, hierarchy, index, identifier, Name::Of(name));
            }
            Child::File(index) => {
                let sector = contents.get(index).copied().unwrap_or(0);
                writer.file(tree, index, sector, identifier, name);
            }
        }
    }
    writer.fill();
    writer.listing
}

/// The Rock Ridge name of a record.
#[derive(Clone, Copy)]
enum Name<'a> {
    /// No name: the record is `.` or `..`. The `.` of the root announces Rock Ridge.
    Dots { first: bool },
    /// A file or directory with this name.
    Of(&'a str),
}

struct Writer {
    rock_ridge: bool,
    /// The sector of the continuations.
    beside_at: u32,
    date: Timestamp,
    listing: Listing,
}

impl Writer {
    fn directory(
        &mut self,
        tree: &Tree,
        view: &Hierarchy,
        index: usize,
        identifier: &[u8],
        name: Name<'_>,
    ) {
        let Extent { sector, size } = view.places[index];
        let record = DirectoryRecord {
            identifier,
            sector,
            size,
            flags: FLAG_DIRECTORY,
            date: self.date,
        };
        let links = u32::try_from(tree.directories[index].links()).unwrap_or(u32::MAX);
        self.record(
            &record,
            name,
            &records::posix(DIRECTORY_MODE, links, serial(index)),
        );
    }

    /// Writes a file, with one record for each of its sections.
    fn file(&mut self, tree: &Tree, index: usize, sector: u32, identifier: &[u8], name: &str) {
        let file = &tree.files[index];
        let posix = records::posix(
            TYPE_FILE | file.mode,
            1,
            serial(tree.directories.len() + index),
        );
        let mut done = 0;
        loop {
            let size = (file.size - done).min(SECTION);
            // Neither conversion fails: a section is smaller than 4 GiB, and the layout has counted
            // the sectors.
            let at = sector.wrapping_add(u32::try_from(sectors(done)).unwrap_or(0));
            let last = done + size == file.size;
            let record = DirectoryRecord {
                identifier,
                sector: at,
                size: u32::try_from(size).unwrap_or(u32::MAX),
                flags: if last { 0 } else { FLAG_CONTINUES },
                date: self.date,
            };
            self.record(&record, Name::Of(name), &posix);
            if last {
                return;
            }
            done += size;
        }
    }

    fn record(&mut self, record: &DirectoryRecord<'_>, name: Name<'_>, posix: &[u8]) {
        let system_use = if self.rock_ridge {
            self.system_use(record, name, posix)
        } else {
            Vec::new()
        };
        let bytes = record.bytes(&system_use);
        debug_assert!(bytes.len() <= records::LONGEST, "{}", bytes.len());
        // No record crosses the end of a sector (ECMA-119 6.8.1.1).
        if self.listing.records.len() % BLOCK + bytes.len() > BLOCK {
            self.fill();
        }
        self.listing.records.extend(bytes);
    }

    fn system_use(
        &mut self,
        record: &DirectoryRecord<'_>,
        name: Name<'_>,
        posix: &[u8],
    ) -> Vec<u8> {
        let common = [posix, &records::times(self.date)].concat();
        match name {
            Name::Dots { first: false } => common,
            Name::Dots { first: true } => {
                let beside = self.beside(&records::reference());
                [records::indicator(), common, beside].concat()
            }
            Name::Of(name) => {
                let name = name.as_bytes();
                let room =
                    records::LONGEST - record.plain_length() - common.len() - records::NAME_HEADER;
                if name.len() <= room {
                    return [common, records::name(name, false)].concat();
                }
                let (here, there) = name.split_at(room - records::CONTINUATION);
                let beside = self.beside(&records::name(there, false));
                [common, records::name(here, true), beside].concat()
            }
        }
    }

    /// Adds an entry to the continuations and returns the entry that points to it. No continuation
    /// crosses the end of a sector, because Linux reads only one.
    fn beside(&mut self, entry: &[u8]) -> Vec<u8> {
        let beside = &mut self.listing.beside;
        if beside.len() % BLOCK + entry.len() > BLOCK {
            beside.resize(beside.len().next_multiple_of(BLOCK), 0);
        }
        let (whole, offset) = (beside.len() / BLOCK, beside.len() % BLOCK);
        beside.extend(entry);
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        records::continuation(
            self.beside_at.wrapping_add(number(whole)),
            number(offset),
            number(entry.len()),
        )
    }

    fn fill(&mut self) {
        let records = &mut self.listing.records;
        records.resize(records.len().next_multiple_of(BLOCK), 0);
    }
}

/// The serial number of a file or directory, from 1.
fn serial(index: usize) -> u32 {
    u32::try_from(index + 1).unwrap_or(u32::MAX)
}
