//! Positions in an image: of its files, as xorriso finds them, and of the structures that ECMA-119
//! puts at fixed positions.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use halite_lab::command::run;

use super::Work;

/// The size of a sector in bytes.
pub(super) const SECTOR: u64 = 2048;

/// A file's first byte and size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub at: u64,
    pub size: u64,
}

impl Extent {
    pub(super) fn end(self) -> u64 {
        self.at + self.size
    }
}

/// Every file that is not empty, by path.
pub(super) fn files(image: &Path) -> Result<BTreeMap<String, Extent>> {
    let image = image.to_string_lossy();
    let listed = run(
        "xorriso",
        &[
            "-indev",
            &image,
            "-find",
            "/",
            "-type",
            "f",
            "-exec",
            "report_lba",
            "--",
        ],
    )?;
    let mut files = BTreeMap::new();
    // "File data lba: extent, first sector, sectors, size of the file, 'path'"
    for line in listed
        .lines()
        .filter_map(|line| line.strip_prefix("File data lba:"))
    {
        let parts: Vec<&str> = line.splitn(5, ',').map(str::trim).collect();
        let [_, sector, _, size, path] = parts[..] else {
            continue;
        };
        let number = |text: &str| {
            text.parse::<u64>()
                .with_context(|| format!("xorriso prints {line:?}"))
        };
        let extent = Extent {
            at: number(sector)? * SECTOR,
            size: number(size)?,
        };
        let path = path.trim_matches('\'').trim_start_matches('/');
        if extent.size > 0 {
            files.insert(path.to_owned(), extent);
        }
    }
    ensure!(
        files.len() > 100,
        "xorriso finds {} files in the ISO",
        files.len()
    );
    Ok(files)
}

/// A view of an image: the directory tree that a volume descriptor points to.
pub(super) struct View {
    pub descriptor: u64,
    pub little: u64,
    pub big: u64,
    /// Extent of the root directory's records.
    pub root: Extent,
}

/// The primary view and the Joliet view, whose descriptors are the first two (ECMA-119 8.4 and
/// 8.5).
pub(super) fn views(work: &Work) -> Result<[(&'static str, View); 2]> {
    let view = |sector: u64| -> Result<View> {
        let bytes = work.read(sector * SECTOR, SECTOR)?;
        ensure!(
            bytes[1..6] == *b"CD001",
            "sector {sector} is not a volume descriptor"
        );
        let little = |at: usize| {
            bytes[at..]
                .first_chunk()
                .map_or(0, |four| u64::from(u32::from_le_bytes(*four)))
        };
        let big = |at: usize| {
            bytes[at..]
                .first_chunk()
                .map_or(0, |four| u64::from(u32::from_be_bytes(*four)))
        };
        Ok(View {
            descriptor: sector * SECTOR,
            little: little(140) * SECTOR,
            big: big(148) * SECTOR,
            root: Extent {
                at: little(158) * SECTOR,
                size: little(166),
            },
        })
    };
    Ok([("the primary view", view(16)?), ("Joliet", view(17)?)])
}

/// The positions of the records of a directory's files.
pub(super) fn records(work: &Work, directory: Extent) -> Result<Vec<u64>> {
    let bytes = work.read(directory.at, directory.size)?;
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        match usize::from(bytes[at]) {
            // A record never crosses the border of a sector.
            0 => at = (at + 1).next_multiple_of(usize::try_from(SECTOR)?),
            length => {
                // The flag that marks a directory (9.1.6).
                if bytes[at + 25] & 2 == 0 {
                    found.push(directory.at + at as u64);
                }
                at += length;
            }
        }
    }
    Ok(found)
}
