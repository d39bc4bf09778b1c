//! The documents of a bundle: its documentation, the texts of licences, and the list of its
//! components.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use halite_durable::{digest, files};
use halite_fetch::{ImageRef, oci_layout, parallel};
use halite_manifest::{Manifest, ManifestEntry};
use serde::{Deserialize, Serialize};

use crate::build_cache::BuildCache;
use crate::error::Error;
use crate::licences::Licences;
use crate::recipe::Recipe;
use crate::sbom::crates::Inputs;
use crate::sbom::{Contents, Deb, Material, SbomImage};
use crate::{apt, licences, sbom};

/// The folder of the documentation in a bundle.
pub const DOCS: &str = "docs";

/// Revision of the search in archives; increased with each change of its targets.
const REVISION: u32 = 2;

/// The smallest host that a bundle is built on has two processors.
const READERS: usize = 2;

/// Adds all documents to the bundle in `dir`, which must already have everything else, and to its
/// list of files.
pub fn add(
    recipe: &Recipe,
    dir: &Path,
    parts: &BuildCache,
    manifest: &mut Manifest,
    progress: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    if let Some(folder) = &recipe.docs {
        for path in files::walk(folder)? {
            let from = folder.join(&path);
            let content = fs::read(&from).map_err(Error::file("read", &from))?;
            put(dir, format!("{DOCS}/{path}"), &content, manifest)?;
        }
    }
    progress("listing the components of the bundle");
    let (texts, common) = gathered(recipe.licences.as_deref())?;
    let mut known = Licences::default();
    for (name, text) in common {
        known.common(&name, text);
    }
    let inputs = match &recipe.sbom_inputs {
        Some(file) => Inputs::read(file, &sbom::crates::digests(dir)?)?,
        None => Inputs::default(),
    };
    let (images, debs) = (images(dir, parts)?, debs(dir, parts, manifest)?);
    let material = Material {
        dir,
        manifest,
        images,
        debs,
        inputs,
        texts,
    };
    let (document, known) = sbom::write(&material, known)?;
    for (path, content) in known.files() {
        put(
            dir,
            format!("{}/{path}", licences::FOLDER),
            &content,
            manifest,
        )?;
    }
    put(
        dir,
        halite_bundle::sbom::FILE.to_owned(),
        &document,
        manifest,
    )?;
    let problems = halite_bundle::sbom::check::check(dir, manifest)?;
    if !problems.is_empty() {
        return Err(Error::Incomplete(problems.join("\n  ")));
    }
    if known.missing() > 0 {
        progress(&format!(
            "the texts of {} licences are missing; {}/index.html names them",
            known.missing(),
            licences::FOLDER
        ));
    }
    Ok(())
}

fn put(dir: &Path, path: String, content: &[u8], manifest: &mut Manifest) -> Result<(), Error> {
    files::write(&dir.join(&path), 0o644, content)?;
    manifest.files.insert(
        path,
        ManifestEntry {
            sha256: digest::sha256(content),
            size: content.len() as u64,
        },
    );
    Ok(())
}

type Texts = BTreeMap<String, Vec<(String, Vec<u8>)>>;

/// Reads the recipe's folder of licence texts: the texts of Go modules and crates by
/// `go/MODULE@VERSION` and `cargo/NAME@VERSION`, and below `common/` the texts to which others
/// refer.
fn gathered(folder: Option<&Path>) -> Result<(Texts, BTreeMap<String, Vec<u8>>), Error> {
    let (mut texts, mut common) = (Texts::new(), BTreeMap::new());
    let Some(folder) = folder else {
        return Ok((texts, common));
    };
    let mut stray = Vec::new();
    for path in files::walk(folder)? {
        let from = folder.join(&path);
        let text = fs::read(&from).map_err(Error::file("read", &from))?;
        match path.rsplit_once('/') {
            Some(("common", name)) => drop(common.insert(name.to_owned(), text)),
            Some((key, name)) if key.starts_with("go/") || key.starts_with("cargo/") => {
                texts
                    .entry(key.to_owned())
                    .or_default()
                    .push((name.to_owned(), text));
            }
            _ => stray.push(path),
        }
    }
    if stray.is_empty() {
        return Ok((texts, common));
    }
    let message = format!(
        "whose licences are these? {}; only go/MODULE@VERSION/FILE, cargo/NAME@VERSION/FILE and common/NAME are known",
        stray.join(", ")
    );
    Err(Error::content(folder, message))
}

