//! Sealed images that were not changed.

use std::collections::BTreeMap;
use std::fs;

use halite_errors::chain;
use halite_iso9660::read;
use halite_iso9660::write::{Content, InputFile, Placed, Volume, write};
use halite_seal::keys::Trust;
use halite_testkit::hex;

use crate::image::{TestImage, check, complaints, facts, key, part, trust};

#[test]
fn a_sealed_image_is_sound_and_says_what_it_is() {
    let image = TestImage::small();
    let before = image.bytes();
    let key = key(image.dir.path(), "build");
    let trust = trust(&[&key]);
    image.seal(std::slice::from_ref(&key));
    let after = image.bytes();
    assert_eq!(
        after[..before.len()],
        before,
        "the image itself is not touched"
    );
    assert_eq!(after.len() % 2048, 0);

    let mut lines = Vec::new();
    let report =
        halite_seal::check(&image.iso, &trust, &mut |line| lines.push(line.to_owned())).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    assert_eq!(report.files, 3);
    assert_eq!(report.signers[0].key, key.public().id());
    assert_eq!(report.ignored, [""; 0]);
    let statement = &report.statement;
    assert_eq!(
        (statement.name.as_str(), statement.version.as_str()),
        ("halite", "1.36.3-1")
    );
    assert_eq!(statement.size, before.len() as u64);
    assert_eq!(statement.sha256, hex(&before));
    assert_eq!(statement.map_sha256, hex(part(&after, "map")));
    assert_eq!(statement.manifest_sha256, hex(&before[4096..4396]));
    assert!(!lines.is_empty() && lines.len() <= 10, "{lines:?}");
}

#[test]
fn the_same_image_facts_and_key_give_the_same_bytes() {
    let (one, two) = (TestImage::small(), TestImage::small());
    let key = key(one.dir.path(), "build");
    one.seal(std::slice::from_ref(&key));
    two.seal(std::slice::from_ref(&key));
    assert!(one.bytes() == two.bytes());
}

/// The largest segment is 16 MiB: a file larger than two segments is read as three.
#[test]
fn a_large_file_is_cut_and_damage_in_it_is_placed() {
    const MIB: u64 = 1 << 20;
    let image = TestImage::new(&[("manifest.json", 1), ("large", 40 * MIB + 5), ("after", 3)]);
    image.seal(&[]);
    assert_eq!(complaints(&image.iso, &Trust::unsigned()), [""; 0]);
    let mut bytes = image.bytes();
    let at = image.offset("large");
    bytes[(at + 17 * MIB) as usize] ^= 1;
    fs::write(&image.iso, &bytes).unwrap();
    let of = at + 16 * MIB;
    let message = format!(
        "large: bytes 16777216 to 33554431 (at {of} of the image) have changed since sealing"
    );
    assert_eq!(complaints(&image.iso, &Trust::unsigned()), [message]);
    // Two adjacent damaged segments are one line.
    bytes[(at + 40 * MIB) as usize] ^= 1;
    fs::write(&image.iso, &bytes).unwrap();
    let message = format!(
        "large: bytes 16777216 to 41943044 (at {of} of the image) have changed since sealing"
    );
    assert_eq!(complaints(&image.iso, &Trust::unsigned()), [message]);
}

#[test]
fn an_empty_file_takes_no_place() {
    let image = TestImage::new(&[("manifest.json", 2048), ("empty", 0), ("after", 2048)]);
    image.seal(&[]);
    let report = check(&image.iso, &Trust::unsigned()).unwrap();
    assert!(report.is_sound() && report.files == 2, "{report:?}");
}

