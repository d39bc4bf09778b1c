//! The ISO's content: reproducible, and without duplicates.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use halite_lab::build::{Programs, with_builder};
use halite_lab::command::run;
use serde_json::{Value, json};

use super::{Work, verdict};
use crate::test::Counts;

/// Size in bytes below which files may be the same by chance: empty ones and a few words.
const SMALL: u64 = 4096;

pub(super) fn checked((): &()) -> Result<Counts> {
    let work = Work::new()?;
    same_bytes(&work)?;
    nothing_twice(&work.bundle)?;
    no_layer_twice(&work.bundle)?;
    Ok(Counts {
        passed: 3,
        failed: 0,
    })
}

/// Builds again from the recipe and the lock of the lab's site, in one step and without results of
/// earlier builds: the ISO must have the same bytes.
fn same_bytes(work: &Work) -> Result<()> {
    let (first, out) = (recipe(&work.bundle)?, work.dir.join("again.iso"));
    let mut again: Value = serde_json::from_str(&fs::read_to_string(&first)?)?;
    let made = Path::new(again["cache"].as_str().context("the recipe has no cache")?).to_owned();
    let cache = work.dir.join("again-cache");
    // Downloads are not part of the test: keep them.
    fs::create_dir_all(&cache)?;
    run("cp", &[Path::new("-a"), &made.join("archives"), &cache])?;
    again["cache"] = json!(cache);
    let recipe = work.dir.join("again.yaml");
    fs::write(&recipe, again.to_string())?;
    let lock = recipe.with_extension("lock.yaml");
    fs::copy(first.with_extension("lock.yaml"), &lock)?;
    let before = fs::read(&lock)?;
    let mut command = work.ctl(&["bundle", "build", "--offline", "--recipe"]);
    with_builder(&mut command, Programs::Dev)?
        .arg(&recipe)
        .arg("--out")
        .arg(&out)
        .arg("--key")
        .arg(super::keys::builder()?);
    verdict(&mut command)?.accepts("building the ISO again")?;
    ensure!(
        fs::read(&lock)? == before,
        "the lock {} has changed",
        lock.display()
    );
    run("cmp", &[&work.sealed, &out]).context("the same recipe, lock and key made another ISO")?;
    for file in [&out, &recipe, &lock] {
        fs::remove_file(file)?;
    }
    fs::remove_dir_all(cache).map_err(Into::into)
}

/// The recipe from which the bundle was built. The lock next to it was resolved in the same build.
pub fn recipe(bundle: &Path) -> Result<PathBuf> {
    let manifest: Value = serde_json::from_slice(&fs::read(bundle.join("manifest.json"))?)?;
    for entry in fs::read_dir(std::path::absolute(halite_lab::cache())?.join("bundle"))? {
        let recipe = entry?.path().join("recipe.yaml");
        let (Ok(text), Ok(lock)) = (
            fs::read_to_string(&recipe),
            fs::read_to_string(recipe.with_extension("lock.yaml")),
        ) else {
            continue;
        };
        let text: Value = serde_saphyr::from_str(&text)?;
        let lock: Value = serde_saphyr::from_str(&lock)?;
        if text["kubernetes"] == manifest["kubernetes"] && lock["resolved"] == manifest["built"] {
            return Ok(recipe);
        }
    }
    anyhow::bail!(
        "no recipe below {} has made {}",
        halite_lab::cache().display(),
        bundle.display()
    )
}

/// Folder of texts that have several names, as in Debian: `GPL` is `GPL-3`.
const NAMED_TWICE: &str = "licences/";

/// Checks that no two files have the same content.
fn nothing_twice(bundle: &Path) -> Result<()> {
    let manifest: Value = serde_json::from_slice(&fs::read(bundle.join("manifest.json"))?)?;
    let mut by_content: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, entry) in manifest["files"]
        .as_object()
        .context("the manifest lists no files")?
    {
        if entry["size"].as_u64().unwrap_or_default() >= SMALL && !path.starts_with(NAMED_TWICE) {
            by_content
                .entry(entry["sha256"].as_str().unwrap_or_default())
                .or_default()
                .push(path);
        }
    }
    let twice: Vec<_> = by_content
        .values()
        .filter(|paths| paths.len() > 1)
        .collect();
    ensure!(twice.is_empty(), "these have the same content: {twice:?}");
    Ok(())
}

/// Checks that a layer which several images share is stored once, and not again with another
/// compression: an image's configuration has the digest of each unpacked layer.
fn no_layer_twice(bundle: &Path) -> Result<()> {
    let read = |path: &Path| -> Result<Value> { Ok(serde_json::from_slice(&fs::read(path)?)?) };
    let blob = |descriptor: &Value| -> Result<Value> {
        let digest = descriptor["digest"]
            .as_str()
            .context("a descriptor without a digest")?;
        read(&bundle.join("images/blobs").join(digest.replace(':', "/")))
    };
    let mut packed: BTreeMap<String, String> = BTreeMap::new();
    for image in read(&bundle.join("images/index.json"))?["manifests"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let manifest = blob(image)?;
        let configuration = blob(&manifest["config"])?;
        let unpacked = configuration["rootfs"]["diff_ids"]
            .as_array()
            .into_iter()
            .flatten();
        let layers = manifest["layers"].as_array().into_iter().flatten();
        for (unpacked, layer) in unpacked.zip(layers) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let digest = text(&layer["digest"]);
            if let Some(other) = packed.insert(text(unpacked), digest.clone()) {
                ensure!(
                    other == digest,
                    "the layers {other} and {digest} unpack to the same {unpacked}"
                );
            }
        }
    }
    ensure!(!packed.is_empty(), "the bundle has no layer");
    let blobs = fs::read_dir(bundle.join("images/blobs/sha256"))?.count();
    let images = read(&bundle.join("images/index.json"))?["manifests"]
        .as_array()
        .map_or(0, Vec::len);
    // Each image has its own manifest and configuration.
    ensure!(
        blobs <= packed.len() + 2 * images,
        "{blobs} blobs for {images} images and {} layers",
        packed.len()
    );
    Ok(())
}
