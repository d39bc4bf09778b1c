//! A backup that is being read.

use std::fs::File;
use std::io;
use std::io::{BufRead as _, BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use halite_age::{AgeError, Decryptor, Identity};
use halite_durable::digest;
use sha2::{Digest as _, Sha256};

use crate::archive;
use crate::archive::Sink;
use crate::error::{BackupDamage, Error};
use crate::from_disk;
use crate::header::Header;
use crate::manifest::Manifest;

/// The first line.
pub(crate) const MAGIC: &str = "halite-backup 1\n";
const KIND: &str = "halite-backup ";
/// Bytes of the digest at the end, with its line end.
const TRAILER: u64 = 65;
/// The longest line that is read.
const LONGEST: u64 = 1 << 20;
/// Bytes of one read.
const BUFFER: usize = 256 * 1024;

/// A file that begins and ends like a backup.
#[derive(Debug)]
pub struct BackupFile {
    path: PathBuf,
    header: Header,
    /// The offset of the archive.
    begin: u64,
    end: u64,
    digest: String,
}

impl BackupFile {
    /// Reads the header and checks that the end exists. The content is not read.
    ///
    /// # Errors
    /// The file cannot be read, is not a backup, or is truncated.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let unreadable = |error| halite_durable::Error::file("read", path)(error);
        let damaged = |source| Error::Damaged {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(unreadable)?;
        let size = file.metadata().map_err(unreadable)?.len();
        let mut reader = BufReader::new(file);
        let mut line = || -> Result<Vec<u8>, io::Error> {
            let mut line = Vec::new();
            (&mut reader).take(LONGEST).read_until(b'\n', &mut line)?;
            Ok(line)
        };
        let first = line().map_err(unreadable)?;
        if first != MAGIC.as_bytes() {
            let text = String::from_utf8_lossy(&first).into_owned();
            let of_kind = text.strip_prefix(KIND).map(|version| version.trim_end());
            return Err(damaged(match of_kind {
                Some(version) if text.ends_with('\n') => BackupDamage::Newer(version.to_owned()),
                Some(_) => BackupDamage::Cut,
                None if KIND.starts_with(&*text) && !text.is_empty() => BackupDamage::Cut,
                None => BackupDamage::Foreign,
            }));
        }
        let second = line().map_err(unreadable)?;
        let begin = (first.len() + second.len()) as u64;
        let end = size.checked_sub(TRAILER).filter(|end| *end >= begin);
        let end = end.ok_or_else(|| damaged(BackupDamage::Cut))?;
        let digest = trailer(path, end).map_err(unreadable)?;
        let digest = digest.ok_or_else(|| damaged(BackupDamage::Cut))?;
        let header = serde_json::from_slice(&second);
        Ok(Self {
            path: path.to_owned(),
            header: header.map_err(|error| damaged(BackupDamage::Header(error)))?,
            begin,
            end,
            digest,
        })
    }

    /// The same file under its new name.
    pub(crate) fn named(self, path: PathBuf) -> Self {
        Self { path, ..self }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The facts about it. They are verified only after [`BackupFile::check`].
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.end + TRAILER
    }

    /// The digest of the content, as recorded in its last line.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    fn damaged(&self, source: BackupDamage) -> Error {
        Error::Damaged {
            path: self.path.clone(),
            source,
        }
    }

    fn file_error(&self, error: io::Error) -> Error {
        halite_durable::Error::file("read", &self.path)(error).into()
    }

    /// Compares every byte with the digest. No key is needed.
    ///
    /// # Errors
    /// A byte differs, or the file cannot be read.
    pub fn check(&self) -> Result<(), Error> {
        let file = File::open(&self.path).map_err(|error| self.file_error(error))?;
        let mut left = file.take(self.end);
        let (mut hash, mut buffer) = (Sha256::new(), vec![0; BUFFER]);
        loop {
            match left.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => hash.update(&buffer[..count]),
                Err(error) => return Err(self.file_error(error)),
            }
        }
        self.compare(hash)
    }

    /// Compares every byte with the digest, as read from the disk or share and not from the page
    /// cache.
    ///
    /// # Errors
    /// A byte differs, or the file cannot be read.
    pub fn check_on_disk(&self) -> Result<(), Error> {
        let (mut hash, mut left) = (Sha256::new(), self.end);
        let read = from_disk::read(&self.path, &mut |bytes| {
            let count = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
            hash.update(&bytes[..count]);
            left -= count as u64;
        });
        read.map_err(|error| self.file_error(error))?;
        self.compare(hash)
    }

    fn compare(&self, hash: Sha256) -> Result<(), Error> {
        if digest::hex(&hash.finalize()) == self.digest {
            Ok(())
        } else {
            Err(self.damaged(BackupDamage::Digest))
        }
    }

    /// Reads the archive: compares each file with its digest, and checks etcd's snapshot. The sink
    /// receives the files while they are read, except the signature; after an error they must not
    /// be used. If identities are given, an unencrypted backup is refused.
    ///
    /// # Errors
    /// It cannot be decrypted, or its content is invalid.
    pub fn read(&self, identities: &[Identity], sink: &mut Sink<'_>) -> Result<Manifest, Error> {
        if self.header.recipients.is_empty() && !identities.is_empty() {
            return Err(self.damaged(BackupDamage::Plain));
        }
        let mut file = File::open(&self.path).map_err(|error| self.file_error(error))?;
        let sought = file.seek(SeekFrom::Start(self.begin));
        sought.map_err(|error| self.file_error(error))?;
        let content = BufReader::with_capacity(BUFFER, file).take(self.end - self.begin);
        let read = if self.header.recipients.is_empty() {
            archive::read(content, sink)
        } else {
            let decrypted = Decryptor::new(content, identities);
            let decrypted = decrypted.map_err(|source| Error::Decrypt {
                path: self.path.clone(),
                source,
            })?;
            archive::read(decrypted, sink)
        };
        let manifest = read.map_err(|damage| match damage {
            BackupDamage::Archive(error) => match error.downcast::<AgeError>() {
                Ok(source) => Error::Decrypt {
                    path: self.path.clone(),
                    source,
                },
                Err(error) => self.damaged(BackupDamage::Archive(error)),
            },
            other => self.damaged(other),
        })?;
        if manifest.header == self.header {
            Ok(manifest)
        } else {
            Err(self.damaged(BackupDamage::Replaced))
        }
    }
}

/// The digest in the last line; `None` if that is not a digest.
fn trailer(path: &Path, at: u64) -> io::Result<Option<String>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(at))?;
    let mut last = Vec::new();
    file.take(TRAILER).read_to_end(&mut last)?;
    let text = String::from_utf8(last).ok();
    let text = text.and_then(|text| text.strip_suffix('\n').map(str::to_owned));
    Ok(text.filter(|text| digest::is_sha256(text)))
}