#[test]
fn what_cannot_be_sealed_is_refused_and_left_as_it_was() {
    let image = TestImage::small();
    let before = image.bytes();
    let refused = |placed: &[Placed], facts: &halite_seal::Facts| {
        let error = halite_seal::seal(&image.iso, placed, facts, &[], &mut |_| {})
            .map_err(|error| chain(&error))
            .unwrap_err();
        assert!(image.bytes() == before, "{error}");
        error
    };
    let placed = |path: &str, offset, size| Placed {
        path: path.to_owned(),
        offset,
        size,
    };
    let overlapping = [
        image.placed[0].clone(),
        placed("a", 4200, 10),
        placed("b", u64::MAX, 2),
    ];
    let error = refused(&overlapping, &facts());
    assert!(
        error.contains("a overlaps manifest.json") && error.contains("b ends after the image"),
        "{error}"
    );
    assert!(refused(&image.placed[1..], &facts()).contains("it contains no manifest.json"));
    let named = [image.placed[0].clone(), placed("a\n", 8192, 10)];
    assert!(
        refused(&named, &facts()).contains(r"`a\n` is not a valid name"),
        "names are printed on terminals"
    );
    let facts = halite_seal::Facts {
        version: "1\ttimestamp:0".to_owned(),
        ..facts()
    };
    assert!(refused(&image.placed, &facts).contains("control character"));

    image.seal(&[]);
    let sealed = image.bytes();
    let error = halite_seal::seal(
        &image.iso,
        &image.placed,
        &crate::image::facts(),
        &[],
        &mut |_| {},
    )
    .unwrap_err();
    assert!(chain(&error).contains("it is already sealed"), "{error}");
    assert!(image.bytes() == sealed);
    fs::write(&image.iso, &before[..before.len() - 1]).unwrap();
    let error = halite_seal::seal(
        &image.iso,
        &image.placed,
        &crate::image::facts(),
        &[],
        &mut |_| {},
    )
    .unwrap_err();
    assert!(chain(&error).contains("whole sectors of 2048"), "{error}");
}

/// A real image: the seal names the places that the writer reports, and the seal does not disturb
/// the reader.
#[test]
fn an_iso_is_sealed_and_still_read() {
    let dir = tempfile::tempdir().unwrap();
    let iso = dir.path().join("halite.iso");
    let source = |text: &str| InputFile {
        from: Content::Bytes(text.as_bytes().to_vec()),
        mode: 0o644,
    };
    let files: BTreeMap<_, _> = [
        ("manifest.json", "{}"),
        ("docs/empty", ""),
        ("docs/a-long-name.md", "# Docs"),
    ]
    .map(|(path, text)| (path.to_owned(), source(text)))
    .into();
    let volume = Volume {
        id: facts().volume,
        date: facts().built,
    };
    let placed = write(&iso, &volume, &files, &mut |_| {}).unwrap();
    let key = key(dir.path(), "build");
    halite_seal::seal(
        &iso,
        &placed,
        &facts(),
        std::slice::from_ref(&key),
        &mut |_| {},
    )
    .unwrap();
    assert_eq!(complaints(&iso, &trust(&[&key])), [""; 0]);
    let paths: Vec<_> = read::IsoImage::open(&iso)
        .unwrap()
        .entries()
        .iter()
        .map(|entry| entry.path.clone())
        .collect();
    assert!(
        paths.contains(&"docs/a-long-name.md".to_owned()),
        "{paths:?}"
    );

    let sealed = fs::read(&iso).unwrap();
    let find = |what: &[u8]| {
        sealed
            .windows(what.len())
            .position(|window| window == what)
            .unwrap()
    };
    for (what, said) in [
        (&b"# Docs"[..], "docs/a-long-name.md: bytes 0 to 5 "),
        (
            b"a-long-name.md",
            "between the files (descriptors, directories, padding): ",
        ),
        (
            b"CD001",
            "between the files (descriptors, directories, padding): bytes 0 to ",
        ),
    ] {
        let mut bytes = sealed.clone();
        bytes[find(what)] ^= 1;
        fs::write(&iso, &bytes).unwrap();
        let found = complaints(&iso, &trust(&[&key]));
        assert!(found.len() == 1 && found[0].starts_with(said), "{found:?}");
    }
}
