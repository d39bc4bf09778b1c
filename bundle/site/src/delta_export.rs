//! Making a delta from two bundles.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use halite_durable::{digest, files};
use halite_iso9660::read::IsoImage;
use halite_iso9660::write::{Content, InputFile};
use halite_manifest::{Manifest, manifest};
use halite_seal::keys::SecretKey;

use crate::delta::{Delta, FILE, FILES, FORMAT, NEW, Side, contents};
use crate::error::Error;
use crate::pack::{claim, sign, write_sealed};

/// A bundle to read: an ISO or a directory.
enum Medium {
    Image { path: PathBuf, image: IsoImage },
    Directory(PathBuf),
}

impl Medium {
    fn open(path: &Path) -> Result<Self, Error> {
        if path.is_dir() {
            return Ok(Self::Directory(path.to_owned()));
        }
        let image = IsoImage::open(path)?;
        if Delta::of(&image, path)?.is_some() {
            return Err(Error::content(path, "this is a delta; name a whole bundle"));
        }
        Ok(Self::Image {
            path: path.to_owned(),
            image,
        })
    }

    fn small(&self, name: &str) -> Result<Vec<u8>, Error> {
        match self {
            Self::Image { image, .. } => Ok(image.small(name)?),
            Self::Directory(dir) => {
                fs::read(dir.join(name)).map_err(Error::file("read", dir.join(name)))
            }
        }
    }

    /// Its manifest and that manifest's SHA-256.
    fn manifest(&self) -> Result<(Manifest, String), Error> {
        let (Self::Image { path, .. } | Self::Directory(path)) = self;
        let bytes = self.small(manifest::FILE)?;
        let manifest = manifest::parse(path.clone(), &bytes, &self.small(manifest::CHECKSUM)?)?;
        Ok((manifest, digest::sha256(&bytes)))
    }

    fn is_program(&self, name: &str) -> Result<bool, Error> {
        let mode = match self {
            Self::Image { image, .. } => image.entry(name).map_or(0, |entry| entry.mode),
            Self::Directory(dir) => {
                let path = dir.join(name);
                fs::metadata(&path)
                    .map_err(Error::file("read", &path))?
                    .permissions()
                    .mode()
            }
        };
        Ok(mode & 0o100 != 0)
    }

    /// The signatures of its manifest by other keys.
    fn signatures(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        // In a directory they cannot be distinguished from leftovers of an earlier build.
        let Self::Image { image, .. } = self else {
            return Ok(Vec::new());
        };
        let names = image
            .entries()
            .iter()
            .map(|entry| &entry.path)
            .filter(|path| manifest::is_signature(path));
        names
            .map(|name| Ok((name.clone(), image.small(name)?)))
            .collect()
    }

    /// The path from which a file can be read; a file of an image is extracted first.
    fn file(&self, name: &str, work: &Path) -> Result<PathBuf, Error> {
        match self {
            Self::Directory(dir) => Ok(dir.join(name)),
            Self::Image { image, .. } => {
                let path = work.join(name);
                let mut to = files::create(&path, 0o644)?;
                std::io::copy(&mut image.reader(name)?, &mut to)
                    .map_err(Error::file("write", &path))?;
                Ok(path)
            }
        }
    }
}

/// Writes a delta as a sealed image, signed with each of the keys: the contents of the new bundle
/// that the old bundle lacks. Each bundle is an ISO or a directory. Only the manifest of the old
/// one is read. The signature of the new one's manifest, with this SHA-256, was already verified;
/// each file that goes into the delta is compared with it. The same bundles and keys give the same
/// bytes.
///
/// # Errors
/// A bundle cannot be read, both have the same version, files of the new one differ from its
/// manifest (the error names all), or the image cannot be written. Then `out` is unchanged.
pub fn export(
    old: &Path,
    (new, checked): (&Path, &str),
    out: &Path,
    keys: &[SecretKey],
    progress: &mut dyn FnMut(&str),
) -> Result<Delta, Error> {
    let _claim = claim(out)?;
    let (old_manifest, old_sha256) = Medium::open(old)?.manifest()?;
    let medium = Medium::open(new)?;
    let (manifest, sha256) = medium.manifest()?;
    if sha256 != checked {
        let why = format!(
            "its manifest has the sha256 {sha256}, but the verified one has {checked}: it was replaced"
        );
        return Err(Error::content(new, why));
    }
    if old_manifest.version == manifest.version {
        let why = format!(
            "both bundles have the version {}, and a site has each version once: give the new one another version in its recipe",
            manifest.version
        );
        return Err(Error::content(new, why));
    }
    let mut programs = Vec::new();
    for path in manifest.files.keys() {
        if medium.is_program(path)? {
            programs.push(path.clone());
        }
    }
    let delta = Delta {
        format: FORMAT,
        old: Side::new(&old_manifest, old_sha256),
        new: Side::new(&manifest, sha256),
        programs,
    };
    let work = files::sibling(out, "delta");
    files::remove_dir(&work)?;
    let written = sources(&medium, &manifest, &old_manifest, &delta, &work, keys)
        .and_then(|sources| write_sealed(out, &manifest, FILE, &sources, keys, progress));
    files::remove_dir(&work)?;
    written.map(|()| delta)
}

/// The files that go into the delta. Those of an image are extracted into the working directory.
fn sources(
    medium: &Medium,
    manifest: &Manifest,
    old: &Manifest,
    delta: &Delta,
    work: &Path,
    keys: &[SecretKey],
) -> Result<BTreeMap<String, InputFile>, Error> {
    let had: BTreeSet<&str> = old
        .files
        .values()
        .map(|entry| entry.sha256.as_str())
        .collect();
    let mut sources = BTreeMap::new();
    let mut wrong = Vec::new();
    for (sha256, name) in contents(manifest)
        .into_iter()
        .filter(|(sha256, _)| !had.contains(sha256))
    {
        let path = medium.file(name, work)?;
        let (found, _) = files::digest(&path)?;
        if found != sha256 {
            wrong.push(format!("{name}: sha256 {found} instead of {sha256}"));
        }
        sources.insert(
            format!("{FILES}{name}"),
            InputFile {
                from: Content::File(path),
                mode: 0o644,
            },
        );
    }
    if !wrong.is_empty() {
        let why = format!(
            "the new bundle is damaged, nothing was written:\n  {}",
            wrong.join("\n  ")
        );
        return Err(Error::content(manifest::FILE, why));
    }
    let mut put = |name: String, bytes: Vec<u8>| {
        sources.insert(
            name,
            InputFile {
                from: Content::Bytes(bytes),
                mode: 0o644,
            },
        );
    };
    let bytes = medium.small(manifest::FILE)?;
    for (name, signature) in medium
        .signatures()?
        .into_iter()
        .chain(sign(manifest, &bytes, keys)?)
    {
        put(format!("{NEW}{name}"), signature);
    }
    put(format!("{NEW}{}", manifest::FILE), bytes);
    put(
        format!("{NEW}{}", manifest::CHECKSUM),
        medium.small(manifest::CHECKSUM)?,
    );
    let mut description = serde_json::to_vec_pretty(delta)
        .map_err(|error| Error::content(FILE, error.to_string()))?;
    description.push(b'\n');
    put(FILE.to_owned(), description);
    Ok(sources)
}
