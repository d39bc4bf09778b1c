//! One flipped bit in every kind of file, and in every structure outside files.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::places::{Extent, SECTOR};
use super::{Change, Work, places};
use crate::test::Counts;

/// Kinds that must occur.
const KINDS: &[&str] = &[
    "a layer",
    "the configuration of an image",
    "the manifest of an image",
    "images/index.json",
    "images/oci-layout",
    "apt/pool/*.deb",
    "apt/dists/*/Release",
    "apt/dists/*/InRelease",
    "apt/dists/*/Release.gpg",
    "apt/dists/*/Packages",
    "apt/halite.gpg",
    "bin/ctl",
    "bin/halite-master",
    "bin/halite-minion",
    "states/*.sls",
    "states/*.j2",
    "nginx/registry.conf",
    "nginx/manifests.map",
    "base/dpkg-status",
    "install",
    "manifest.json",
    "manifest.json.sha256",
    "manifest.json.*.minisig",
];

/// Size in bytes from which a file can span several pieces of the map.
const LARGE: u64 = 16 << 20;

/// The report for bytes outside files.
pub(super) const BETWEEN: &str = "between the files (descriptors, directories, padding): bytes ";

pub(super) fn everywhere((): &()) -> Result<Counts> {
    let work = Work::new()?;
    work.sound()?;
    let files = places::files(&work.copy)?;
    let mut counts = Counts::default();
    let kinds = kinds(&work, &files)?;
    for wanted in KINDS {
        ensure!(
            kinds.contains_key(*wanted),
            "the ISO has no {wanted}: {:?}",
            kinds.keys()
        );
    }
    for (kind, (path, extent)) in &kinds {
        // A small file has one hash for all its bytes; of a larger one take the first byte, one in
        // the middle and the last.
        let middle = extent.at + extent.size / 2;
        let small = extent.size < LARGE;
        let places = if small {
            vec![middle]
        } else {
            vec![extent.at, middle, extent.end() - 1]
        };
        for at in places {
            let expected = format!("✗ {path}: bytes ");
            work.finds(
                &format!("{kind}, {path}, byte {at}"),
                &[work.flipped(at)?],
                &[expected],
            )?;
        }
        counts.passed += 1;
    }
    for (what, at) in structures(&work, &files)? {
        let change = work.flipped(at)?;
        let range = format!("✗ {BETWEEN}");
        work.finds(&format!("{what}, byte {at}"), &[change], &[range])?;
        counts.passed += 1;
    }
    exchanged(&work, &files)?;
    counts.passed += 2;
    work.sound()?;
    Ok(counts)
}

/// A file of every kind, with its extent. A file unknown to this function gets a kind from its
/// directory and suffix.
fn kinds(
    work: &Work,
    files: &BTreeMap<String, Extent>,
) -> Result<BTreeMap<String, (String, Extent)>> {
    let roles = roles(work, files)?;
    let mut kinds = BTreeMap::new();
    for (path, extent) in files {
        let (directory, name) = path.split_once('/').unwrap_or(("", path));
        let last = name.rsplit('/').next().unwrap_or(name);
        let suffix = last.rsplit_once('.').map_or("", |(_, suffix)| suffix);
        let kind = match directory {
            "images" => roles.get(path).cloned().unwrap_or_else(|| path.clone()),
            "apt" if name.starts_with("dists/") => format!("apt/dists/*/{last}"),
            "apt" if name.starts_with("pool/") => format!("apt/pool/*.{suffix}"),
            "" if last.ends_with(".minisig") => "manifest.json.*.minisig".to_owned(),
            "" | "apt" | "bin" | "nginx" | "base" => path.clone(),
            _ => format!("{directory}/*.{suffix}"),
        };
        // Take the largest layer: it spans several pieces of the map.
        let larger = |(_, other): &(String, Extent)| other.size < extent.size;
        if kinds.get(&kind).is_none_or(larger) {
            kinds.insert(kind, (path.clone(), *extent));
        }
    }
    Ok(kinds)
}

