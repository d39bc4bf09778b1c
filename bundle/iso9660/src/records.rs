//! The bytes of directory records (ECMA-119 9.1) with the additions of SUSP and RRIP 1.12 (Rock
//! Ridge).

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// The identifier of Rock Ridge, given by RRIP 1.12 (4.3).
const EXTENSION: &[u8] = b"IEEE_1282";
const DESCRIPTION: &[u8] =
    b"THE IEEE 1282 PROTOCOL PROVIDES SUPPORT FOR POSIX FILE SYSTEM SEMANTICS";
const PUBLISHER: &[u8] =
    b"PLEASE CONTACT THE IEEE STANDARDS DEPARTMENT, PISCATAWAY, NJ, USA FOR THE 1282 SPECIFICATION";

/// Size of a `CE` entry in bytes (SUSP 5.1).
pub const CONTINUATION: usize = 28;

/// Size of an `NM` entry without the name, in bytes (RRIP 4.1.4).
pub const NAME_HEADER: usize = 5;

/// The longest record: its length is one byte and even.
pub const LONGEST: usize = 254;

/// The fields of a directory record.
pub struct DirectoryRecord<'a> {
    /// File identifier.
    pub identifier: &'a [u8],
    /// The first sector of the content.
    pub sector: u32,
    /// Size of the content in bytes.
    pub size: u32,
    /// Flags.
    pub flags: u8,
    /// The modification time.
    pub date: Timestamp,
}

impl DirectoryRecord<'_> {
    /// Length of the record without the system use field.
    pub fn plain_length(&self) -> usize {
        (33 + self.identifier.len()).next_multiple_of(2)
    }

    /// The bytes of the record with its system use field. Together they have at most [`LONGEST`]
    /// bytes: identifiers are short, and names are cut to fit.
    pub fn bytes(&self, system_use: &[u8]) -> Vec<u8> {
        let length = (self.plain_length() + system_use.len()).next_multiple_of(2);
        let mut bytes = Vec::with_capacity(length);
        bytes.extend([byte(length), 0]);
        bytes.extend(both32(self.sector));
        bytes.extend(both32(self.size));
        bytes.extend(short_date(self.date));
        // No interleaving, and the volume is the only one of its set.
        bytes.extend([self.flags, 0, 0]);
        bytes.extend(both16(1));
        bytes.push(byte(self.identifier.len()));
        bytes.extend(self.identifier);
        bytes.resize(self.plain_length(), 0);
        bytes.extend(system_use);
        bytes.resize(length, 0);
        bytes
    }
}

/// `SP`: this directory tree uses SUSP, from the first byte of each system use field on (SUSP 5.3).
pub fn indicator() -> Vec<u8> {
    entry(*b"SP", &[0xBE, 0xEF, 0])
}

/// `ER`: the extension that defines the two-letter entries (SUSP 5.5).
pub fn reference() -> Vec<u8> {
    let lengths = [
        byte(EXTENSION.len()),
        byte(DESCRIPTION.len()),
        byte(PUBLISHER.len()),
        1,
    ];
    entry(
        *b"ER",
        &[lengths.as_slice(), EXTENSION, DESCRIPTION, PUBLISHER].concat(),
    )
}

/// `CE`: more entries follow at that position (SUSP 5.1).
pub fn continuation(sector: u32, offset: u32, length: u32) -> Vec<u8> {
    entry(
        *b"CE",
        &[both32(sector), both32(offset), both32(length)].concat(),
    )
}

/// `PX`: mode with type bits, link count, owner and group root, and a serial number (RRIP 4.1.1).
pub fn posix(mode: u32, links: u32, serial: u32) -> Vec<u8> {
    entry(
        *b"PX",
        &[
            both32(mode),
            both32(links),
            both32(0),
            both32(0),
            both32(serial),
        ]
        .concat(),
    )
}

/// `TF`: modification, access and attribute change, all at the same time (RRIP 4.1.6).
pub fn times(date: Timestamp) -> Vec<u8> {
    let date = short_date(date);
    entry(*b"TF", &[[0x0E].as_slice(), &date, &date, &date].concat())
}

/// `NM`: the name, or a part of it (RRIP 4.1.4).
pub fn name(part: &[u8], continues: bool) -> Vec<u8> {
    entry(*b"NM", &[&[u8::from(continues)], part].concat())
}

fn entry(signature: [u8; 2], content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![signature[0], signature[1], byte(4 + content.len()), 1];
    bytes.extend(content);
    bytes
}

/// A number in both byte orders, little-endian first (ECMA-119 7.3.3).
pub fn both32(number: u32) -> [u8; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (number.to_le_bytes(), number.to_be_bytes());
    [a, b, c, d, e, f, g, h]
}

/// A two-byte number in both byte orders (ECMA-119 7.2.3).
pub fn both16(number: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (number.to_le_bytes(), number.to_be_bytes());
    [a, b, c, d]
}

/// A date in the form of directory records, in UTC (ECMA-119 9.1.5).
fn short_date(date: Timestamp) -> [u8; 7] {
    let at = utc(date);
    let year = u8::try_from(i32::from(at.year()) - 1900).unwrap_or(0);
    // Month, day and time of day are positive and have two digits.
    let [month, day, hour, minute, second] =
        [at.month(), at.day(), at.hour(), at.minute(), at.second()].map(i8::unsigned_abs);
    [year, month, day, hour, minute, second, 0]
}

/// A date in the form of volume descriptors, in UTC (ECMA-119 8.4.26.1).
pub fn long_date(date: Timestamp) -> Vec<u8> {
    let at = utc(date);
    let mut bytes = at.strftime("%Y%m%d%H%M%S").to_string().into_bytes();
    // Hundredths of a second, and the offset from UTC.
    bytes.extend([b'0', b'0', 0]);
    bytes
}

/// Date and time in UTC.
pub fn utc(date: Timestamp) -> DateTime {
    Offset::UTC.to_datetime(date)
}

/// A length that is certainly small.
fn byte(length: usize) -> u8 {
    debug_assert!(length <= usize::from(u8::MAX), "{length}");
    u8::try_from(length).unwrap_or(u8::MAX)
}
