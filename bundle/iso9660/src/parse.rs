//! Parsing of directory records and Rock Ridge entries. Nothing is trusted: every length is
//! checked, and ambiguous input is refused.

use super::error::{ImageDamage, RecordDamage};
use super::{LONGEST_NAME, tree};

/// The largest number of a record's continuations, more than any name needs.
const MOST_CONTINUATIONS: usize = 8;

/// A directory record.
#[derive(Debug, Clone, Copy)]
pub struct ParsedRecord<'a> {
    /// The first sector of its content.
    pub sector: u32,
    /// Size of its content, or of this section of it, in bytes.
    pub size: u32,
    /// Flags.
    pub flags: u8,
    /// File identifier.
    pub identifier: &'a [u8],
    /// The system use field, which contains SUSP's entries.
    pub system_use: &'a [u8],
}

/// The position of a continuation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Continuation {
    /// The sector.
    pub sector: u32,
    /// The offset of its first byte in the sector.
    pub offset: u32,
    /// Number of bytes.
    pub size: u32,
}

/// The Rock Ridge data of a file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RockRidge {
    /// Its name, a single path component.
    pub name: String,
    /// Mode with type bits.
    pub mode: u32,
}

impl<'a> ParsedRecord<'a> {
    /// Splits the first record from the bytes; the first byte of a record is its length. Returns
    /// the record and the rest.
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), RecordDamage> {
        let length = bytes.first().copied().map_or(0, usize::from);
        let (record, rest) = bytes
            .split_at_checked(length)
            .filter(|_| length >= 34)
            .ok_or(RecordDamage::Length)?;
        let identifier = record
            .get(33..33 + usize::from(record[32]))
            .filter(|identifier| !identifier.is_empty())
            .ok_or(RecordDamage::NameLength)?;
        if record[1] != 0 || record[26] != 0 || record[27] != 0 {
            return Err(RecordDamage::Attributes);
        }
        // A name of even length is followed by a byte of padding.
        let system_use = record
            .get((33 + identifier.len()).next_multiple_of(2)..)
            .unwrap_or_default();
        let parsed = Self {
            sector: both32(record, 2)?,
            size: both32(record, 10)?,
            flags: record[25],
            identifier,
            system_use,
        };
        Ok((parsed, rest))
    }

    /// Returns whether it is a directory's record of itself (`[0]`) or of its parent (`[1]`).
    pub fn is_dots(&self) -> bool {
        matches!(self.identifier, [0 | 1])
    }
}

/// Returns whether the `.` of the root announces SUSP, from the first byte on.
pub fn has_susp(system_use: &[u8]) -> bool {
    system_use.starts_with(&[b'S', b'P', 7, 1, 0xBE, 0xEF, 0])
}

/// Reads the entries of a record and their continuations, which `fetch` returns.
pub fn rock_ridge(
    system_use: &[u8],
    mut fetch: impl FnMut(Continuation) -> Result<Vec<u8>, ImageDamage>,
) -> Result<RockRidge, ImageDamage> {
    let mut found = Found::default();
    let mut next = found.entries(system_use)?;
    let mut left = MOST_CONTINUATIONS;
    while let Some(continuation) = next {
        left = left.checked_sub(1).ok_or(RecordDamage::Endless)?;
        next = found.entries(&fetch(continuation)?)?;
    }
    if found.unfinished {
        return Err(RecordDamage::UnfinishedName.into());
    }
    let name = String::from_utf8(found.name).map_err(|_| RecordDamage::NotUtf8)?;
    tree::check_name(&name).map_err(RecordDamage::from)?;
    match found.mode {
        Some(mode) => Ok(RockRidge { name, mode }),
        None => Err(RecordDamage::NoMode(name).into()),
    }
}

#[derive(Default)]
struct Found {
    name: Vec<u8>,
    unfinished: bool,
    mode: Option<u32>,
}

impl Found {
    fn entries(&mut self, mut bytes: &[u8]) -> Result<Option<Continuation>, RecordDamage> {
        let mut next = None;
        // Fewer than four bytes, or a zero, are padding (SUSP 4).
        while let [first, second, length, _, ..] = *bytes {
            if first == 0 {
                break;
            }
            let length = usize::from(length);
            let Some((entry, rest)) = bytes.split_at_checked(length).filter(|_| length >= 4) else {
                return Err(RecordDamage::EntryLength);
            };
            bytes = rest;
            match &[first, second] {
                b"NM" => self.name(&entry[4..])?,
                b"PX" if self.mode.is_some() => {
                    return Err(RecordDamage::TwoModes);
                }
                b"PX" => self.mode = Some(both32(entry, 4)?),
                b"CE" if next.is_some() => {
                    return Err(RecordDamage::TwoContinuations);
                }
                b"CE" => {
                    let (sector, offset, size) =
                        (both32(entry, 4)?, both32(entry, 12)?, both32(entry, 20)?);
                    next = Some(Continuation {
                        sector,
                        offset,
                        size,
                    });
                }
                b"ST" => break,
                // With each of these, the file is not what its record points to.
                b"SL" | b"PN" | b"CL" | b"PL" | b"RE" | b"SF" | b"ZF" => {
                    return Err(RecordDamage::OtherType);
                }
                _ => {}
            }
        }
        Ok(next)
    }

    fn name(&mut self, entry: &[u8]) -> Result<(), RecordDamage> {
        let Some((flags, part)) = entry.split_first() else {
            return Err(RecordDamage::CutName);
        };
        if *flags > 1 {
            return Err(RecordDamage::NameElsewhere);
        }
        if !self.unfinished && !self.name.is_empty() {
            return Err(RecordDamage::TwoNames);
        }
        self.unfinished = *flags == 1;
        self.name.extend_from_slice(part);
        if self.name.len() > LONGEST_NAME {
            return Err(RecordDamage::LongName);
        }
        Ok(())
    }
}

/// Parses a number in both byte orders, which must agree.
pub fn both32(bytes: &[u8], at: usize) -> Result<u32, RecordDamage> {
    match *bytes.get(at..at + 8).ok_or(RecordDamage::CutNumber)? {
        [a, b, c, d, e, f, g, h] if [d, c, b, a] == [e, f, g, h] => {
            Ok(u32::from_le_bytes([a, b, c, d]))
        }
        _ => Err(RecordDamage::ByteOrders),
    }
}

/// Parses a two-byte number in both byte orders.
pub fn both16(bytes: &[u8], at: usize) -> Result<u16, RecordDamage> {
    match *bytes.get(at..at + 4).ok_or(RecordDamage::CutNumber)? {
        [a, b, c, d] if [b, a] == [c, d] => Ok(u16::from_le_bytes([a, b])),
        _ => Err(RecordDamage::ByteOrders),
    }
}
