//! A bundle as one file: the ISO that is carried over the gap, and the directory that a site makes of it.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use jiff::Timestamp;

use crate::{
    claim::Claim,
    error::Error,
    files,
    iso::{
        portable,
        read::Image,
        write::{Content, Source, Volume},
    },
    manifest::{self, Manifest},
    seal::{self, Facts, keys::SecretKey},
    verify::verify,
};

/// The longest volume identifier of ISO 9660.
const LONGEST_ID: usize = 32;

/// Writes the bundle in a directory into one ISO, sealed and signed with each of the keys, replacing a file that is there.
/// The same bundle and keys give the same bytes. Nothing is at `out` before all of it is, on the disk.
///
/// # Errors
/// When the directory is not what its manifest says or holds something that not every reader of an image would find, or a
/// file cannot be read or written.
pub fn pack(
    dir: &Path,
    out: &Path,
    keys: &[SecretKey],
    progress: &mut dyn FnMut(&str),
) -> Result<Manifest, Error> {
    let _claim = claim(out)?;
    write(dir, out, keys, progress)
}

/// Claims the place of an image, which has to be that of a file.
pub(crate) fn claim(out: &Path) -> Result<Claim, Error> {
    if out.is_dir() || out.file_name().is_none() {
        return Err(Error::Directory(out.to_owned()));
    }
    Claim::new(out)
}

/// Writes the image at a place that the caller has claimed.
pub(crate) fn write(
    dir: &Path,
    out: &Path,
    keys: &[SecretKey],
    progress: &mut dyn FnMut(&str),
) -> Result<Manifest, Error> {
    let manifest = manifest::load(dir)?;
    let built: Timestamp = manifest
        .built
        .parse()
        .map_err(|error| Error::content(dir.join(manifest::FILE), format!("`built` is no date: {error}")))?;
    let volume = Volume { id: volume_id(&manifest), date: built };
    let facts = Facts {
        name: manifest.name.clone(),
        version: manifest.version.clone(),
        volume: volume.id.clone(),
        built,
    };
    let new = files::sibling(out, "new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::file("remove", &new)(error));
        }
        _ => {}
    }
    let mut sources = sources(dir)?;
    // For whoever mounts or extracts the image: the seal stays behind then.
    let bytes = fs::read(dir.join(manifest::FILE)).map_err(Error::file("read", dir))?;
    let comment = format!("timestamp:{}\tfile:{}", built.as_second(), manifest::FILE);
    sources.retain(|name, _| !manifest::is_signature(name));
    for key in keys {
        let name = format!("{}.{}.minisig", manifest::FILE, key.public().id());
        let text = seal::detached::sign(key, &bytes, &comment);
        sources.insert(name, Source { from: Content::Bytes(text.into_bytes()), mode: 0o644 });
    }
    let names = portable::problems(sources.keys().map(String::as_str));
    if !names.is_empty() {
        return Err(Error::Names(names));
    }
    // A seal says that everything is as it was made: damage that is there before would be vouched for.
    let problems = verify(dir, progress)?.problems;
    if !problems.is_empty() {
        return Err(Error::Unsound { dir: dir.to_owned(), problems });
    }
    let made = (|| {
        let placed = crate::iso::write::write(&new, &volume, &sources, progress)?;
        progress("sealing the image");
        seal::seal(&new, &placed, &facts, keys, progress)?;
        fs::rename(&new, out).map_err(Error::file("replace", out))?;
        files::sync_parent(out)
    })();
    if made.is_err() {
        // Best effort: the first error is the one that matters.
        let _ = fs::remove_file(&new);
    }
    made.map(|()| manifest)
}

/// `HALITE_0_1_0_V1_36_3`: what a mounted image is called.
fn volume_id(manifest: &Manifest) -> String {
    let text = format!("{}_{}_{}", manifest.name, manifest.version, manifest.kubernetes).to_uppercase();
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(LONGEST_ID).collect()
}

fn sources(dir: &Path) -> Result<BTreeMap<String, Source>, Error> {
    let mut found = BTreeMap::new();
    for name in files::walk(dir)? {
        let path = dir.join(&name);
        let status = fs::metadata(&path).map_err(Error::file("read", &path))?;
        let mode = if status.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 };
        found.insert(name, Source { from: Content::File(path), mode });
    }
    Ok(found)
}

/// Takes a whole bundle out of an image that was [checked](seal::check()) before: the directory is there whole or not at
/// all. One that holds the same bundle already is left as it is.
///
/// # Errors
/// When another bundle or something else is at `dir`, or a file cannot be read or written.
pub fn unpack(iso: &Path, dir: &Path, progress: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let image = Image::open(iso)?;
    if dir.exists() {
        let there = dir.join(manifest::CHECKSUM);
        let there = fs::read(&there).map_err(Error::file("read", &there))?;
        if there == image.small(manifest::CHECKSUM)? {
            return Ok(());
        }
        return Err(Error::content(dir, "another bundle of the same version is there: remove it first"));
    }
    if let Some(parent) = dir.parent() {
        files::make_dir(parent)?;
    }
    image.extract(dir, progress)
}

/// Takes the files of an image that are wanted into a directory of the caller's, for a look that leaves nothing behind.
///
/// # Errors
/// When a file cannot be read or written.
pub fn unpack_some(iso: &Path, dir: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<(), Error> {
    let image = Image::open(iso)?;
    for entry in image.entries().iter().filter(|entry| wanted(&entry.path)) {
        let path: PathBuf = dir.join(&entry.path);
        let mut to = files::create(&path, entry.mode)?;
        std::io::copy(&mut image.reader(&entry.path)?, &mut to).map_err(Error::file("write", &path))?;
    }
    Ok(())
}
