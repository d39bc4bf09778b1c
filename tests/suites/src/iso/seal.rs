//! The trailer: each of its parts damaged, forged without the key, truncated, extended, and
//! exchanged for another image's.

use std::fs;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context as _, Result, ensure};
use halite_lab::command::run;
use halite_upstream::store::hex;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::places::SECTOR;
use super::{Change, Work, damage, places};
use crate::test::Counts;

/// The byte that pads a part of the trailer to a whole sector.
const FILL: u8 = b'\n';

/// A part as the footer lists it: name, first byte, size.
type Part = (String, u64, u64);

pub(super) fn everything((): &()) -> Result<Counts> {
    let work = Work::new()?;
    work.sound()?;
    let parts = parts(&work)?;
    let passed =
        damaged(&work, &parts)? + forged(&work, &parts)? + ends(&work, &parts)? + older(&work)?;
    work.sound()?;
    Ok(Counts { passed, failed: 0 })
}

/// Map, statement and signatures: the parts between the image and the footer.
fn parts(work: &Work) -> Result<Vec<Part>> {
    let size = fs::metadata(&work.copy)?.len();
    let footer =
        String::from_utf8(work.read(size - SECTOR, SECTOR)?).context("the footer is not text")?;
    let mut parts = Vec::new();
    for line in footer.lines().skip(1) {
        let words: Vec<&str> = line.split(' ').collect();
        if let [name, at, size, ..] = words[..] {
            parts.push((name.to_owned(), at.parse()?, size.parse()?));
        }
    }
    let names: Vec<&str> = parts.iter().map(|(name, ..)| name.as_str()).collect();
    ensure!(
        names == ["image", "map", "statement", "signature", "footer"],
        "the trailer has {names:?}"
    );
    Ok(parts)
}

fn part<'a>(parts: &'a [Part], name: &str) -> Result<&'a Part> {
    parts
        .iter()
        .find(|(found, ..)| found == name)
        .with_context(|| format!("the trailer has no {name}"))
}

fn damaged(work: &Work, parts: &[Part]) -> Result<usize> {
    let mut passed = 0;
    for (name, at, size) in parts.iter().filter(|(name, ..)| name != "image") {
        let expected = match name.as_str() {
            "footer" => "footer".to_owned(),
            name => format!("its {name}"),
        };
        for byte in [*at, at + size / 2, at + size - 1] {
            // Without its magic words, it is no longer recognized as a footer.
            let expected = if name == "footer" && byte == *at {
                "its seal is damaged"
            } else {
                &expected
            };
            work.finds(
                &format!("byte {byte} of the {name}"),
                &[work.flipped(byte)?],
                &[expected.to_owned()],
            )?;
        }
        if !(at + size).is_multiple_of(SECTOR) {
            let padding = work.flipped(at + size)?;
            work.finds(
                &format!("the padding behind the {name}"),
                &[padding],
                std::slice::from_ref(name),
            )?;
        }
        passed += 1;
    }
    Ok(passed)
}

