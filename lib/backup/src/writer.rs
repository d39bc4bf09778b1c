//! Writes a backup to a stream.

use std::collections::BTreeMap;
use std::io;
use std::io::{Read, Write};

use halite_age::Encryptor;
use sha2::{Digest as _, Sha256};

use crate::SNAPSHOT;
use crate::archive::{Counted, LIST};
use crate::envelope::MAGIC;
use crate::error::{BackupDamage, Error};
use crate::header::Header;
use crate::manifest::{BackupEntry, Manifest};
use crate::snapshot::SnapshotCheck;

/// The mode of the list in the archive.
const LIST_MODE: u32 = 0o600;

/// A backup that is being written. Without [`BackupWriter::finish`] it has no digest, and is
/// refused as cut short.
pub struct BackupWriter<W: Write> {
    archive: tar::Builder<Content<W>>,
    header: Header,
    files: BTreeMap<String, BackupEntry>,
}

impl<W: Write> BackupWriter<W> {
    /// Starts a backup, encrypted to the header's recipients if there are any.
    ///
    /// # Errors
    /// Writing fails, or a recipient cannot be used.
    pub fn new(to: W, header: Header) -> Result<Self, Error> {
        let mut to = Hashing {
            to,
            hash: Sha256::new(),
        };
        let mut text = serde_json::to_string(&header).map_err(Error::Json)?;
        text.push('\n');
        to.write_all(MAGIC.as_bytes())
            .and_then(|()| to.write_all(text.as_bytes()))
            .map_err(Error::Write)?;
        let content = if header.recipients.is_empty() {
            Content::Plain(to)
        } else {
            let sealed = Encryptor::new(to, &header.recipients).map_err(Error::Encrypt)?;
            Content::Sealed(Box::new(sealed))
        };
        Ok(Self {
            archive: tar::Builder::new(content),
            header,
            files: BTreeMap::new(),
        })
    }

    /// Adds a file of exactly this size. etcd's snapshot is checked while it is written.
    ///
    /// # Errors
    /// The file has another size or is invalid, or writing fails.
    pub fn file(
        &mut self,
        path: &str,
        mode: u32,
        size: u64,
        content: &mut dyn Read,
    ) -> Result<(), Error> {
        let read_error = |source| Error::Read {
            path: path.to_owned(),
            source,
        };
        let check = (path == SNAPSHOT).then(SnapshotCheck::default);
        let mut counted = Counted::new(content.take(size.saturating_add(1)), check);
        self.append(path, mode, size, &mut counted)?;
        let entry = counted.finish(mode);
        let entry = entry
            .map_err(|damage| read_error(io::Error::new(io::ErrorKind::InvalidData, damage)))?;
        if entry.size != size {
            let message = format!("it now has {} bytes instead of {size}", entry.size);
            return Err(read_error(io::Error::other(message)));
        }
        self.files.insert(path.to_owned(), entry);
        Ok(())
    }

    fn append(
        &mut self,
        path: &str,
        mode: u32,
        size: u64,
        content: &mut dyn Read,
    ) -> Result<(), Error> {
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(mode);
        header.set_mtime(u64::try_from(self.header.created.as_second()).unwrap_or_default());
        self.archive
            .append_data(&mut header, path, content)
            .map_err(Error::Write)
    }

    /// Writes the list and the digest, and returns the stream and the list.
    ///
    /// # Errors
    /// Writing fails, or no snapshot of etcd was added.
    pub fn finish(mut self) -> Result<(W, Manifest), Error> {
        if !self.files.contains_key(SNAPSHOT) {
            let message = BackupDamage::NoSnapshot.to_string();
            return Err(Error::Write(io::Error::other(message)));
        }
        let manifest = Manifest {
            header: self.header.clone(),
            files: std::mem::take(&mut self.files),
            is_signed: false,
        };
        let text = serde_json::to_vec_pretty(&manifest).map_err(Error::Json)?;
        self.append(LIST, LIST_MODE, text.len() as u64, &mut text.as_slice())?;
        let finished = self.archive.into_inner().and_then(Content::finish);
        let Hashing { mut to, hash } = finished.map_err(Error::Write)?;
        let digest = halite_durable::digest::hex(&hash.finalize());
        writeln!(to, "{digest}").map_err(Error::Write)?;
        Ok((to, manifest))
    }
}

/// The stream of the archive's bytes, encrypted or not.
enum Content<W: Write> {
    Plain(Hashing<W>),
    Sealed(Box<Encryptor<Hashing<W>>>),
}

impl<W: Write> Content<W> {
    fn finish(self) -> io::Result<Hashing<W>> {
        match self {
            Self::Plain(to) => Ok(to),
            Self::Sealed(sealed) => sealed.finish(),
        }
    }
}

impl<W: Write> Write for Content<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(to) => to.write(bytes),
            Self::Sealed(sealed) => sealed.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(to) => to.flush(),
            Self::Sealed(sealed) => sealed.flush(),
        }
    }
}

/// A stream that hashes the written bytes.
struct Hashing<W> {
    to: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.to.write(bytes)?;
        self.hash.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