/// Reads every image of the bundle and its contents.
fn images(dir: &Path, parts: &BuildCache) -> Result<Vec<SbomImage>, Error> {
    let layout = dir.join("images");
    let mut found = Vec::new();
    for (name, entry) in oci_layout::names(&layout)? {
        let Some(name) = name else { continue };
        let reference =
            ImageRef::parse(&name).map_err(|why| Error::invalid(layout.join("index.json"), why))?;
        found.push((reference, oci_layout::read(&layout, entry)?));
    }
    // Images share layers; each layer is read only once.
    let mut layers: Vec<&str> = found
        .iter()
        .flat_map(|(_, image)| image.layers().iter())
        .filter_map(oci_layout::Descriptor::hex)
        .collect();
    layers.sort_unstable();
    layers.dedup();
    let looked = parallel::run(&layers, READERS, |hex| {
        let path = layout.join("blobs/sha256").join(hex);
        let read = || {
            let file = fs::File::open(&path).map_err(Error::file("read", &path))?;
            let mut file = files::RecordingReader::new(file);
            match Contents::read(&mut file) {
                // A disk error says nothing about the layer, so it is not stored with it.
                Err(error) if file.failed => Err(Error::file("read", &path)(error)),
                read => Ok(read.map_err(|error| UnreadArchive(error.to_string()))),
            }
        };
        look(parts, hex, read)
    });
    let looked = layers
        .iter()
        .copied()
        .zip(looked.into_iter().collect::<Result<Vec<_>, _>>()?);
    let looked: BTreeMap<&str, _> = looked.collect();
    let images = found.iter().map(|(reference, image)| {
        let (mut contents, mut unread) = (Contents::default(), Vec::new());
        for layer in image.layers() {
            match layer.hex().and_then(|hex| looked.get(hex)) {
                Some(Ok(found)) => contents.cover(found.clone()),
                Some(Err(why)) => unread.push(format!(
                    "The layer {} is not an archive: {}.",
                    layer.digest, why.0
                )),
                None => {}
            }
        }
        SbomImage {
            reference: reference.clone(),
            digest: image.manifest.digest.clone(),
            contents,
            unread,
        }
    });
    Ok(images.collect())
}

/// Reads every package of the apt repositories and its contents. A package that several have, such
/// as the ones that the build makes, is there once.
fn debs(dir: &Path, parts: &BuildCache, manifest: &Manifest) -> Result<Vec<Deb>, Error> {
    let mut known = BTreeSet::new();
    let in_pool = |path: &str| {
        let (directory, rest) = path.split_once('/').unwrap_or_default();
        (directory == "apt" || directory.starts_with("apt-")) && rest.starts_with("pool/")
    };
    let files: Vec<_> = manifest
        .files
        .iter()
        .filter(|(path, entry)| in_pool(path) && known.insert(&entry.sha256))
        .collect();
    let read = |(path, entry): &(&String, &ManifestEntry)| {
        let archive = dir.join(path);
        let contents = look(parts, &entry.sha256, || unpack(&archive))?
            .map_err(|why| Error::invalid(&archive, why))?;
        let control = apt::package::read(&archive)?;
        Ok(Deb {
            path: (*path).clone(),
            sha256: entry.sha256.clone(),
            control,
            contents,
        })
    };
    parallel::run(&files, READERS, read).into_iter().collect()
}

/// The reason why an archive cannot be read. It is text, because it is stored in the build cache.
#[derive(Debug, Clone, Serialize, Deserialize, thiserror::Error)]
#[error("its content cannot be read: {0}")]
struct UnreadArchive(String);

fn unpack(archive: &Path) -> Result<Result<Contents, UnreadArchive>, Error> {
    let what = format!("reading {}", archive.display());
    let failed = |message: String| Error::Program {
        what: what.clone(),
        message,
    };
    let mut program = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(archive)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("cannot start dpkg-deb: {error}")))?;
    let found = program.stdout.take().map(Contents::read);
    let mut said = String::new();
    if let Some(mut stderr) = program.stderr.take() {
        let _ = stderr.read_to_string(&mut said);
    }
    let status = program.wait().map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(format!(
            "dpkg-deb ended with {status}: {}",
            said.trim()
        )));
    }
    Ok(found
        .unwrap_or_else(|| Ok(Contents::default()))
        .map_err(|error| UnreadArchive(error.to_string())))
}

/// Returns the contents of the archive with that digest, or the reason why it cannot be read. The
/// result is cached.
fn look(
    parts: &BuildCache,
    sha256: &str,
    read: impl FnOnce() -> Result<Result<Contents, UnreadArchive>, Error>,
) -> Result<Result<Contents, UnreadArchive>, Error> {
    let part = parts.get("contents", &format!("{REVISION} {sha256}"), |_| {
        let found = read()?;
        let text = serde_json::to_string(&found)
            .map_err(|error| Error::content(sha256, error.to_string()))?;
        Ok(BTreeMap::from([("contents".to_owned(), text)]))
    })?;
    let text = part.note().get("contents").map_or("", String::as_str);
    serde_json::from_str(text).map_err(|error| Error::content(sha256, error.to_string()))
}
