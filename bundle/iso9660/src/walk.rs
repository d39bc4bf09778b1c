//! The walk from the root of an image to the list of its files. Its cost is bounded for any image.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::error::Damage;
use super::parse::{Continuation, Record, RockRidge};
use super::{
    BLOCK, FLAG_ASSOCIATED, FLAG_CONTINUES, FLAG_DIRECTORY, LONGEST_PATH, SECTOR, TYPE_DIRECTORY,
    TYPE_FILE, TYPE_MASK, parse, sectors,
};

/// The limit for names that are read and stored, in bytes: enough for more than a million files.
const MOST_METADATA: u64 = 256 << 20;

/// The approximate memory for a file or directory in addition to its path, in bytes.
const ENTRY: u64 = 64;

/// A file in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its path: components that are names, with `/` between them.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Its first byte in the image; 0 for an empty file. It is contiguous.
    pub offset: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// The list of files while it is being made. Errors name the damage; the caller adds the image.
pub struct Walk<'a> {
    file: &'a File,
    /// Number of sectors of the image.
    space: u32,
    budget: u64,
    /// The first sectors of the directories found so far.
    begun: HashSet<u32>,
    /// Directories that must still be read.
    waiting: Vec<Directory>,
    entries: Vec<Entry>,
}

struct Directory {
    path: String,
    sector: u32,
    size: u32,
}

/// The entries found in a directory.
#[derive(Default)]
struct Met {
    names: HashSet<String>,
    /// A file with missing sections, and the identifier that its sections share.
    unfinished: Option<(Vec<u8>, Entry)>,
}

impl<'a> Walk<'a> {
    /// A walk through an image with this many sectors.
    pub fn new(file: &'a File, space: u32) -> Self {
        let (begun, waiting, entries) = (HashSet::new(), Vec::new(), Vec::new());
        Self {
            file,
            space,
            budget: MOST_METADATA,
            begun,
            waiting,
            entries,
        }
    }

    /// Every file below a root, ordered by path.
    pub fn run(mut self, root: &Record<'_>) -> Result<Vec<Entry>, Damage> {
        self.enter(String::new(), root)?;
        while let Some(directory) = self.waiting.pop() {
            self.directory(&directory)
                .map_err(|damage| Damage::Directory {
                    path: directory.path.clone(),
                    source: Box::new(damage),
                })?;
        }
        self.entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        self.apart()?;
        Ok(self.entries)
    }

    fn enter(&mut self, path: String, record: &Record<'_>) -> Result<(), Damage> {
        let Record { sector, size, .. } = *record;
        self.inside(sector, size)?;
        if size == 0 || !u64::from(size).is_multiple_of(SECTOR) {
            return Err(Damage::DirectorySize { path, size });
        }
        if !self.begun.insert(sector) {
            return Err(Damage::DirectoryTwice(path));
        }
        self.waiting.push(Directory { path, sector, size });
        Ok(())
    }

    fn directory(&mut self, directory: &Directory) -> Result<(), Damage> {
        let mut met = Met::default();
        let mut number = 0;
        for sector in
            (directory.sector..).take(usize::try_from(sectors(directory.size.into())).unwrap_or(0))
        {
            let bytes = self.read(u64::from(sector) * SECTOR, BLOCK)?;
            let mut rest = bytes.as_slice();
            // A zero in place of a length: the next record is in the next sector.
            while rest.first().is_some_and(|length| *length != 0) {
                let (record, behind) = Record::split(rest)?;
                rest = behind;
                match (number, record.is_dots()) {
                    (0, true) => self.dot(directory, &record)?,
                    (1, true) => {}
                    (0 | 1, false) | (_, true) => {
                        return Err(Damage::Dots);
                    }
                    (_, false) => self.record(directory, &record, &mut met)?,
                }
                number += 1;
            }
        }
        match met.unfinished {
            _ if number < 2 => Err(Damage::Empty),
            Some((_, entry)) => Err(Damage::LastSection(entry.path)),
            None => Ok(()),
        }
    }

    /// Checks the record of a directory for itself.
    fn dot(&self, directory: &Directory, record: &Record<'_>) -> Result<(), Damage> {
        if record.identifier != [0]
            || record.sector != directory.sector
            || record.size != directory.size
        {
            return Err(Damage::OtherPlace);
        }
        if directory.path.is_empty() && !parse::has_susp(record.system_use) {
            return Err(Damage::NoRockRidge);
        }
        Ok(())
    }

