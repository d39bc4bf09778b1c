//! Volume descriptors (ECMA-119 8) and path tables (ECMA-119 9.4).

use super::hierarchy::Hierarchy;
use super::input::Volume;
use super::layout::Layout;
use super::names::View;
use super::records::{DirectoryRecord, both16, both32};
use super::{BLOCK, FLAG_DIRECTORY, records};

/// The bytes after a descriptor's type (ECMA-119 8.1).
pub const STANDARD: &[u8; 5] = b"CD001";

/// Types of descriptors (ECMA-119 8.1.1).
pub const PRIMARY: u8 = 1;
const SUPPLEMENTARY: u8 = 2;
pub const TERMINATOR: u8 = 255;

/// The escape sequence of UCS-2 level 3, which identifies Joliet.
const UCS2_LEVEL_3: &[u8; 3] = b"%/E";

/// Offsets of the primary descriptor's fields (ECMA-119 8.4) that the reader uses too.
pub const VOLUME_ID: usize = 40;
pub const SPACE_SIZE: usize = 80;
pub const BLOCK_SIZE: usize = 128;
pub const ROOT: usize = 156;

/// Length of a volume identifier.
pub const VOLUME_ID_LENGTH: usize = 32;

/// All descriptors of an image, each one sector.
pub fn descriptors(volume: &Volume, layout: &Layout) -> Vec<u8> {
    let mut terminator = vec![0; BLOCK];
    start(&mut terminator, TERMINATOR);
    let (primary, joliet) = (&layout.primary, &layout.joliet);
    [
        descriptor(volume, layout, primary),
        descriptor(volume, layout, joliet),
        terminator,
    ]
    .concat()
}

fn start(bytes: &mut [u8], kind: u8) {
    put(bytes, 0, &[kind]);
    put(bytes, 1, STANDARD);
    put(bytes, 6, &[1]);
}

fn descriptor(volume: &Volume, layout: &Layout, hierarchy: &Hierarchy) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    let joliet = hierarchy.view == View::Joliet;
    start(&mut bytes, if joliet { SUPPLEMENTARY } else { PRIMARY });
    if joliet {
        put(&mut bytes, 88, UCS2_LEVEL_3);
    }
    // System, volume, volume set, publisher, preparer, application; then the names of three
    // optional files, all empty.
    let texts = [
        (8, 32, ""),
        (VOLUME_ID, VOLUME_ID_LENGTH, volume.id.as_str()),
        (190, 128, ""),
    ];
    let more = [
        (318, 128, ""),
        (446, 128, ""),
        (574, 128, "HALITE"),
        (702, 37, ""),
        (739, 37, ""),
        (776, 37, ""),
    ];
    for (at, length, text) in texts.into_iter().chain(more) {
        put(&mut bytes, at, &filled(hierarchy.view, text, length));
    }
    put(&mut bytes, SPACE_SIZE, &both32(layout.sectors));
    // A set of one volume, of which this is the first.
    put(&mut bytes, 120, &both16(1));
    put(&mut bytes, 124, &both16(1));
    put(
        &mut bytes,
        BLOCK_SIZE,
        &both16(u16::try_from(BLOCK).unwrap_or(0)),
    );
    put(&mut bytes, 132, &both32(hierarchy.little.size));
    put(&mut bytes, 140, &hierarchy.little.sector.to_le_bytes());
    put(&mut bytes, 148, &hierarchy.big.sector.to_be_bytes());
    let root = hierarchy.places[0];
    let root = DirectoryRecord {
        identifier: &[0],
        sector: root.sector,
        size: root.size,
        flags: FLAG_DIRECTORY,
        date: volume.date,
    };
    put(&mut bytes, ROOT, &root.bytes(&[]));
    // Created, modified; no expiry, and no start of validity.
    let date = records::long_date(volume.date);
    let none = [[b'0'; 16].as_slice(), &[0]].concat();
    for (at, date) in [(813, &date), (830, &date), (847, &none), (864, &none)] {
        put(&mut bytes, at, date);
    }
    // File structure version.
    put(&mut bytes, 881, &[1]);
    bytes
}

/// A text padded with spaces, in the characters of its view; Joliet has half as many, each of two
/// bytes.
fn filled(view: View, text: &str, length: usize) -> Vec<u8> {
    let units = text
        .encode_utf16()
        .chain(std::iter::repeat(u16::from(b' ')));
    match view {
        View::Primary => units
            .take(length)
            .map(|unit| u8::try_from(unit).unwrap_or(b'_'))
            .collect(),
        // An odd byte at the end stays zero.
        View::Joliet => units.take(length / 2).flat_map(u16::to_be_bytes).collect(),
    }
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

/// The path tables of a view: with the less significant bytes first, and with the more significant
/// bytes first.
pub fn path_tables(hierarchy: &Hierarchy, parent: impl Fn(usize) -> usize) -> [Vec<u8>; 2] {
    let (mut little, mut big) = (Vec::new(), Vec::new());
    let mut numbers = vec![1_u16; hierarchy.order.len()];
    for (number, index) in (1..=u16::MAX).zip(&hierarchy.order) {
        numbers[*index] = number;
    }
    for index in &hierarchy.order {
        let identifier = &hierarchy.identifiers[*index];
        let (sector, parent) = (hierarchy.places[*index].sector, numbers[parent(*index)]);
        // No identifier is longer than 128 bytes.
        let length = u8::try_from(identifier.len()).unwrap_or(u8::MAX);
        for (table, sector, parent) in [
            (&mut little, sector.to_le_bytes(), parent.to_le_bytes()),
            (&mut big, sector.to_be_bytes(), parent.to_be_bytes()),
        ] {
            table.extend([length, 0]);
            table.extend(sector);
            table.extend(parent);
            table.extend(identifier);
            table.resize(table.len().next_multiple_of(2), 0);
        }
    }
    [little, big]
}