/// Forgeries by an attacker who knows the format and has no key: all unsigned parts match.
fn forged(work: &Work, parts: &[Part]) -> Result<usize> {
    let forgery = |edits: &[(&str, Vec<u8>)], more: Vec<Change>, what: &str, expected: &str| {
        let mut changes = more;
        for (name, bytes) in edits {
            changes.push(Change {
                at: part(parts, name)?.1,
                bytes: bytes.clone(),
            });
        }
        changes.push(footer(work, parts, edits)?);
        work.finds(what, &changes, &[expected.to_owned()])
    };
    let text = |name: &str| -> Result<String> {
        let (_, at, size) = part(parts, name)?;
        Ok(String::from_utf8(work.read(*at, *size)?)?)
    };
    // Set a newer date, so that a site would mistake the image for a successor.
    let statement = text("statement")?;
    let newer = statement.replacen("\"20", "\"21", 1);
    let unfit = "does not match its statement";
    forgery(
        &[("statement", newer.into_bytes())],
        Vec::new(),
        "a statement with another date",
        unfit,
    )?;

    // Change one byte of a file, and update the map.
    let files = places::files(&work.copy)?;
    let extent = *files.get("install").context("the ISO has no install")?;
    let change = || work.flipped(extent.at + 3);
    let mut content = work.read(extent.at, extent.size)?;
    let map = text("map")?;
    ensure!(
        map.contains(&sha256(&content)),
        "the map does not have the SHA-256 of install"
    );
    let before = sha256(&content);
    content[3] ^= 1;
    let forged_map = map.replace(&before, &sha256(&content));
    let expected = "and its statement has";
    let edits = [("map", forged_map.clone().into_bytes())];
    forgery(
        &edits,
        vec![change()?],
        "a file with a map that fits",
        expected,
    )?;

    // Update the statement too.
    let forged_statement =
        statement.replace(&sha256(map.as_bytes()), &sha256(forged_map.as_bytes()));
    ensure!(
        forged_statement != statement,
        "the statement does not have the SHA-256 of the map"
    );
    let edits = [
        ("map", forged_map.into_bytes()),
        ("statement", forged_statement.into_bytes()),
    ];
    forgery(
        &edits,
        vec![change()?],
        "a file with a map and a statement that fit",
        unfit,
    )?;

    // Leave out the signature: the footer moves to its position.
    let at = part(parts, "signature")?.1;
    let unsigned: Vec<Part> = parts
        .iter()
        .filter(|(name, ..)| name != "signature")
        .cloned()
        .collect();
    let moved = footer_at(work, &unsigned, &[], at)?;
    let copy = File::options().write(true).open(&work.copy)?;
    copy.write_all_at(&moved, at)?;
    copy.set_len(at + SECTOR)?;
    let verdict = work.verify(&work.copy, &work.public);
    work.restore(at)?;
    verdict?.refuses(
        "an ISO whose signature was removed",
        &["it is not signed".to_owned()],
    )?;
    Ok(4)
}

/// A footer for a trailer in which some parts have other bytes of the same size.
fn footer(work: &Work, parts: &[Part], edits: &[(&str, Vec<u8>)]) -> Result<Change> {
    let at = part(parts, "footer")?.1;
    Ok(Change {
        at,
        bytes: footer_at(work, parts, edits, at)?,
    })
}

fn footer_at(work: &Work, parts: &[Part], edits: &[(&str, Vec<u8>)], end: u64) -> Result<Vec<u8>> {
    let mut text = "HALITE-SEAL-1\n".to_owned();
    for (name, at, size) in parts.iter().filter(|(name, ..)| name != "footer") {
        if name == "image" {
            text.push_str(&format!("image {at} {size}\n"));
            continue;
        }
        let edited = edits.iter().find(|(edited, _)| edited == name);
        let bytes = match edited {
            Some((_, bytes)) => bytes.clone(),
            None => work.read(*at, *size)?,
        };
        ensure!(
            bytes.len() as u64 == *size,
            "a forged {name} has another size"
        );
        text.push_str(&format!("{name} {at} {size} {}\n", sha256(&bytes)));
    }
    text = format!(
        "{text}footer {end} {} {}\n",
        text.len(),
        sha256(text.as_bytes())
    );
    let mut bytes = text.into_bytes();
    bytes.resize(usize::try_from(SECTOR)?, FILL);
    Ok(bytes)
}

