//! Programs from URLs, as single files or in archives.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::{fs, io};

use halite_durable::digest::InvalidDigest;
use halite_durable::{Digest, files};
use halite_fetch::unpack::Compression;
use halite_fetch::{Artifact, unpack};

use super::{Gather, Mode, Settled};
use crate::build_cache::BuildCache;
use crate::error::Error;
use crate::lock::{Item, Lock};
use crate::recipe::Download;

/// The lock's name for the address itself as a source.
const DOWNLOAD: &str = "download";

/// The maximum size of a program or archive, in bytes.
const FILE: u64 = 16 << 30;

/// The maximum size of an unpacked archive, in bytes.
const UNPACKED: u64 = 16 << 30;

/// The number of names of an archive that are displayed.
const SHOWN: usize = 20;

impl Gather<'_> {
    /// Resolves each address.
    pub(super) fn settle_files(
        &self,
        recorded: Option<&Lock>,
        mode: Mode,
        unrecorded: &mut Vec<String>,
        errors: &mut Vec<Error>,
    ) -> BTreeMap<String, Item> {
        let (mut items, mut unknown) = (BTreeMap::new(), Vec::new());
        for (url, downloads) in self.by_address() {
            let declared = downloads
                .iter()
                .find_map(|download| download.sha256.as_ref());
            let known = recorded.and_then(|lock| lock.files.get(url));
            let known =
                known.filter(|item| declared.is_none_or(|digest| digest.hex() == item.sha256));
            match known {
                Some(known) => {
                    let item = described(&downloads, known.sha256.clone(), known.size);
                    items.insert(url.to_owned(), item);
                }
                None if mode == Mode::Exact => unrecorded.push(format!("the file {url}")),
                None => unknown.push((artifact(url, declared.cloned(), None), downloads)),
            }
        }
        let artifacts: Vec<Artifact> = unknown
            .iter()
            .map(|(artifact, _)| artifact.clone())
            .collect();
        match self.fetcher.files(&artifacts) {
            Ok(entries) => {
                let found =
                    unknown
                        .into_iter()
                        .zip(entries)
                        .map(|((artifact, downloads), entry)| {
                            (
                                artifact.url,
                                described(&downloads, entry.digest.hex().to_owned(), entry.size),
                            )
                        });
                items.extend(found);
            }
            Err(error) => errors.push(error.into()),
        }
        items
    }

    /// Fetches the files that the lock names, and copies each program to the path where the recipe
    /// expects it.
    pub(super) fn fetch_files(&self, settled: &Settled) -> Result<(), Error> {
        let addresses: Vec<_> = self.by_address().into_iter().collect();
        let mut artifacts = Vec::new();
        for (url, _) in &addresses {
            let item = settled.lock.files.get(*url);
            let item = item.ok_or_else(|| Error::content(*url, "it is not resolved"))?;
            artifacts.push(artifact(
                url,
                Some(self.digest(url, &item.sha256)?),
                Some(item.size),
            ));
        }
        let entries = self.fetcher.files(&artifacts)?;
        for ((url, downloads), entry) in addresses.iter().zip(entries) {
            let wanted: BTreeSet<&str> = downloads
                .iter()
                .filter_map(|download| download.member.as_deref())
                .collect();
            let inputs: Vec<&str> = std::iter::once(entry.digest.hex())
                .chain(wanted.iter().copied())
                .collect();
            let unpacked = match wanted.is_empty() {
                true => None,
                false => Some(BuildCache::new(&self.cache)?.get(
                    "unpacked",
                    &inputs.join("\n"),
                    |dir| members(&entry.path, url, &wanted, dir).map(|()| BTreeMap::new()),
                )?),
            };
            for download in downloads {
                match (&unpacked, &download.member) {
                    (Some(part), Some(member)) => {
                        let (path, sha256) = part.file(plain(member))?;
                        place(&path, sha256, &download.path)?;
                    }
                    _ => place(&entry.path, entry.digest.hex(), &download.path)?,
                }
            }
        }
        Ok(())
    }

    fn by_address(&self) -> BTreeMap<&str, Vec<&Download>> {
        let mut found: BTreeMap<&str, Vec<&Download>> = BTreeMap::new();
        for download in &self.recipe.downloads {
            found.entry(&download.url).or_default().push(download);
        }
        found
    }

    /// The digest that the lock records for an item.
    pub(super) fn digest(&self, name: &str, sha256: &str) -> Result<Digest, Error> {
        sha256.parse().map_err(|why: InvalidDigest| {
            Error::content(self.lock_file(), format!("{name}: {why}"))
        })
    }
}

/// Copies a program to the path where the recipe expects it. It is not a hard link, so a change to
/// it changes no other file.
fn place(from: &Path, sha256: &str, to: &Path) -> Result<(), Error> {
    let own = |status: fs::Metadata| status.is_file() && status.nlink() == 1;
    // Reading the file costs less than writing it at each build.
    if fs::symlink_metadata(to).is_ok_and(own) && files::digest(to)?.0 == sha256 {
        return Ok(());
    }
    let new = files::sibling(to, "new");
    files::remove_any(&new)?;
    let found = files::copy(from, &new, 0o755)?;
    if found.0 != sha256 {
        return Err(Error::damaged(from, &found));
    }
    Ok(files::publish(&new, to)?)
}

fn artifact(url: &str, digest: Option<Digest>, size: Option<u64>) -> Artifact {
    let name = url.split(['?', '#']).next().unwrap_or(url);
    Artifact {
        name: name.to_owned(),
        url: url.to_owned(),
        digest,
        size,
        limit: Some(FILE),
    }
}

fn described(downloads: &[&Download], sha256: String, size: u64) -> Item {
    let whys: Vec<&str> = downloads
        .iter()
        .map(|download| download.why.as_str())
        .collect();
    let licence = downloads
        .iter()
        .find_map(|download| download.licence.clone());
    Item {
        sha256,
        index: None,
        size,
        source: DOWNLOAD.to_owned(),
        licence,
        why: whys.join(", "),
    }
}

/// Removes the `./` with which many names in archives begin.
fn plain(name: &str) -> &str {
    name.trim_start_matches("./")
}

/// Extracts files of an archive into a directory, under their names in the archive.
fn members(archive: &Path, url: &str, wanted: &BTreeSet<&str>, dir: &Path) -> Result<(), Error> {
    let wrong =
        |error: io::Error| Error::content(url, format!("it is not a readable archive: {error}"));
    let reader = unpack::open(archive, Compression::sniff(archive)?, UNPACKED)?;
    let mut left: BTreeSet<&str> = wanted.iter().map(|name| plain(name)).collect();
    let mut there = Vec::new();
    for entry in tar::Archive::new(reader).entries().map_err(wrong)? {
        let mut entry = entry.map_err(wrong)?;
        let name = entry.path().map_err(wrong)?.to_string_lossy().into_owned();
        let name = plain(&name);
        if !entry.header().entry_type().is_file() {
            continue;
        }
        if left.remove(name) {
            let to = dir.join(name);
            let mut file = files::create(&to, 0o755)?;
            io::copy(&mut entry, &mut file).map_err(Error::file("write", &to))?;
        }
        there.push(name.to_owned());
    }
    if left.is_empty() {
        return Ok(());
    }
    let more = if there.len() > SHOWN { " …" } else { "" };
    there.truncate(SHOWN);
    let left: Vec<&str> = left.into_iter().collect();
    let message = format!(
        "it does not contain {}; it contains {}{more}",
        left.join(", "),
        there.join(", ")
    );
    Err(Error::content(url, message))
}
