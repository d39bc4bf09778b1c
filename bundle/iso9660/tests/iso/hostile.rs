//! Images that were damaged or crafted to do harm: each results in an error and has no other
//! effect.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use halite_errors::chain;
use halite_iso9660::SECTOR;
use halite_iso9660::read::IsoImage;
use proptest::prelude::*;

use crate::made::{Files, Made};

const BLOCK: usize = SECTOR as usize;

/// A small image with every kind of entry in its directories, and the range of those directories.
fn small() -> (Made, Vec<u8>, Range<usize>) {
    let mut files = Files::new();
    for path in ["a/b/c", "a/b/d", "a/e", "f", "empty"] {
        files.insert(path.to_owned(), (0o644, path.as_bytes().to_vec()));
    }
    files.insert("n".repeat(250), (0o755, b"long".to_vec()));
    files.insert("empty".to_owned(), (0o644, Vec::new()));
    let made = Made::new(&files);
    let bytes = fs::read(made.image()).unwrap();
    let first = made
        .placed
        .iter()
        .filter(|placed| placed.size > 0)
        .map(|placed| placed.offset)
        .min()
        .unwrap();
    (made, bytes, 16 * BLOCK..first as usize)
}

fn open(made: &Made, bytes: &[u8]) -> Result<IsoImage, String> {
    fs::write(made.image(), bytes).unwrap();
    IsoImage::open(&made.image()).map_err(|error| chain(&error))
}

