//! Making the whole new bundle from a delta and the old bundle, on a site.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use halite_durable::atomic_dir::make_above;
use halite_durable::disk_space::{Need, Room};
use halite_durable::{AtomicDir, ByteProgress, digest, files};
use halite_iso9660::read::IsoImage;
use halite_manifest::{InstalledBundle, Manifest, ManifestEntry, manifest};

use crate::delta::{Delta, FILES, NEW, contents};
use crate::error::Error;
use crate::verified::VerifiedImage;
use crate::verify;

/// The source of a file's content in the new bundle.
enum From {
    /// A file of the old bundle; with `link`, a hard link to it is allowed.
    Old { path: PathBuf, link: bool },
    /// A file of the delta.
    Delta(String),
}

/// One file of the new bundle.
pub(crate) struct Piece<'a> {
    name: &'a str,
    entry: &'a ManifestEntry,
    mode: u32,
    from: From,
}

/// Fills a new directory with the bundle that results from a delta and the old bundle. It appears
/// completely or not at all. Files that both bundles have are hard-linked on the same file system
/// and copied otherwise; each is compared with its digest.
///
/// # Errors
/// The installed old bundle is not the delta's or is damaged, the delta lacks a file, the disk is
/// full, or a system call fails.
pub(crate) fn combine(
    sound: &VerifiedImage,
    delta: &Delta,
    held: &InstalledBundle,
    place: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let VerifiedImage { image, bytes, .. } = sound;
    let root = place.parent().unwrap_or(Path::new("/"));
    let pieces = check(sound, delta, held, root)?;
    let mut need = Need::default();
    for piece in &pieces {
        need.add(if matches!(piece.from, From::Old { link: true, .. }) {
            0
        } else {
            piece.entry.size
        });
    }
    Room::at(root)?.holds(need, root)?;
    AtomicDir::begin(place)?.fill(|new| {
        let total = pieces.iter().map(|piece| piece.entry.size).sum();
        let mut tenths = ByteProgress::new("combined", total, progress);
        for piece in &pieces {
            put(image, piece, new)?;
            tenths.add(piece.entry.size);
        }
        for entry in image.entries() {
            let Some(name) = entry.path.strip_prefix(NEW) else {
                continue;
            };
            if manifest::is_signature(name) {
                write(&new.join(name), 0o644, &mut image.reader(&entry.path)?)?;
            }
        }
        write(&new.join(manifest::FILE), 0o644, &mut bytes.as_slice())?;
        write(
            &new.join(manifest::CHECKSUM),
            0o644,
            &mut Manifest::checksum(bytes).as_bytes(),
        )?;
        Ok(())
    })
}

/// Checks that a delta and the old bundle result in the new one, in a directory of `root`; returns
/// the files of the new one. Changes nothing.
///
/// # Errors
/// The installed old bundle is not the delta's or is damaged, the delta lacks a file, or a system
/// call fails.
pub(crate) fn check<'a>(
    sound: &'a VerifiedImage,
    delta: &Delta,
    held: &InstalledBundle,
    root: &Path,
) -> Result<Vec<Piece<'a>>, Error> {
    let trouble = |why: String| Error::content(&sound.iso, why);
    let old = held
        .manifest
        .as_ref()
        .map_err(|_| trouble(held.trouble().unwrap_or_default()))?;
    let checksum = held.path.join(manifest::FILE);
    let there = fs::read(&checksum).map_err(Error::file("read", &checksum))?;
    if digest::sha256(&there) != delta.old.manifest_sha256 {
        return Err(trouble(format!(
            "this delta is for another bundle of the version {} than the one at {}: bring the whole bundle {}",
            delta.old.version,
            held.path.display(),
            delta.new.version
        )));
    }
    let manifest = sound.manifest();
    let pieces = pieces(&sound.image, delta, held, old, manifest, root).map_err(trouble)?;
    unharmed(held, old, &pieces)?;
    Ok(pieces)
}