/// Truncates the image at several positions, and appends to it.
fn ends(work: &Work, parts: &[Part]) -> Result<usize> {
    let whole = fs::metadata(&work.copy)?.len();
    let (_, _, image) = part(parts, "image")?;
    let (map, statement, signature) = (
        part(parts, "map")?,
        part(parts, "statement")?,
        part(parts, "signature")?,
    );
    let cuts = [
        whole - 1,
        whole - SECTOR / 2,
        whole - SECTOR,
        signature.1 + 10,
        signature.1,
        statement.1 + 10,
        map.1 + map.2 / 2,
        *image,
        image - 1,
        image - SECTOR,
        image / 2,
        20 * SECTOR,
        17 * SECTOR,
        100,
        0,
    ];
    let copy = File::options().write(true).open(&work.copy)?;
    for length in cuts {
        // The lengths decrease, so one restore at the end is enough.
        copy.set_len(length)?;
        let what = format!("the ISO cut off at {length} of {whole}");
        work.verify(&work.copy, &work.public)?
            .refuses(&what, &["cut off".to_owned()])?;
    }
    work.restore(0)?;
    let footer = work.read(whole - SECTOR, SECTOR)?;
    for (what, more) in [
        ("a byte", vec![0]),
        ("zeros", vec![0; 5000]),
        ("its own footer", footer),
    ] {
        copy.write_all_at(&more, whole)?;
        let verdict = work.verify(&work.copy, &work.public);
        copy.set_len(whole)?;
        let expected = if what == "its own footer" {
            "footer"
        } else {
            "bytes follow its seal"
        };
        verdict?.refuses(&format!("{what} behind the ISO"), &[expected.to_owned()])?;
    }
    Ok(cuts.len() + 3)
}

/// An older bundle, signed with the same key: its seal does not fit the newer image, and a message
/// says that it is older.
fn older(work: &Work) -> Result<usize> {
    let directory = work.dir.join("older");
    // Copy the directory's content, also if the path is a link to it.
    let (from, to) = (
        format!("{}/.", work.bundle.display()),
        directory.to_string_lossy().into_owned(),
    );
    run("cp", &["-al", &from, &to])?;
    let file = directory.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&file)?)?;
    manifest["built"] = "2020-01-01T00:00:00Z".into();
    let mut bytes = serde_json::to_vec_pretty(&manifest)?;
    bytes.push(b'\n');
    let checksum = format!("{}  manifest.json\n", sha256(&bytes));
    // The copy hard-links the bundle's files: replace files, never write into one.
    for (name, content) in [
        ("manifest.json", bytes),
        ("manifest.json.sha256", checksum.into_bytes()),
    ] {
        fs::remove_file(directory.join(name))?;
        fs::write(directory.join(name), content)?;
    }
    let (iso, key) = (work.dir.join("older.iso"), super::keys::builder()?);
    let mut pack = work.ctl(&["bundle", "pack"]);
    super::verdict(
        pack.arg(&directory)
            .arg("--out")
            .arg(&iso)
            .arg("--key")
            .arg(key),
    )?
    .accepts("packing it")?;
    work.verify(&iso, &work.public)?
        .accepts("the older ISO by itself")?;

    let size = fs::metadata(&iso)?.len();
    let whole = fs::metadata(&work.copy)?.len();
    ensure!(size == whole, "the two ISOs have {size} and {whole} bytes");
    let image = part(&parts(work)?, "image")?.2;
    let mut trailer = vec![0; usize::try_from(size - image)?];
    File::open(&iso)?.read_exact_at(&mut trailer, image)?;
    // In addition to the dates in directories and descriptors, the manifest and the files about it
    // differ.
    let between = format!("✗ {}", damage::BETWEEN);
    let changed = [
        "✗ manifest.json: ",
        "✗ manifest.json.sha256: ",
        "✗ manifest.json.",
    ]
    .map(str::to_owned);
    let copy = File::options().write(true).open(&work.copy)?;
    copy.write_all_at(&trailer, image)?;
    let verdict = work.verify(&work.copy, &work.public);
    work.restore(image)?;
    let verdict = verdict?;
    ensure!(
        verdict.code == Some(1),
        "the seal of an older bundle: {}",
        verdict.said
    );
    for wanted in changed.iter().chain([&between]) {
        ensure!(
            verdict.said.contains(wanted.as_str()),
            "{wanted:?} is not in {}",
            verdict.said
        );
    }
    Ok(1)
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
