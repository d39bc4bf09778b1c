//! Damage: every byte, every truncation, and every part replaced by another image's.

use std::fs;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use halite_seal::keys::Trust;
use proptest::prelude::*;

use crate::image::{TestImage, complaints, key, parts, trust};

/// A signed image, and a trust store with its key.
fn signed() -> (TestImage, Trust) {
    let image = TestImage::small();
    let key = key(image.dir.path(), "build");
    image.seal(std::slice::from_ref(&key));
    (image, trust(&[&key]))
}

/// The part that contains a byte: a part's name, `padding` after one, or `footer`.
fn place(bytes: &[u8], at: usize) -> String {
    if at >= bytes.len() - 2048 {
        return "footer".to_owned();
    }
    let parts = parts(bytes);
    let (name, ..) = parts
        .iter()
        .rev()
        .find(|(_, offset, _)| *offset <= at)
        .unwrap();
    let inside = parts
        .iter()
        .any(|(_, offset, size)| (*offset..offset + size).contains(&at));
    if inside {
        name.clone()
    } else {
        format!("padding after {name}")
    }
}

/// Every byte of the trailer's lines, and every seventh byte of the image and of the padding, whose
/// bytes are all alike: the damage is found and located.
#[test]
fn a_byte_that_flips_is_found_and_named() {
    let (image, trust) = signed();
    let bytes = image.bytes();
    let file = File::options().write(true).open(&image.iso).unwrap();
    let size = parts(&bytes)[0].2;
    let alike = |at: usize| at < size || bytes[at - 1..=at] == *b"\n\n";
    for (at, byte) in bytes
        .iter()
        .enumerate()
        .filter(|(at, _)| at % 7 == 0 || !alike(*at))
    {
        // One bit per byte in turn; the odd distance covers all bits in each part.
        file.write_all_at(&[byte ^ (1 << (at % 8))], at as u64)
            .unwrap();
        let found = complaints(&image.iso, &trust);
        let [found] = &found[..] else {
            panic!("byte {at}: {found:?}")
        };
        let inside = image
            .placed
            .iter()
            .find(|placed| (placed.offset..placed.offset + placed.size).contains(&(at as u64)));
        match (place(&bytes, at).as_str(), inside) {
            ("image", Some(placed)) => {
                let (path, size, offset) = (&placed.path, placed.size, placed.offset);
                let last = size - 1;
                let whole = format!(
                    "{path}: bytes 0 to {last} (at {offset} of the image) have changed since sealing"
                );
                assert_eq!(*found, whole, "byte {at}");
            }
            ("image", None) => {
                let range = found
                    .strip_prefix("between the files (descriptors, directories, padding): bytes ");
                let range = range
                    .and_then(|rest| rest.strip_suffix(" of the image have changed since sealing"));
                let (first, last) = range
                    .and_then(|range| range.split_once(" to "))
                    .expect(found);
                let range = first.parse::<usize>().unwrap()..=last.parse::<usize>().unwrap();
                assert!(range.contains(&at), "byte {at}: {found}");
            }
            ("footer", _) => {
                assert!(
                    found.contains("footer")
                        || found.contains("its seal is damaged")
                        || found.contains("it has no seal"),
                    "byte {at}: {found}"
                );
            }
            (part, _) => {
                assert!(
                    found.contains(part.split(' ').next_back().unwrap()),
                    "byte {at} in {part}: {found}"
                )
            }
        }
        file.write_all_at(&[*byte], at as u64).unwrap();
    }
    assert_eq!(
        complaints(&image.iso, &trust),
        [""; 0],
        "everything is restored"
    );
}

/// Accidental damage is found without a signature too.
#[test]
fn damage_is_found_in_an_unsigned_image() {
    let image = TestImage::small();
    image.seal(&[]);
    let bytes = image.bytes();
    let file = File::options().write(true).open(&image.iso).unwrap();
    for (at, byte) in bytes.iter().enumerate().step_by(7) {
        file.write_all_at(&[!byte], at as u64).unwrap();
        assert_ne!(
            complaints(&image.iso, &Trust::unsigned()),
            [""; 0],
            "byte {at}"
        );
        file.write_all_at(&[*byte], at as u64).unwrap();
    }
}

#[test]
fn a_cut_is_found_wherever_it_is() {
    let (image, trust) = signed();
    let whole = image.bytes();
    let file = File::options().write(true).open(&image.iso).unwrap();
    let mut lengths: Vec<_> = (0..whole.len()).step_by(97).collect();
    for (_, offset, size) in parts(&whole) {
        lengths.extend([
            offset.saturating_sub(1),
            offset,
            offset + 1,
            offset + size - 1,
            offset + size,
        ]);
    }
    lengths.extend(whole.len() - 2100..whole.len());
    lengths.sort_unstable();
    for length in lengths.into_iter().rev() {
        file.set_len(length as u64).unwrap();
        let found = complaints(&image.iso, &trust);
        assert!(
            found.len() == 1 && found[0].contains("cut off"),
            "{length}: {found:?}"
        );
        let left = whole.len() - length;
        if left < 2000 {
            assert!(
                found[0].contains(&format!("{left} bytes are missing")),
                "{length}: {found:?}"
            );
        }
    }
}

