//! Extracting all files of an image.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use halite_durable::{AtomicDir, ByteProgress, Error, atomic_dir, digest, files};
use sha2::{Digest as _, Sha256};

use super::read::{ImageFile, IsoImage};
use super::sink::Sink;

/// Size of one read in bytes.
const CHUNK: usize = 1 << 20;

/// A check of an extracted file with its SHA-256.
type Judge<'a> = dyn Fn(&ImageFile, &str) -> Result<(), Error> + 'a;

impl IsoImage {
    /// Writes every file below a new directory, with its mode; directories get `0o755`. The
    /// directory appears under its name only when it is complete and synced. The next extraction
    /// removes the leftovers of a killed one. `progress` is called at each 10 %.
    ///
    /// # Errors
    /// `dir` exists, another extraction to it is in progress, or a file cannot be read or
    /// written. Then nothing is left behind.
    pub fn extract(&self, dir: &Path, progress: &mut dyn FnMut(&str)) -> Result<(), Error> {
        self.extract_as(dir, &|_, _| Ok(()), progress)
    }

    /// Extracts in the same way, and calls `judge` for each written file with its SHA-256. After an
    /// error of `judge`, nothing is left behind.
    pub fn extract_as(
        &self,
        dir: &Path,
        judge: &Judge<'_>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), Error> {
        AtomicDir::begin(dir)?.fill(|new| self.fill(new, judge, progress))
    }

    fn fill(
        &self,
        new: &Path,
        judge: &Judge<'_>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), Error> {
        let total = self.entries().iter().map(|entry| entry.size).sum();
        let mut tenths = ByteProgress::new("extracted", total, progress);
        for entry in self.entries() {
            let path = inside(new, entry).ok_or_else(|| {
                Error::content(
                    self.path(),
                    format!("the path {:?} leads out of the image", entry.path),
                )
            })?;
            atomic_dir::make_above(new, &path)?;
            let sha256 = self.copy(entry, &path, &mut |count| tenths.add(count))?;
            judge(entry, &sha256)?;
        }
        Ok(())
    }

    /// Writes a file and returns the SHA-256 of the written bytes.
    fn copy(
        &self,
        entry: &ImageFile,
        path: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<String, Error> {
        let mut from = self.content(entry);
        let mut to = Sink::new(files::create(path, entry.mode)?);
        let mut hash = Sha256::new();
        let mut buffer = vec![
            0;
            CHUNK
                .min(usize::try_from(entry.size).unwrap_or(CHUNK))
                .max(1)
        ];
        loop {
            let count = from
                .read(&mut buffer)
                .map_err(Error::file("read", self.path()))?;
            if count == 0 {
                to.finish().map_err(Error::file("write", path))?;
                return Ok(digest::hex(&hash.finalize()));
            }
            hash.update(&buffer[..count]);
            to.write_all(&buffer[..count])
                .map_err(Error::file("write", path))?;
            progress(count as u64);
        }
    }
}

/// The path of an entry below a directory; `None` if it would be outside. The reader already
/// refuses images with such names, but here they would do harm.
fn inside(dir: &Path, entry: &ImageFile) -> Option<PathBuf> {
    let mut path = dir.to_owned();
    for name in entry.path.split('/') {
        if Path::new(name).file_name() != Some(OsStr::new(name)) {
            return None;
        }
        path.push(name);
    }
    Some(path)
}
