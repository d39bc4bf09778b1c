//! Sealing an image, and adding a signature to a sealed one.

use std::fs::File;
use std::io;
use std::num::TryFromIntError;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use halite_durable::digest;
use halite_iso9660::write::Placed;

use super::check::Sealed;
use super::damage::SealDamage;
use super::keys::signature::{InvalidSignature, Signature, sign};
use super::keys::{KeyId, PublicKey, SecretKey};
use super::statement::{Facts, Statement};
use super::trailer::{Footer, MAGIC, TrailerPart, filled};
use super::{SECTOR, SIGNATURES};
use super::{map, pass};
use crate::error::Error;

/// The reason why an image cannot be sealed, or its seal cannot be changed.
#[derive(Debug, thiserror::Error)]
enum Unsealable {
    #[error("{0} keys would sign, but there is room for {SIGNATURES}")]
    Keys(usize),
    #[error("its name, version or volume id contains a control character")]
    ControlCharacter,
    #[error("it contains no {0}")]
    NoManifest(String),
    #[error("its manifest does not fit into memory")]
    Memory(#[source] TryFromIntError),
    #[error("{0} bytes are not an image, which has whole sectors of {SECTOR}")]
    Sectors(u64),
    #[error("its end cannot be read")]
    End(#[source] io::Error),
    #[error("it is already sealed: to sign it with another key, add a signature")]
    Sealed,
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  "))]
    Misplaced(Vec<Misplaced>),
    #[error("its map or statement cannot be written")]
    Json(#[from] serde_json::Error),
    #[error("the signature cannot be added")]
    Signature(#[source] InvalidSignature),
    #[error("the signature cannot be added: key {0} did not make it for this image's statement")]
    OtherKey(KeyId),
    #[error("it already has a signature by key {0}")]
    Twice(KeyId),
    #[error("there is no room for the signature: {SIGNATURES} of {SECTOR} bytes at most")]
    NoRoom,
}

/// A file at a position that is impossible in an image.
#[derive(Debug, thiserror::Error)]
enum Misplaced {
    #[error("`{}` is not a valid name for a file of an image", .0.escape_debug())]
    Name(String),
    #[error("{path} overlaps {other}")]
    Overlaps { path: String, other: String },
    #[error("{0} ends after the image")]
    Outside(String),
}

/// Seals an image in place: appends map, statement, a signature by each key, and footer. Without a
/// key the image is unsigned and can be checked for damage only. After an error the image is
/// unchanged.
///
/// # Errors
/// The image does not consist of whole sectors or is already sealed, its files overlap or do not
/// include the manifest, or it cannot be read or written.
pub fn seal(
    iso: &Path,
    placed: &[Placed],
    facts: &Facts,
    keys: &[SecretKey],
    progress: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let refused = |why: Unsealable| Error::invalid(iso, why);
    let file = File::options()
        .read(true)
        .write(true)
        .open(iso)
        .map_err(Error::file("write", iso))?;
    let size = file.metadata().map_err(Error::file("read", iso))?.len();
    unsealed(&file, size).map_err(refused)?;
    if keys.len() > SIGNATURES {
        return Err(refused(Unsealable::Keys(keys.len())));
    }
    let text = [&facts.name, &facts.version, &facts.volume];
    if text.iter().any(|text| text.chars().any(char::is_control)) {
        return Err(refused(Unsealable::ControlCharacter));
    }
    let files = arrange(placed, size).map_err(refused)?;
    let manifest = placed
        .iter()
        .find(|placed| placed.path == facts.stated)
        .ok_or_else(|| refused(Unsealable::NoManifest(facts.stated.clone())))?;
    let size_in_memory =
        usize::try_from(manifest.size).map_err(|error| refused(Unsealable::Memory(error)))?;
    let mut content = vec![0; size_in_memory];
    file.read_exact_at(&mut content, manifest.offset)
        .map_err(Error::file("read", iso))?;

    let mut segments = map::cut(size, &files);
    let sha256 = pass::measure(iso, &mut segments, size, progress)?;
    let map = map::render(&segments).map_err(|error| refused(error.into()))?;
    let statement = Statement::new(
        facts,
        size,
        sha256,
        digest::sha256(&map),
        digest::sha256(&content),
    );
    let bytes = statement
        .to_bytes()
        .map_err(|error| refused(error.into()))?;
    let signatures = keys
        .iter()
        .map(|key| sign(key, &bytes, &statement.comment()).into_bytes())
        .collect();
    append(&file, size, map, bytes, signatures)
        .inspect_err(|_| {
            // Best effort: the first error is the one that matters.
            let _ = file.set_len(size);
        })
        .map_err(Error::file("write", iso))
}

fn append(
    file: &File,
    image: u64,
    map: Vec<u8>,
    statement: Vec<u8>,
    signatures: Vec<Vec<u8>>,
) -> io::Result<()> {
    let mut at = image;
    let mut put = |content: Vec<u8>| {
        let part = TrailerPart::new(at, &content);
        file.write_all_at(&filled(content), at)?;
        at = part.end();
        io::Result::Ok(part)
    };
    let (map, statement) = (put(map)?, put(statement)?);
    let signatures = signatures
        .into_iter()
        .map(&mut put)
        .collect::<Result<_, _>>()?;
    let footer = Footer {
        image,
        map,
        statement,
        signatures,
    };
    file.write_all_at(&footer.render(), at)?;
    file.sync_all()
}

fn unsealed(file: &File, size: u64) -> Result<(), Unsealable> {
    if size == 0 || !size.is_multiple_of(SECTOR) {
        return Err(Unsealable::Sectors(size));
    }
    let mut start = vec![0; MAGIC.len()];
    file.read_exact_at(&mut start, size - SECTOR)
        .map_err(Unsealable::End)?;
    if start == MAGIC.as_bytes() {
        return Err(Unsealable::Sealed);
    }
    Ok(())
}

/// The files in the order of their offsets. The error names all misplaced files.
fn arrange(placed: &[Placed], size: u64) -> Result<Vec<(u64, u64, &str)>, Unsealable> {
    let mut files: Vec<_> = placed
        .iter()
        .filter(|placed| placed.size > 0)
        .map(|placed| (placed.offset, placed.size, placed.path.as_str()))
        .collect();
    files.sort_unstable();
    let (mut wrong, mut at, mut before) = (Vec::new(), 0, "");
    for &(offset, length, path) in &files {
        if path.is_empty() || path.chars().any(char::is_control) {
            wrong.push(Misplaced::Name(path.to_owned()));
        }
        if offset < at {
            wrong.push(Misplaced::Overlaps {
                path: path.to_owned(),
                other: before.to_owned(),
            });
        }
        match offset.checked_add(length).filter(|end| *end <= size) {
            Some(end) => (at, before) = (end.max(at), path),
            None => wrong.push(Misplaced::Outside(path.to_owned())),
        }
    }
    if wrong.is_empty() {
        Ok(files)
    } else {
        Err(Unsealable::Misplaced(wrong))
    }
}

/// Adds a signature for the [`statement`](super::statement()) that was made with `minisign` or with
/// another builder's key.
///
/// An interruption leaves a file that is refused; the next call restores its previous state and
/// starts again.
///
/// # Errors
/// The seal is incomplete, the signature is not by the key or not for this image's statement,
/// or the file cannot be read or written.
pub fn add(iso: &Path, signature: &str, key: &PublicKey) -> Result<(), Error> {
    let refused = |why: Unsealable| Error::invalid(iso, why);
    let damaged = |damage: SealDamage| Error::invalid(iso, damage);
    let writable = File::options()
        .read(true)
        .write(true)
        .open(iso)
        .map_err(Error::file("write", iso))?;
    recover(&writable).map_err(Error::file("write", iso))?;
    let sealed = Sealed::open(iso)?;
    let statement = sealed.statement().map_err(damaged)?;
    let made =
        Signature::parse(signature).map_err(|error| refused(Unsealable::Signature(error)))?;
    if !made.is_by(key, &statement) {
        return Err(refused(Unsealable::OtherKey(key.id())));
    }
    let there = sealed.signatures().map_err(damaged)?;
    if there.iter().any(|there| there.key() == made.key()) {
        return Err(refused(Unsealable::Twice(key.id())));
    }
    if there.len() >= SIGNATURES || signature.len() as u64 > SECTOR {
        return Err(refused(Unsealable::NoRoom));
    }
    // The signature replaces the footer. The new footer is synced before the old one is
    // overwritten.
    let at = sealed.size - SECTOR;
    let mut footer = sealed.footer;
    footer
        .signatures
        .push(TrailerPart::new(at, signature.as_bytes()));
    let write = || {
        writable.write_all_at(&footer.render(), sealed.size)?;
        writable.sync_all()?;
        writable.write_all_at(&filled(signature.as_bytes().to_vec()), at)?;
        writable.sync_all()
    };
    write().map_err(Error::file("write", iso))
}

/// Removes the leftovers of an interrupted [`add`]: a second footer, complete or not, after a
/// complete one.
fn recover(file: &File) -> io::Result<()> {
    let size = file.metadata()?.len();
    let before = size.saturating_sub(1) / SECTOR * SECTOR;
    if Footer::read(file, before).is_ok() {
        file.set_len(before)?;
        file.sync_all()?;
    }
    Ok(())
}