/// The message names the image's size if the image records it.
#[test]
fn a_cut_image_is_told_from_one_that_was_never_sealed() {
    let (image, trust) = signed();
    let mut bytes = vec![0; 40 * 2048];
    bytes[16 * 2048..16 * 2048 + 6].copy_from_slice(b"\x01CD001");
    bytes[16 * 2048 + 80..16 * 2048 + 84].copy_from_slice(&40_u32.to_le_bytes());
    let said = |bytes: &[u8]| {
        fs::write(&image.iso, bytes).unwrap();
        complaints(&image.iso, &trust).concat()
    };
    assert!(said(&bytes[..39 * 2048 + 5]).contains("cut off: 79877 bytes of an image of 81920"));
    assert!(said(&bytes).contains("it has no seal: it was never sealed"));
    bytes.extend([1; 5000]);
    assert!(said(&bytes).contains("its seal is damaged or cut off"));
}

#[test]
fn what_is_appended_is_found() {
    let (image, trust) = signed();
    let whole = image.bytes();
    let footer = whole[whole.len() - 2048..].to_vec();
    for more in [
        vec![0],
        vec![b'\n'; 2048],
        vec![0; 5_000],
        vec![b'x'; 100_000],
    ] {
        fs::write(&image.iso, [&whole[..], &more].concat()).unwrap();
        let found = complaints(&image.iso, &trust).concat();
        assert!(
            found.contains(&format!("{} bytes follow its seal", more.len())),
            "{found}"
        );
        assert!(
            found.contains(&format!("truncate -s {}", whole.len())),
            "{found}"
        );
    }
    fs::write(&image.iso, [&whole[..], &footer].concat()).unwrap();
    let found = complaints(&image.iso, &trust).concat();
    assert!(
        found.contains("footer") && found.contains("parts end"),
        "a second footer: {found}"
    );
    fs::write(&image.iso, [&whole[..], &whole].concat()).unwrap();
    let found = complaints(&image.iso, &trust).concat();
    assert!(found.contains("footer"), "the whole again: {found}");
}

#[test]
fn two_files_that_change_places_are_both_named() {
    let (image, trust) = signed();
    let mut bytes = image.bytes();
    let (a, b) = (
        image.offset("images/blobs/sha256/aa") as usize,
        image.offset("images/blobs/sha256/bb") as usize,
    );
    let (first, second) = bytes.split_at_mut(b);
    first[a..a + 5000].swap_with_slice(&mut second[..5000]);
    fs::write(&image.iso, &bytes).unwrap();
    let found = complaints(&image.iso, &trust);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("images/blobs/sha256/aa: bytes 0 to 4999"),
        "{found:?}"
    );
    assert!(
        found[1].starts_with("images/blobs/sha256/bb: bytes 0 to 4999"),
        "{found:?}"
    );
}

#[test]
fn the_seal_of_another_image_fits_no_other() {
    let (old, new) = (TestImage::small(), TestImage::small());
    let key = key(old.dir.path(), "build");
    let trust = trust(&[&key]);
    let mut bytes = new.bytes();
    let size = bytes.len();
    bytes[5000..5100].fill(1);
    bytes[size - 1] = 1;
    fs::write(&new.iso, &bytes).unwrap();
    old.seal(std::slice::from_ref(&key));
    new.seal(std::slice::from_ref(&key));
    assert_eq!(complaints(&new.iso, &trust), [""; 0]);

    // The older trailer on the newer image; the same key signed both.
    let (older, newer) = (old.bytes(), new.bytes());
    fs::write(&new.iso, [&newer[..size], &older[size..]].concat()).unwrap();
    let found = complaints(&new.iso, &trust);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("between the files") && found[1].starts_with("between the files"),
        "{found:?}"
    );

    // The older statement and signature with the newer map and a matching footer.
    let (from, to) = (parts(&older)[2].1, older.len());
    let mixed = [&newer[..from], &older[from..to]].concat();
    fs::write(&new.iso, &mixed).unwrap();
    assert!(
        complaints(&new.iso, &trust).concat().contains("its map"),
        "the footer's hash finds it"
    );
    fs::write(&new.iso, crate::hostile::repaired(mixed)).unwrap();
    let found = complaints(&new.iso, &trust).concat();
    assert!(found.contains("and its statement has"), "{found}");

    // On an image of another size.
    let other = TestImage::new(&[("manifest.json", 300)]);
    other.seal(std::slice::from_ref(&key));
    fs::write(
        &other.iso,
        [&other.bytes()[..parts(&other.bytes())[0].2], &older[size..]].concat(),
    )
    .unwrap();
    assert!(complaints(&other.iso, &trust).concat().contains("footer"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Any image, any byte, any other value.
    #[test]
    fn one_wrong_byte_is_always_found(
        sizes in proptest::collection::vec(0_u64..9000, 1..6),
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), 1_u8..), 20),
        sign in any::<bool>(),
    ) {
        let names: Vec<_> = (0..sizes.len()).map(|at| format!("file-{at}")).collect();
        let mut files: Vec<_> = names.iter().map(String::as_str).zip(sizes).collect();
        files[0].0 = "manifest.json";
        let image = TestImage::new(&files);
        let key = key(image.dir.path(), "build");
        let trust = if sign { trust(&[&key]) } else { Trust::unsigned() };
        image.seal(if sign { std::slice::from_ref(&key) } else { &[] });
        prop_assert_eq!(complaints(&image.iso, &trust), Vec::<String>::new());
        let bytes = image.bytes();
        let file = File::options().write(true).open(&image.iso).unwrap();
        for (index, mask) in flips {
            let at = index.index(bytes.len());
            file.write_all_at(&[bytes[at] ^ mask], at as u64).unwrap();
            prop_assert!(!complaints(&image.iso, &trust).is_empty(), "byte {} of {}", at, bytes.len());
            file.write_all_at(&[bytes[at]], at as u64).unwrap();
        }
    }
}
