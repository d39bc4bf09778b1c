//! The walk from the root of an image to the list of its files. Its cost is bounded for any image.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::error::ImageDamage;
use super::parse::{Continuation, ParsedRecord, RockRidge};
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
pub struct ImageFile {
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
    entries: Vec<ImageFile>,
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
    unfinished: Option<(Vec<u8>, ImageFile)>,
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
    pub fn run(mut self, root: &ParsedRecord<'_>) -> Result<Vec<ImageFile>, ImageDamage> {
        self.enter(String::new(), root)?;
        while let Some(directory) = self.waiting.pop() {
            self.directory(&directory)
                .map_err(|damage| ImageDamage::Directory {
                    path: directory.path.clone(),
                    source: Box::new(damage),
                })?;
        }
        self.entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        self.apart()?;
        Ok(self.entries)
    }

    fn enter(&mut self, path: String, record: &ParsedRecord<'_>) -> Result<(), ImageDamage> {
        let ParsedRecord { sector, size, .. } = *record;
        self.inside(sector, size)?;
        if size == 0 || !u64::from(size).is_multiple_of(SECTOR) {
            return Err(ImageDamage::DirectorySize { path, size });
        }
        if !self.begun.insert(sector) {
            return Err(ImageDamage::DirectoryTwice(path));
        }
        self.waiting.push(Directory { path, sector, size });
        Ok(())
    }

    fn directory(&mut self, directory: &Directory) -> Result<(), ImageDamage> {
        let mut met = Met::default();
        let mut number = 0;
        for sector in
            (directory.sector..).take(usize::try_from(sectors(directory.size.into())).unwrap_or(0))
        {
            let bytes = self.read(u64::from(sector) * SECTOR, BLOCK)?;
            let mut rest = bytes.as_slice();
            // A zero in place of a length: the next record is in the next sector.
            while rest.first().is_some_and(|length| *length != 0) {
                let (record, behind) = ParsedRecord::split(rest)?;
                rest = behind;
                match (number, record.is_dots()) {
                    (0, true) => self.dot(directory, &record)?,
                    (1, true) => {}
                    (0 | 1, false) | (_, true) => {
                        return Err(ImageDamage::Dots);
                    }
                    (_, false) => self.record(directory, &record, &mut met)?,
                }
                number += 1;
            }
        }
        match met.unfinished {
            _ if number < 2 => Err(ImageDamage::Empty),
            Some((_, entry)) => Err(ImageDamage::LastSection(entry.path)),
            None => Ok(()),
        }
    }

    /// Checks the record of a directory for itself.
    fn dot(&self, directory: &Directory, record: &ParsedRecord<'_>) -> Result<(), ImageDamage> {
        if record.identifier != [0]
            || record.sector != directory.sector
            || record.size != directory.size
        {
            return Err(ImageDamage::OtherPlace);
        }
        if directory.path.is_empty() && !parse::has_susp(record.system_use) {
            return Err(ImageDamage::NoRockRidge);
        }
        Ok(())
    }

    fn record(
        &mut self,
        directory: &Directory,
        record: &ParsedRecord<'_>,
        met: &mut Met,
    ) -> Result<(), ImageDamage> {
        self.inside(record.sector, record.size)?;
        let RockRidge { name, mode } = parse::rock_ridge(record.system_use, |continuation| {
            self.continuation(continuation)
        })?;
        let slash = if directory.path.is_empty() { "" } else { "/" };
        let path = format!("{}{slash}{name}", directory.path);
        if path.len() > LONGEST_PATH {
            return Err(ImageDamage::LongPath { name });
        }
        self.spend(path.len() as u64 + ENTRY)?;
        let is_directory = record.flags & FLAG_DIRECTORY != 0;
        let expected = if is_directory {
            TYPE_DIRECTORY
        } else {
            TYPE_FILE
        };
        if mode & TYPE_MASK != expected || record.flags & FLAG_ASSOCIATED != 0 {
            return Err(ImageDamage::OtherType(name));
        }
        let continues = record.flags & FLAG_CONTINUES != 0;
        if continues
            && (is_directory || record.size == 0 || !u64::from(record.size).is_multiple_of(SECTOR))
        {
            return Err(ImageDamage::Section(name));
        }
        let offset = if record.size == 0 {
            0
        } else {
            u64::from(record.sector) * SECTOR
        };
        let mut entry = ImageFile {
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
                return Err(ImageDamage::Pieces(begun.path));
            }
            entry = ImageFile {
                size: begun.size + entry.size,
                ..begun
            };
        } else if !met.names.insert(name) {
            return Err(ImageDamage::FileTwice(entry.path));
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
    fn apart(&self) -> Result<(), ImageDamage> {
        let mut places: Vec<&ImageFile> =
            self.entries.iter().filter(|entry| entry.size > 0).collect();
        places.sort_unstable_by_key(|entry| entry.offset);
        match places
            .iter()
            .zip(places.iter().skip(1))
            .find(|(a, b)| a.offset + a.size > b.offset)
        {
            None => Ok(()),
            Some((a, b)) => Err(ImageDamage::SamePlace {
                first: a.path.clone(),
                second: b.path.clone(),
            }),
        }
    }

    fn continuation(&mut self, at: Continuation) -> Result<Vec<u8>, ImageDamage> {
        let Continuation {
            sector,
            offset,
            size,
        } = at;
        self.inside(sector, size)?;
        if u64::from(offset) + u64::from(size) > SECTOR {
            return Err(ImageDamage::Continuation);
        }
        self.spend(ENTRY)?;
        self.read(
            u64::from(sector) * SECTOR + u64::from(offset),
            usize::try_from(size).unwrap_or(BLOCK),
        )
    }

    fn inside(&self, sector: u32, size: u32) -> Result<(), ImageDamage> {
        if u64::from(sector) + sectors(size.into()) <= u64::from(self.space) {
            return Ok(());
        }
        Err(ImageDamage::Outside { sector, size })
    }

    fn read(&mut self, offset: u64, size: usize) -> Result<Vec<u8>, ImageDamage> {
        self.spend(size as u64)?;
        let mut bytes = vec![0; size];
        self.file
            .read_exact_at(&mut bytes, offset)
            .map_err(|source| ImageDamage::Read { offset, source })?;
        Ok(bytes)
    }

    fn spend(&mut self, cost: u64) -> Result<(), ImageDamage> {
        self.budget = self.budget.checked_sub(cost).ok_or(ImageDamage::TooMany)?;
        Ok(())
    }
}