fn pieces<'a>(
    image: &IsoImage,
    delta: &Delta,
    held: &InstalledBundle,
    old: &Manifest,
    manifest: &'a Manifest,
    root: &Path,
) -> Result<Vec<Piece<'a>>, String> {
    let device = |path: &Path| fs::metadata(path).map(|status| status.dev()).ok();
    // A linked directory belongs to another user, who may write to it; that would also change hard
    // links to its files.
    let own = held.link_target.is_none() && device(&held.path) == device(root);
    let programs: BTreeSet<&str> = delta.programs.iter().map(String::as_str).collect();
    let (there, brought) = (contents(old), contents(manifest));
    let mut lacking = Vec::new();
    let mut found = Vec::new();
    for (name, entry) in &manifest.files {
        let mode = if programs.contains(name.as_str()) {
            0o755
        } else {
            0o644
        };
        // The file with the same name comes first, because it also has the same mode.
        let same = old
            .files
            .get(name)
            .filter(|there| there.sha256 == entry.sha256)
            .map(|_| name.as_str());
        let from = match same.or_else(|| there.get(entry.sha256.as_str()).copied()) {
            Some(path) => {
                let path = held.path.join(path);
                let same = fs::metadata(&path)
                    .is_ok_and(|status| status.permissions().mode() & 0o777 == mode);
                From::Old {
                    path,
                    link: own && same,
                }
            }
            None => {
                let path = brought.get(entry.sha256.as_str()).copied().unwrap_or(name);
                From::Delta(format!("{FILES}{path}"))
            }
        };
        if let From::Delta(path) = &from
            && image.entry(path).is_none()
        {
            lacking.push(name.as_str());
        }
        found.push(Piece {
            name,
            entry,
            mode,
            from,
        });
    }
    if lacking.is_empty() {
        return Ok(found);
    }
    Err(format!(
        "neither this delta nor the bundle {} has {}",
        delta.old.version,
        lacking.join(", ")
    ))
}

/// Checks the digests of the files that are taken from the old bundle. The error names all that
/// differ.
fn unharmed(held: &InstalledBundle, old: &Manifest, pieces: &[Piece<'_>]) -> Result<(), Error> {
    let taken: BTreeSet<&Path> = pieces
        .iter()
        .filter_map(|piece| match &piece.from {
            From::Old { path, .. } => path.strip_prefix(&held.path).ok(),
            From::Delta(_) => None,
        })
        .collect();
    let mut part = old.clone();
    part.files.retain(|path, _| taken.contains(Path::new(path)));
    let wrong = verify::contents(&held.path, &part, &mut |_| ());
    if wrong.is_empty() {
        return Ok(());
    }
    let wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    let why = format!(
        "the bundle {} is damaged: put its ISO in its place with `ctl bundle add`, then add the delta:\n  {}",
        held.version,
        wrong.join("\n  ")
    );
    Err(Error::content(&held.path, why))
}

fn put(image: &IsoImage, piece: &Piece<'_>, new: &Path) -> Result<(), Error> {
    let path = new.join(piece.name);
    make_above(new, &path)?;
    let sha256 = match &piece.from {
        From::Old {
            path: old,
            link: true,
        } if fs::hard_link(old, &path).is_ok() => return Ok(()),
        From::Old { path: old, .. } => {
            let mut from = fs::File::open(old).map_err(Error::file("read", old))?;
            write(&path, piece.mode, &mut from)?
        }
        From::Delta(name) => write(&path, piece.mode, &mut image.reader(name)?)?,
    };
    if sha256 == piece.entry.sha256 {
        return Ok(());
    }
    let why = format!(
        "the result has the sha256 {sha256} instead of {}",
        piece.entry.sha256
    );
    Err(Error::content(path, why))
}

/// Writes a new file, syncs it, and returns its SHA-256.
fn write(path: &Path, mode: u32, from: &mut impl Read) -> Result<String, Error> {
    let mut to = files::create(path, mode)?;
    let (sha256, _) = files::stream(from, &mut to).map_err(Error::file("write", path))?;
    to.flush()
        .and_then(|()| to.sync_all())
        .map_err(Error::file("write", path))?;
    Ok(sha256)
}
