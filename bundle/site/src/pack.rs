//! Packing a bundle into one ISO, which an operator carries to the site.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use halite_durable::{FileLock, files};
use halite_iso9660::portable;
use halite_iso9660::read::IsoImage;
use halite_iso9660::write::{Content, InputFile, Volume};
use halite_manifest::{Manifest, manifest};
use halite_seal::Facts;
use halite_seal::keys::SecretKey;
use jiff::Timestamp;

use crate::error::Error;
use crate::verify::verify;

/// The longest volume identifier of ISO 9660.
const LONGEST_ID: usize = 32;

/// Writes the bundle in a directory into one ISO, sealed and signed with each of the keys, and
/// replaces an existing file. The same bundle and keys give the same bytes. `out` appears only when
/// it is complete and synced.
///
/// # Errors
/// The directory differs from its manifest, has a name that not every reader of an image would
/// find, or a file cannot be read or written.
pub fn pack(
    dir: &Path,
    out: &Path,
    keys: &[SecretKey],
    progress: &mut dyn FnMut(&str),
) -> Result<Manifest, Error> {
    let _claim = claim(out)?;
    write(dir, out, keys, progress)
}

/// Locks the path of an image, which must not be a directory.
pub fn claim(out: &Path) -> Result<FileLock, Error> {
    if out.is_dir() || out.file_name().is_none() {
        return Err(Error::Directory(out.to_owned()));
    }
    Ok(FileLock::new(out)?)
}

/// Writes the image to a path that the caller has locked.
pub fn write(
    dir: &Path,
    out: &Path,
    keys: &[SecretKey],
    progress: &mut dyn FnMut(&str),
) -> Result<Manifest, Error> {
    let manifest = manifest::load(dir)?;
    let mut sources = sources(dir)?;
    // A mounted or extracted image has no seal, but it has these signatures.
    let bytes = fs::read(dir.join(manifest::FILE)).map_err(Error::file("read", dir))?;
    sources.retain(|name, _| !manifest::is_signature(name));
    for (name, signature) in sign(&manifest, &bytes, keys)? {
        sources.insert(
            name,
            InputFile {
                from: Content::Bytes(signature),
                mode: 0o644,
            },
        );
    }
    // A seal states that everything is as the builder made it; existing damage would be signed,
    // too.
    let problems = verify(dir, progress)?.problems;
    if !problems.is_empty() {
        return Err(Error::Unsound {
            dir: dir.to_owned(),
            problems,
        });
    }
    write_sealed(out, &manifest, manifest::FILE, &sources, keys, progress)?;
    Ok(manifest)
}

/// Makes a signature file of a manifest with each of the keys.
pub fn sign(
    manifest: &Manifest,
    bytes: &[u8],
    keys: &[SecretKey],
) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let comment = format!(
        "timestamp:{}\tfile:{}",
        built(manifest)?.as_second(),
        manifest::FILE
    );
    let one = |key: &SecretKey| {
        let name = format!("{}.{}.minisig", manifest::FILE, key.public().id());
        (
            name,
            halite_seal::detached::sign(key, bytes, &comment).into_bytes(),
        )
    };
    Ok(keys.iter().map(one).collect())
}

/// Writes an image at a path that the caller has [locked](claim), and seals it with each of the
/// keys. `out` appears only when it is complete and synced. `stated` is the file whose digest the
/// seal states: the manifest, or a delta's description.
pub fn write_sealed(
    out: &Path,
    manifest: &Manifest,
    stated: &str,
    sources: &BTreeMap<String, InputFile>,
    keys: &[SecretKey],
    progress: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let names = portable::problems(sources.keys().map(String::as_str));
    if !names.is_empty() {
        return Err(Error::Names(names));
    }
    let built = built(manifest)?;
    let kind = if stated == manifest::FILE {
        ""
    } else {
        "delta"
    };
    let volume = Volume {
        id: volume_id(manifest, kind),
        date: built,
    };
    let facts = Facts {
        name: manifest.name.clone(),
        version: manifest.version.to_string(),
        volume: volume.id.clone(),
        built,
        stated: stated.to_owned(),
    };
    let new = files::sibling(out, "new");
    files::remove_any(&new)?;
    let made = (|| -> Result<(), Error> {
        let placed = halite_iso9660::write::write(&new, &volume, sources, progress)?;
        progress("sealing the image");
        halite_seal::seal(&new, &placed, &facts, keys, progress)?;
        Ok(files::publish(&new, out)?)
    })();
    if made.is_err() {
        // Best effort: the first error is the one that matters.
        let _ = fs::remove_file(&new);
    }
    made
}

fn built(manifest: &Manifest) -> Result<Timestamp, Error> {
    let built = manifest.built.parse();
    built.map_err(|error| Error::content(manifest::FILE, format!("`built` is not a date: {error}")))
}

/// The volume identifier, such as `HALITE_0_1_0_V1_36_3`.
fn volume_id(manifest: &Manifest, kind: &str) -> String {
    let parts = [
        &manifest.name,
        kind,
        &manifest.version,
        &manifest.kubernetes,
    ];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let text = parts.join("_").to_uppercase();
    text.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .take(LONGEST_ID)
        .collect()
}

fn sources(dir: &Path) -> Result<BTreeMap<String, InputFile>, Error> {
    let mut found = BTreeMap::new();
    for name in files::walk(dir)? {
        let path = dir.join(&name);
        let status = fs::metadata(&path).map_err(Error::file("read", &path))?;
        let mode = if status.permissions().mode() & 0o100 == 0 {
            0o644
        } else {
            0o755
        };
        found.insert(
            name,
            InputFile {
                from: Content::File(path),
                mode,
            },
        );
    }
    Ok(found)
}

/// Extracts the selected files of an image into the caller's directory, for temporary use.
///
/// # Errors
/// A file cannot be read or written.
pub fn unpack_some(iso: &Path, dir: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<(), Error> {
    let image = IsoImage::open(iso)?;
    for entry in image.entries().iter().filter(|entry| wanted(&entry.path)) {
        let path: PathBuf = dir.join(&entry.path);
        let mut to = files::create(&path, entry.mode)?;
        std::io::copy(&mut image.reader(&entry.path)?, &mut to)
            .map_err(Error::file("write", &path))?;
    }
    Ok(())
}
