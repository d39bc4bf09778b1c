//! A verified image, opened for reading.
//!
//! The file may have changed since the verification, and a failing disk may return different data
//! the second time. So each file is compared again while it is extracted: the checked statement has
//! the SHA-256 of the manifest, and the manifest has the SHA-256 of every file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use halite_durable::{digest, files};
use halite_iso9660::read::IsoImage;
use halite_manifest::{Manifest, manifest};

use crate::delta;
use crate::delta::Delta;
use crate::error::Error;

/// A verified image and the manifest that was verified with it.
pub struct VerifiedImage {
    pub(crate) image: IsoImage,
    pub(crate) iso: PathBuf,
    /// The manifest's text.
    pub(crate) bytes: Vec<u8>,
    manifest: Manifest,
    delta: Option<Delta>,
}

impl VerifiedImage {
    /// Opens an image that was [checked](halite_seal::check()); `sha256` is the digest of the
    /// manifest, or of a delta's description, from its statement.
    ///
    /// # Errors
    /// It cannot be read, or its manifest is not the checked one.
    pub fn open(iso: &Path, sha256: &str) -> Result<Self, Error> {
        let image = IsoImage::open(iso)?.with_plain_modes();
        let read = |name: &str, sha256: &str| {
            let bytes = image.small(name)?;
            same(iso, name, &digest::sha256(&bytes), sha256)?;
            Ok::<_, Error>(bytes)
        };
        let delta = match image.entry(manifest::FILE) {
            Some(_) => None,
            None => Some(Delta::parse(iso, &read(delta::FILE, sha256)?)?),
        };
        let bytes = match &delta {
            None => read(manifest::FILE, sha256)?,
            Some(delta) => read(
                &format!("{}{}", delta::NEW, manifest::FILE),
                &delta.new.manifest_sha256,
            )?,
        };
        let manifest = manifest::from_bytes(iso, &bytes)?;
        Ok(Self {
            image,
            iso: iso.to_owned(),
            bytes,
            manifest,
            delta,
        })
    }

    /// The manifest of the bundle; for a delta, of the resulting one.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The description of the delta; `None` for a whole bundle.
    #[must_use]
    pub fn delta(&self) -> Option<&Delta> {
        self.delta.as_ref()
    }

    /// Extracts the selected files of a whole bundle into the caller's directory, for temporary
    /// use.
    ///
    /// # Errors
    /// A file cannot be read or written, or differs from the checked one.
    pub fn unpack_some(&self, dir: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<(), Error> {
        self.complete()?;
        for entry in self
            .image
            .entries()
            .iter()
            .filter(|entry| wanted(&entry.path))
        {
            let path = dir.join(&entry.path);
            let mut to = files::create(&path, entry.mode)?;
            let (sha256, _) = files::stream(&mut self.image.reader(&entry.path)?, &mut to)
                .map_err(Error::file("write", &path))?;
            self.compare(&entry.path, &sha256)?;
        }
        Ok(())
    }

    /// Extracts a whole bundle, as [`Image::extract`] does.
    ///
    /// # Errors
    /// As above, or a file differs from the checked one. Then nothing is left behind.
    pub(crate) fn extract(&self, dir: &Path, progress: &mut dyn FnMut(&str)) -> Result<(), Error> {
        self.complete()?;
        Ok(self.image.extract_as(
            dir,
            &|entry, sha256| self.compare(&entry.path, sha256),
            progress,
        )?)
    }

    /// Checks that each file of the manifest has an entry. [`Self::compare`] checks contents and
    /// files that are not in the manifest.
    fn complete(&self) -> Result<(), Error> {
        let there: BTreeSet<&str> = self
            .image
            .entries()
            .iter()
            .map(|entry| entry.path.as_str())
            .collect();
        match self
            .manifest
            .files
            .keys()
            .find(|path| !there.contains(path.as_str()))
        {
            None => Ok(()),
            Some(path) => Err(exchanged(&self.iso, &format!("{path} is not in it")).into()),
        }
    }

    /// Compares an extracted file of the bundle, by its SHA-256, with the checked one. A signature
    /// of the manifest needs no comparison: its reader verifies it.
    pub(crate) fn compare(&self, path: &str, sha256: &str) -> Result<(), halite_durable::Error> {
        let wanted = match path {
            manifest::FILE => digest::sha256(&self.bytes),
            manifest::CHECKSUM => digest::sha256(Manifest::checksum(&self.bytes).as_bytes()),
            _ if manifest::is_signature(path) => return Ok(()),
            _ => self
                .manifest
                .sha256(path)
                .ok_or_else(|| exchanged(&self.iso, &format!("{path} is not in its manifest")))?
                .to_owned(),
        };
        same(&self.iso, path, sha256, &wanted)
    }
}

fn same(iso: &Path, path: &str, found: &str, wanted: &str) -> Result<(), halite_durable::Error> {
    if found == wanted {
        return Ok(());
    }
    Err(exchanged(
        iso,
        &format!("{path} has the sha256 {found} instead of {wanted}"),
    ))
}

fn exchanged(iso: &Path, what: &str) -> halite_durable::Error {
    let why = format!(
        "{what}: it is not the checked file; it was replaced since, or its disk is failing: copy it again, and \
         check that copy"
    );
    halite_durable::Error::content(iso, why)
}