    fn record(
        &mut self,
        directory: &Directory,
        record: &Record<'_>,
        met: &mut Met,
    ) -> Result<(), Damage> {
        self.inside(record.sector, record.size)?;
        let RockRidge { name, mode } = parse::rock_ridge(record.system_use, |continuation| {
            self.continuation(continuation)
        })?;
        let slash = if directory.path.is_empty() { "" } else { "/" };
        let path = format!("{}{slash}{name}", directory.path);
        if path.len() > LONGEST_PATH {
            return Err(Damage::LongPath { name });
        }
        self.spend(path.len() as u64 + ENTRY)?;
        let is_directory = record.flags & FLAG_DIRECTORY != 0;
        let expected = if is_directory {
            TYPE_DIRECTORY
        } else {
            TYPE_FILE
        };
        if mode & TYPE_MASK != expected || record.flags & FLAG_ASSOCIATED != 0 {
            return Err(Damage::OtherType(name));
        }
        let continues = record.flags & FLAG_CONTINUES != 0;
        if continues
            && (is_directory || record.size == 0 || !u64::from(record.size).is_multiple_of(SECTOR))
        {
            return Err(Damage::Section(name));
        }
        let offset = if record.size == 0 {
            0
        } else {
            u64::from(record.sector) * SECTOR
        };
        let mut entry = Entry {
            path,
            mode: mode & 0o777,
            offset,
            size: record.size.into(),
        };
        if let Some((identifier, begun)) = met.unfinished.take() {
            let next = begun.offset + begun.size;
            let same = identifier == record.identifier
                && begun.path == entry.path
                && begun.mode == entry.mode;
            if is_directory || !same || (record.size != 0 && entry.offset != next) {
                return Err(Damage::Pieces(begun.path));
            }
            entry = Entry {
                size: begun.size + entry.size,
                ..begun
            };
        } else if !met.names.insert(name) {
            return Err(Damage::FileTwice(entry.path));
        }
        if is_directory {
            return self.enter(entry.path, record);
        }
        if continues {
            met.unfinished = Some((record.identifier.to_vec(), entry));
        } else {
            self.entries.push(entry);
        }
        Ok(())
    }

    /// Checks that no byte belongs to two files, so that all files together are never larger than
    /// the image.
    fn apart(&self) -> Result<(), Damage> {
        let mut places: Vec<&Entry> = self.entries.iter().filter(|entry| entry.size > 0).collect();
        places.sort_unstable_by_key(|entry| entry.offset);
        match places
            .iter()
            .zip(places.iter().skip(1))
            .find(|(a, b)| a.offset + a.size > b.offset)
        {
            None => Ok(()),
            Some((a, b)) => Err(Damage::SamePlace {
                first: a.path.clone(),
                second: b.path.clone(),
            }),
        }
    }

    fn continuation(&mut self, at: Continuation) -> Result<Vec<u8>, Damage> {
        let Continuation {
            sector,
            offset,
            size,
        } = at;
        self.inside(sector, size)?;
        if u64::from(offset) + u64::from(size) > SECTOR {
            return Err(Damage::Continuation);
        }
        self.spend(ENTRY)?;
        self.read(
            u64::from(sector) * SECTOR + u64::from(offset),
            usize::try_from(size).unwrap_or(BLOCK),
        )
    }

    fn inside(&self, sector: u32, size: u32) -> Result<(), Damage> {
        if u64::from(sector) + sectors(size.into()) <= u64::from(self.space) {
            return Ok(());
        }
        Err(Damage::Outside { sector, size })
    }

    fn read(&mut self, offset: u64, size: usize) -> Result<Vec<u8>, Damage> {
        self.spend(size as u64)?;
        let mut bytes = vec![0; size];
        self.file
            .read_exact_at(&mut bytes, offset)
            .map_err(|source| Damage::Read { offset, source })?;
        Ok(bytes)
    }

    fn spend(&mut self, cost: u64) -> Result<(), Damage> {
        self.budget = self.budget.checked_sub(cost).ok_or(Damage::TooMany)?;
        Ok(())
    }
}