/// The role of each blob in its image, according to the index and the manifests in the ISO itself.
fn roles(work: &Work, files: &BTreeMap<String, Extent>) -> Result<BTreeMap<String, String>> {
    let read = |path: &str| -> Result<Value> {
        let extent = files
            .get(path)
            .with_context(|| format!("the ISO has no {path}"))?;
        Ok(serde_json::from_slice(&work.read(extent.at, extent.size)?)?)
    };
    let place = |descriptor: &Value| {
        format!(
            "images/blobs/{}",
            descriptor["digest"]
                .as_str()
                .unwrap_or_default()
                .replace(':', "/")
        )
    };
    let mut roles = BTreeMap::new();
    for image in read("images/index.json")?["manifests"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let path = place(image);
        let manifest = read(&path)?;
        roles.insert(path, "the manifest of an image".to_owned());
        roles.insert(
            place(&manifest["config"]),
            "the configuration of an image".to_owned(),
        );
        for layer in manifest["layers"].as_array().into_iter().flatten() {
            roles.insert(place(layer), "a layer".to_owned());
        }
    }
    Ok(roles)
}

/// The structures outside files, each with the position of one of its bytes.
fn structures(work: &Work, files: &BTreeMap<String, Extent>) -> Result<Vec<(String, u64)>> {
    let mut found = vec![
        ("the first byte of the image".to_owned(), 0),
        ("the system area".to_owned(), 15 * SECTOR + 7),
        (
            "the volume descriptor that is the last".to_owned(),
            18 * SECTOR,
        ),
    ];
    for (name, view) in places::views(work)? {
        found.push((
            format!("the volume descriptor of {name}"),
            view.descriptor + 40,
        ));
        found.push((
            format!("the end of the volume descriptor of {name}"),
            view.descriptor + SECTOR - 1,
        ));
        found.push((format!("the path table of {name}"), view.little + 2));
        found.push((
            format!("the path table for other processors of {name}"),
            view.big + 2,
        ));
        let records = places::records(work, view.root)?;
        let record = records
            .first()
            .with_context(|| format!("{name} has no file in its root"))?;
        // Offsets in a directory record: start of the content, size, flags, name.
        for (what, byte) in [("extent", 2), ("size", 10), ("flags", 25), ("name", 33)] {
            found.push((
                format!("the {what} in a directory record of {name}"),
                record + byte,
            ));
        }
    }
    let mut padded = files
        .values()
        .filter(|extent| !extent.size.is_multiple_of(SECTOR));
    let padded = padded.next_back().context("no file needs padding")?;
    found.push(("the padding behind a file".to_owned(), padded.end()));
    found.push((
        "the end of the padding behind a file".to_owned(),
        padded.end().next_multiple_of(SECTOR) - 1,
    ));
    Ok(found)
}

/// Exchanges two files: by their content, and by the records that point to them.
fn exchanged(work: &Work, files: &BTreeMap<String, Extent>) -> Result<()> {
    let mut blobs = files
        .iter()
        .filter(|(path, _)| path.starts_with("images/blobs/"));
    let (one, two) = (blobs.next(), blobs.next_back());
    let ((first, a), (second, b)) = one.zip(two).context("the ISO has not two blobs")?;
    let size = a.size.min(b.size);
    let changes = [
        Change {
            at: a.at,
            bytes: work.read(b.at, size)?,
        },
        Change {
            at: b.at,
            bytes: work.read(a.at, size)?,
        },
    ];
    let expected = [format!("✗ {first}: bytes "), format!("✗ {second}: bytes ")];
    work.finds("two blobs that have changed places", &changes, &expected)?;

    let [(_, view), _] = places::views(work)?;
    let records = places::records(work, view.root)?;
    let [one, .., two] = records[..] else {
        anyhow::bail!("the root has not two files")
    };
    // Extent and size, each in both byte orders (ECMA-119 9.1.3, 9.1.4).
    let changes = [
        Change {
            at: one + 2,
            bytes: work.read(two + 2, 16)?,
        },
        Change {
            at: two + 2,
            bytes: work.read(one + 2, 16)?,
        },
    ];
    work.finds(
        "two files whose records lead to each other",
        &changes,
        &[format!("✗ {BETWEEN}")],
    )
}