/// Opens an image and reads all files in it, which must not be larger than the image file.
fn use_up(made: &Made, bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(image) = open(made, bytes) else {
        return Ok(());
    };
    for entry in image.entries() {
        prop_assert!(entry.offset + entry.size <= bytes.len() as u64, "{entry:?}");
        prop_assert!(
            !entry
                .path
                .split('/')
                .any(|name| ["", ".", ".."].contains(&name)),
            "{entry:?}"
        );
        prop_assert!(entry.mode <= 0o777, "{entry:?}");
        std::io::copy(
            &mut image.reader(&entry.path).unwrap(),
            &mut std::io::sink(),
        )
        .unwrap();
    }
    let out = made.path("out");
    if image.extract(&out, &mut |_| ()).is_ok() {
        fs::remove_dir_all(&out).unwrap();
    }
    let mut left: Vec<_> = fs::read_dir(made.dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    left.retain(|name| name != "X.iso");
    prop_assert!(left.is_empty(), "{left:?}");
    Ok(())
}

/// The directory record in the primary view with this Rock Ridge name, and its offset.
fn find(bytes: &[u8], name: &str) -> usize {
    let entry = [
        b"NM",
        [5 + name.len() as u8, 1, 0].as_slice(),
        name.as_bytes(),
    ]
    .concat();
    let at = bytes
        .windows(entry.len())
        .position(|window| window == entry)
        .unwrap();
    // Each record begins with its length, so search from the beginning of the sector.
    let mut record = at / BLOCK * BLOCK;
    while record + usize::from(bytes[record]) <= at {
        record += usize::from(bytes[record]);
    }
    record
}

/// The error for an image in which one record was changed.
fn changed(name: &str, change: impl FnOnce(&mut [u8], usize)) -> String {
    let (made, mut bytes, _) = small();
    let at = find(&bytes, name);
    change(&mut bytes, at);
    let started = Instant::now();
    let error = open(&made, &bytes).unwrap_err();
    assert!(started.elapsed().as_secs() < 60, "{error}");
    assert!(error.contains("copy it again from its source"), "{error}");
    error
}

fn put_both(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    bytes[at + 4..at + 8].copy_from_slice(&number.to_be_bytes());
}

fn sector(bytes: &[u8], record: usize) -> u32 {
    u32::from_le_bytes(bytes[record + 2..record + 6].try_into().unwrap())
}

/// Replaces the name of a record by one of the same length.
fn rename(bytes: &mut [u8], record: usize, to: &[u8]) {
    let end = record + usize::from(bytes[record]);
    let at = record
        + bytes[record..end]
            .windows(2)
            .position(|window| window == b"NM")
            .unwrap()
        + 5;
    bytes[at..at + to.len()].copy_from_slice(to);
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for (name, to) in [("f", "."), ("f", "/"), ("f", "\0"), ("a", ".")] {
        let error = changed(name, |bytes, at| rename(bytes, at, to.as_bytes()));
        assert!(
            error.contains("is not a name") || error.contains("has a /"),
            "{error}"
        );
    }
    let mut files = Files::new();
    files.insert("xx".to_owned(), (0o644, b"x".to_vec()));
    files.insert("yyyy/z".to_owned(), (0o644, b"x".to_vec()));
    for (name, to) in [
        ("xx", ".."),
        ("xx", "/x"),
        ("yyyy", "../x"),
        ("yyyy", "/etc"),
        ("xx", "\u{0}x"),
    ] {
        let made = Made::new(&files);
        let mut bytes = fs::read(made.image()).unwrap();
        let at = find(&bytes, name);
        rename(&mut bytes, at, to.as_bytes());
        let error = open(&made, &bytes).unwrap_err();
        assert!(
            error.contains("is not a name") || error.contains("has a /"),
            "{error}"
        );
    }
    // A name with the flag for the parent directory.
    let error = changed("f", |bytes, at| {
        let name = bytes[at..]
            .windows(2)
            .position(|window| window == b"NM")
            .unwrap();
        bytes[at + name + 4] = 4;
    });
    assert!(error.contains("refers to another"), "{error}");
    let error = changed("f", |bytes, at| rename(bytes, at, b"\xff"));
    assert!(error.contains("is not UTF-8"), "{error}");
}

#[test]
fn a_directory_in_itself_is_refused() {
    for (inner, outer) in [("b", "a"), ("a", "a")] {
        let error = changed(inner, |bytes, at| {
            let to = if inner == outer {
                0
            } else {
                find(bytes, outer)
            };
            // The root's position is in the volume descriptor.
            let to = if to == 0 {
                sector(bytes, 16 * BLOCK + 156)
            } else {
                sector(bytes, to)
            };
            put_both(bytes, at + 2, to);
        });
        assert!(error.contains("also exists elsewhere"), "{error}");
    }
}

#[test]
fn two_files_of_one_name_are_refused() {
    let error = changed("d", |bytes, at| rename(bytes, at, b"c"));
    assert!(error.contains("a/b/c exists twice"), "{error}");
    // A file and a directory with the same name.
    let error = changed("e", |bytes, at| rename(bytes, at, b"b"));
    assert!(error.contains("a/b exists twice"), "{error}");
}

#[test]
fn two_files_in_one_place_are_refused() {
    let error = changed("d", |bytes, at| {
        let other = sector(bytes, find(bytes, "c"));
        put_both(bytes, at + 2, other);
    });
    assert!(error.contains("/a/b/c and /a/b/d overlap"), "{error}");
}

#[test]
fn what_reaches_beyond_the_end_is_refused() {
    for field in [2, 10] {
        let error = changed("f", |bytes, at| put_both(bytes, at + field, u32::MAX));
        assert!(
            error.contains("reach beyond the end of the image"),
            "{error}"
        );
        let error = changed("a", |bytes, at| put_both(bytes, at + field, 0xFFFF_F800));
        assert!(
            error.contains("reach beyond the end of the image"),
            "{error}"
        );
    }
}

#[test]
fn an_entry_that_is_not_a_regular_file_is_refused() {
    // A link, a device, a directory by its mode only, and a file by its mode only.
    for (name, mode) in [
        ("f", 0o120_777),
        ("f", 0o060_600),
        ("f", 0o040_755),
        ("a", 0o100_644),
    ] {
        let error = changed(name, |bytes, at| {
            let posix = bytes[at..]
                .windows(2)
                .position(|window| window == b"PX")
                .unwrap();
            put_both(bytes, at + posix + 4, mode);
        });
        assert!(
            error.contains("is neither a plain file nor a directory"),
            "{error}"
        );
    }
    for signature in [b"SL", b"CL", b"RE", b"SF", b"ZF", b"PN"] {
        let error = changed("f", |bytes, at| {
            let times = bytes[at..]
                .windows(2)
                .position(|window| window == b"TF")
                .unwrap();
            bytes[at + times..at + times + 2].copy_from_slice(signature);
        });
        assert!(
            error.contains("neither a plain file nor a directory"),
            "{error}"
        );
    }
}

#[test]
fn continuations_without_end_are_refused() {
    let (made, mut bytes, _) = small();
    // The continuation of the long name becomes one that points to itself.
    let long = bytes
        .windows(2)
        .enumerate()
        .filter(|(_, window)| *window == b"CE");
    let entry = long.map(|(at, _)| at).next_back().unwrap();
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (sector, offset) = (number(entry + 4), number(entry + 12));
    let target = sector as usize * BLOCK + offset as usize;
    let mut own = bytes[entry..entry + 28].to_vec();
    put_both(&mut own, 20, 28);
    bytes[entry..entry + 28].copy_from_slice(&own);
    bytes[target..target + 28].copy_from_slice(&own);
    let error = open(&made, &bytes).unwrap_err();
    assert!(error.contains("continued without end"), "{error}");
}

#[test]
fn files_in_pieces_are_refused() {
    let continues = |bytes: &mut [u8], at: usize| bytes[at + 25] |= 0x80;
    let error = changed("c", continues);
    assert!(
        error.contains("a section that cannot be followed"),
        "{error}"
    );
    let error = changed("c", |bytes, at| {
        continues(bytes, at);
        put_both(bytes, at + 10, 2048);
    });
    assert!(error.contains("a/b/c is not in one piece"), "{error}");
    let error = changed("d", |bytes, at| {
        continues(bytes, at);
        put_both(bytes, at + 10, 2048);
    });
    assert!(
        error.contains("the last section of a/b/d is missing"),
        "{error}"
    );
}

#[test]
fn a_file_that_is_not_an_image_is_refused_with_the_reason() {
    let (made, bytes, _) = small();
    let cases = [
        (Vec::new(), "it ends before its first directory"),
        (vec![0; 40 * BLOCK], "it is not ISO 9660"),
        (bytes[..bytes.len() - 1].to_vec(), "it is cut off"),
        (bytes[..20 * BLOCK].to_vec(), "it is cut off"),
    ];
    for (bytes, part) in cases {
        let error = open(&made, &bytes).unwrap_err();
        assert!(error.contains(part), "{part}\n{error}");
    }
    let mut plain = bytes.clone();
    let root = sector(&plain, 16 * BLOCK + 156) as usize * BLOCK;
    plain[root + 34..root + 36].copy_from_slice(b"XX");
    let error = open(&made, &plain).unwrap_err();
    assert!(error.contains("the image has no Rock Ridge"), "{error}");
    let error = chain(&IsoImage::open(Path::new("/nowhere/X.iso")).unwrap_err());
    assert!(error.starts_with("cannot read /nowhere/X.iso"), "{error}");
}

#[test]
fn any_one_byte_of_the_directories_may_be_wrong() {
    let (made, good, metadata) = small();
    let file = fs::File::options().write(true).open(made.image()).unwrap();
    let (mut sound, mut refused) = (0, 0);
    for at in metadata {
        // A sample of the zeros between structures is enough.
        if good[at] == 0 && at % 16 != 0 {
            continue;
        }
        file.write_all_at(&[good[at] ^ 0xFF], at as u64).unwrap();
        match IsoImage::open(&made.image()) {
            Ok(image) => {
                assert!(
                    image
                        .entries()
                        .iter()
                        .all(|e| e.offset + e.size <= good.len() as u64),
                    "at {at}"
                );
                sound += 1;
            }
            Err(_) => refused += 1,
        }
        file.write_all_at(&good[at..=at], at as u64).unwrap();
    }
    assert!(sound > 100 && refused > 100, "{sound} {refused}");
}

#[test]
fn a_directory_of_gigabytes_costs_little() {
    let (made, mut bytes, _) = small();
    // A large, sparse file as one directory, all of it zeros.
    let (first, size) = (1000_u32, 2_u32 << 30);
    let descriptor = 16 * BLOCK;
    put_both(&mut bytes, descriptor + 80, first + size / SECTOR as u32);
    put_both(&mut bytes, descriptor + 156 + 2, first);
    put_both(&mut bytes, descriptor + 156 + 10, size);
    fs::write(made.image(), &bytes).unwrap();
    let file = fs::File::options().write(true).open(made.image()).unwrap();
    file.set_len(u64::from(first) * SECTOR + u64::from(size))
        .unwrap();
    let started = Instant::now();
    let error = chain(&IsoImage::open(&made.image()).unwrap_err());
    assert!(
        error.contains("there are more directories than any bundle has"),
        "{error}"
    );
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_gives_an_error_or_another_image(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        copies in proptest::collection::vec((any::<[prop::sample::Index; 2]>(), 1_usize..200), 0..3),
        cut in proptest::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let (made, mut bytes, metadata) = small();
        let base = metadata.start;
        // Used bytes only: flips in zeros between structures would find nothing.
        let used: Vec<usize> = metadata.clone().filter(|at| bytes[*at] != 0).collect();
        for (at, value) in flips {
            bytes[used[at.index(used.len())]] = value;
        }
        for ([from, to], length) in copies {
            let from = base + from.index(metadata.len() - length);
            let to = base + to.index(metadata.len() - length);
            bytes.copy_within(from..from + length, to);
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        use_up(&made, &bytes)?;
    }
}
