//! The archive in a backup: its files, and a list of them as the last file.

use std::collections::BTreeMap;
use std::io;
use std::io::{Read, Write};
use std::path::{Component, Path};

use halite_durable::Digest;
use sha2::{Digest as _, Sha256};

use crate::SNAPSHOT;
use crate::error::BackupDamage;
use crate::manifest::{BackupEntry, Manifest};
use crate::signature;
use crate::signature::SIGNATURE;
use crate::snapshot::SnapshotCheck;

/// The path of the list.
pub const LIST: &str = "manifest.json";
/// The largest list that is read.
const LARGEST_LIST: u64 = 64 << 20;
/// The largest signature that is read: it contains the list, too.
const LARGEST_SIGNATURE: u64 = 2 * LARGEST_LIST;

/// Receives the files of a backup while it is read. Bytes that it leaves unread are still verified.
pub type Sink<'a> = dyn FnMut(&str, u32, &mut dyn Read) -> io::Result<()> + 'a;

/// Reads an archive to its end. After an error, files already received must not be used.
pub(crate) fn read(from: impl Read, sink: &mut Sink<'_>) -> Result<Manifest, BackupDamage> {
    let mut archive = tar::Archive::new(from);
    let mut found: BTreeMap<String, BackupEntry> = BTreeMap::new();
    let (mut manifest, mut signed) = (None, None);
    for entry in archive.entries().map_err(BackupDamage::Archive)? {
        let entry = entry.map_err(BackupDamage::Archive)?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let is_file = entry.header().entry_type().is_file();
        if !is_file || !is_plain(&path) || manifest.is_some() || found.contains_key(&path) {
            return Err(BackupDamage::Unexpected(path));
        }
        let mode = entry.header().mode().map_err(BackupDamage::Archive)? & 0o777;
        if path == LIST {
            let mut text = Vec::new();
            let read = entry.take(LARGEST_LIST).read_to_end(&mut text);
            read.map_err(BackupDamage::Archive)?;
            manifest = Some(serde_json::from_slice(&text).map_err(|_| BackupDamage::List)?);
            continue;
        }
        let mut counted = Counted::new(entry, (path == SNAPSHOT).then(SnapshotCheck::default));
        if path == SIGNATURE {
            let mut text = Vec::new();
            let read = (&mut counted)
                .take(LARGEST_SIGNATURE)
                .read_to_end(&mut text);
            read.map_err(BackupDamage::Archive)?;
            signed = Some(text);
        } else {
            sink(&path, mode, &mut counted).map_err(BackupDamage::Archive)?;
        }
        io::copy(&mut counted, &mut io::sink()).map_err(BackupDamage::Archive)?;
        found.insert(path, counted.finish(mode)?);
    }
    let mut manifest: Manifest = manifest.ok_or(BackupDamage::List)?;
    let names = manifest.files.keys().chain(found.keys());
    let differs = |name: &&String| manifest.files.get(*name) != found.get(*name);
    if let Some(name) = names.into_iter().find(differs) {
        return Err(BackupDamage::Entry(name.clone()));
    }
    if !found.contains_key(SNAPSHOT) {
        return Err(BackupDamage::NoSnapshot);
    }
    if let Some(text) = signed {
        signature::verify(&text, &manifest).map_err(BackupDamage::Signature)?;
        manifest.is_signed = true;
    }
    Ok(manifest)
}

/// Returns whether a path stays below the directory to which it is relative.
fn is_plain(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    !path.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// A reader that counts and hashes.
pub(crate) struct Counted<R> {
    from: R,
    hash: Sha256,
    size: u64,
    snapshot: Option<SnapshotCheck>,
}

impl<R: Read> Counted<R> {
    pub(crate) fn new(from: R, snapshot: Option<SnapshotCheck>) -> Self {
        Self {
            from,
            hash: Sha256::new(),
            size: 0,
            snapshot,
        }
    }

    /// The entry of the file that was read.
    pub(crate) fn finish(self, mode: u32) -> Result<BackupEntry, BackupDamage> {
        if let Some(check) = self.snapshot {
            check.finish()?;
        }
        Ok(BackupEntry {
            sha256: Digest::finish(self.hash),
            size: self.size,
            mode,
        })
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.hash.update(&buffer[..count]);
        if let Some(check) = &mut self.snapshot {
            check.write_all(&buffer[..count])?;
        }
        self.size += count as u64;
        Ok(count)
    }
}
