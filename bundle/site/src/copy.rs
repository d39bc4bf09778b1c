//! Copying a bundle from another host of the site that serves it.

mod servers;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::fs::File;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use halite_durable::disk_space::{Need, Room};
use halite_durable::{Digest, files};
use halite_fetch::{Cache, Settings};
use halite_manifest::{Manifest, ManifestEntry, manifest};
use halite_names::BundleVersion;

use self::servers::{RequestedFile, Servers};
use crate::add::Added;
use crate::error::Error;
use crate::store::BundleStore;
use crate::verify;

/// The source of a copy.
#[derive(Debug, Clone)]
pub struct Origin {
    /// URLs of the bundle's directory, in order of preference.
    pub servers: Vec<String>,
    /// The connection's settings.
    pub settings: Settings,
}

/// The result of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// The result for the bundle.
    pub added: Added,
    /// Bytes that were fetched over the network.
    pub fetched: u64,
    /// Bytes that were reused from a damaged bundle of that version or from another bundle.
    pub reused: u64,
}

impl BundleStore {
    /// Checks that the bundle with this manifest (SHA-256) exists, and that each file has its size.
    /// Contents are not read.
    ///
    /// # Errors
    /// The missing or wrong files.
    pub fn holds(&self, version: &BundleVersion, fingerprint: &str) -> Result<(), Error> {
        let held = self.get(version)?;
        let found = held.digest().unwrap_or_default();
        let manifest = held
            .manifest
            .map_err(|why| Error::invalid(&held.path, why))?;
        if found != fingerprint {
            return Err(Error::content(
                held.path,
                format!("its manifest is {found}, not {fingerprint}"),
            ));
        }
        let wrong = verify::sizes(&held.path, &manifest)?;
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(Error::content(held.path, wrong.join("\n  ")))
        }
    }

    /// Copies the bundle whose manifest has this SHA-256. Each file is compared with the manifest,
    /// so the server need not be trusted. The bundle appears completely or not at all; files from
    /// an interrupted copy and from other bundles are not fetched again. A damaged or different
    /// bundle of that version is replaced atomically.
    ///
    /// # Errors
    /// No server has an intact copy of a file, the disk is full, another process is changing the
    /// bundles, or a system call fails. Then nothing has changed, except that fetched files are
    /// kept for the next attempt.
    pub fn copy(
        &self,
        version: &BundleVersion,
        fingerprint: &str,
        origin: &Origin,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Copied, Error> {
        let place = self.path(version);
        let digest: Digest = fingerprint.parse().map_err(|_| {
            Error::content(
                &place,
                format!("{fingerprint:?} is not the SHA-256 of a manifest"),
            )
        })?;
        let _lock = self.lock()?;
        if self.holds(version, fingerprint).is_ok() {
            return Ok(Copied {
                added: Added::There,
                fetched: 0,
                reused: 0,
            });
        }
        let kept = files::sibling(&place, "copy");
        let mut servers = Servers::new(origin, Cache::open(&kept)?)?;
        servers.fetch(
            vec![(manifest::FILE.to_owned(), digest.clone(), None)],
            progress,
        )?;
        let bytes = servers.cache.read(&digest)?.unwrap_or_default();
        let manifest = manifest::from_bytes(&place, &bytes)?;
        if manifest.version != *version {
            let message = format!(
                "the manifest belongs to {}, not to {version}",
                manifest.version
            );
            return Err(Error::content(place, message));
        }

        progress("looking for files that already exist here");
        let mut found = self.here(&place, &manifest)?;
        let reused = found.values().map(|here| here.size).sum();
        let missing = missing(&manifest, &found, &servers.cache)?;
        Room::at(self.root())?
            .holds(need(self.root(), &manifest, &missing, &found), self.root())?;
        let fetched = missing.iter().filter_map(|(_, _, size)| *size).sum();
        servers.fetch(missing, progress)?;
        for entry in manifest.files.values() {
            let digest = digest_of(&place, entry)?;
            if let Some(kept) = servers.cache.find(&digest, Some(entry.size)) {
                let here = Here {
                    path: kept.path,
                    size: entry.size,
                    whose: Whose::Fetched,
                };
                found.insert(entry.sha256.clone(), here);
            }
        }

        let beside = files::sibling(&place, "whole");
        // Files that were copied, not linked, are not synced yet.
        let whole =
            lay_out(&beside, &manifest, &bytes, found).and_then(|()| Ok(files::settle(&beside)?));
        if whole.is_err() {
            // Best effort: the first error is the one that matters.
            let _ = files::remove_any(&beside);
        }
        whole?;
        let added = if fs::symlink_metadata(&place).is_ok() {
            Added::Replaced
        } else {
            Added::New
        };
        files::put_in_place(&beside, &place)?;
        self.forget(version)?;
        files::remove_dir(&kept)?;
        Ok(Copied {
            added,
            fetched,
            reused,
        })
    }

    /// Files of the bundle that are already on this host, by SHA-256, each read and compared.
    fn here(&self, place: &Path, manifest: &Manifest) -> Result<BTreeMap<String, Here>, Error> {
        // Files in the site's own bundles come first.
        let mut candidates: BTreeMap<String, BTreeSet<(bool, PathBuf)>> = BTreeMap::new();
        for (path, entry) in &manifest.files {
            let candidate = (place.is_symlink(), place.join(path));
            candidates
                .entry(entry.sha256.clone())
                .or_default()
                .insert(candidate);
        }
        for held in self
            .list()?
            .iter()
            .filter(|held| held.link_target.is_none())
        {
            for (path, entry) in held.manifest.iter().flat_map(|manifest| &manifest.files) {
                if let Some(paths) = candidates.get_mut(&entry.sha256) {
                    paths.insert((false, held.path.join(path)));
                }
            }
        }
        let sizes: BTreeMap<&str, u64> = manifest
            .files
            .values()
            .map(|entry| (entry.sha256.as_str(), entry.size))
            .collect();
        let same = |sha256: &str, foreign: bool, path: &PathBuf| {
            let size = sizes.get(sha256).copied()?;
            let status = fs::symlink_metadata(path).ok()?;
            let plain = status.is_file() && status.len() == size;
            let own = Whose::Own {
                mode: status.permissions().mode() & 0o7777,
            };
            let whose = if foreign { Whose::Foreign } else { own };
            (plain && files::digest(path).ok()?.0 == sha256).then(|| Here {
                path: path.clone(),
                size,
                whose,
            })
        };
        let each = candidates.iter().filter_map(|(sha256, paths)| {
            let found = paths
                .iter()
                .find_map(|(foreign, path)| same(sha256, *foreign, path))?;
            Some((sha256.clone(), found))
        });
        Ok(each.collect())
    }
}

/// A file of the new bundle that is already on this host.
struct Here {
    path: PathBuf,
    /// Its size in bytes.
    size: u64,
    whose: Whose,
}

/// The owner of a file that is already on this host. A hard link shares the file: it has the same
/// mode, and changes when the owner writes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// It was fetched for this bundle and belongs to no other bundle.
    Fetched,
    /// It is in another bundle, in the site's own directory.
    Own { mode: u32 },
    /// It is in the target of a linked bundle.
    Foreign,
}

impl Here {
    /// Returns whether a file with that mode can be a hard link to it.
    fn links(&self, mode: u32) -> bool {
        match self.whose {
            Whose::Fetched => true,
            Whose::Own { mode: own } => own == mode,
            Whose::Foreign => false,
        }
    }

    /// Puts it at a path, as a hard link if possible, so that each blob is on the disk once.
    fn put(&mut self, to: &Path, mode: u32, entry: &ManifestEntry) -> Result<(), Error> {
        if let Some(above) = to.parent() {
            files::make_dir(above)?;
        }
        if self.links(mode) && fs::hard_link(&self.path, to).is_ok() {
            if self.whose == Whose::Fetched {
                let mode = fs::Permissions::from_mode(mode);
                fs::set_permissions(to, mode).map_err(Error::file("write", to))?;
            }
            self.whose = Whose::Own { mode };
            return Ok(());
        }
        let (found, _) = files::copy(&self.path, to, mode)?;
        if found == entry.sha256 {
            return Ok(());
        }
        Err(Error::content(
            &self.path,
            "it was changed while it was copied; run the command again",
        ))
    }
}

/// The mode of a bundle's file.
fn mode_of(path: &str) -> u32 {
    if path == "install" || path.starts_with("bin/") {
        0o755
    } else {
        0o644
    }
}

fn digest_of(place: &Path, entry: &ManifestEntry) -> Result<Digest, Error> {
    let wrong = |_| {
        Error::content(
            place,
            format!("the manifest has {:?} instead of a SHA-256", entry.sha256),
        )
    };
    entry.sha256.parse().map_err(wrong)
}

/// The contents that are neither here nor kept from an earlier attempt, each once; the largest
/// first, so that all threads end at about the same time.
fn missing(
    manifest: &Manifest,
    found: &BTreeMap<String, Here>,
    cache: &Cache,
) -> Result<Vec<RequestedFile>, Error> {
    let mut wanted = BTreeMap::new();
    for (path, entry) in manifest
        .files
        .iter()
        .filter(|(_, entry)| !found.contains_key(&entry.sha256))
    {
        let digest = digest_of(Path::new(path), entry)?;
        if cache.sound(&digest, Some(entry.size))?.is_none() {
            wanted.insert(
                entry.sha256.clone(),
                (path.clone(), digest, Some(entry.size)),
            );
        }
    }
    let mut wanted: Vec<RequestedFile> = wanted.into_values().collect();
    wanted.sort_by_key(|(_, _, size)| std::cmp::Reverse(*size));
    Ok(wanted)
}

/// The space that a bundle below `root` needs: for the files to fetch, and for the files on this
/// host that cannot be hard-linked because they are on another file system or have another owner or
/// mode.
fn need(
    root: &Path,
    manifest: &Manifest,
    missing: &[RequestedFile],
    found: &BTreeMap<String, Here>,
) -> Need {
    let device = |path: &Path| fs::metadata(path).map(|status| status.dev()).ok();
    let here = device(root);
    let mut need = Need::default();
    missing
        .iter()
        .for_each(|(_, _, size)| need.add(size.unwrap_or_default()));
    // Each content can have several names.
    for (path, entry) in &manifest.files {
        let is_copied = |found: &Here| !found.links(mode_of(path)) || device(&found.path) != here;
        if found.get(&entry.sha256).is_some_and(is_copied) {
            need.add(entry.size);
        }
    }
    need
}

/// Puts the files into place in a new directory.
fn lay_out(
    dir: &Path,
    manifest: &Manifest,
    bytes: &[u8],
    mut found: BTreeMap<String, Here>,
) -> Result<(), Error> {
    files::remove_any(dir)?;
    let mut directories: BTreeSet<PathBuf> = [dir.to_owned()].into();
    for (path, entry) in &manifest.files {
        let Some(here) = found.get_mut(&entry.sha256) else {
            return Err(Error::Incomplete(format!("{path} was not received")));
        };
        let to = dir.join(path);
        here.put(&to, mode_of(path), entry)?;
        directories.extend(
            to.ancestors()
                .skip(1)
                .take_while(|above| *above != dir)
                .map(Path::to_owned),
        );
    }
    for (name, content) in [
        (manifest::FILE, bytes),
        (manifest::CHECKSUM, Manifest::checksum(bytes).as_bytes()),
    ] {
        let path = dir.join(name);
        files::write(&path, 0o644, content)?;
        File::open(&path)
            .and_then(|file| file.sync_all())
            .map_err(Error::file("write", &path))?;
    }
    for directory in &directories {
        let open = fs::Permissions::from_mode(0o755);
        let durable =
            fs::set_permissions(directory, open).and_then(|()| File::open(directory)?.sync_all());
        durable.map_err(Error::file("write", directory))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_linked_needs_room() {
        let dir = tempfile::tempdir().unwrap();
        let (near, far) = (dir.path().join("near"), PathBuf::from("/proc/version"));
        let own = Whose::Own { mode: 0o644 };
        let here = |path: &Path, size, whose| Here {
            path: path.to_owned(),
            size,
            whose,
        };
        fs::write(&near, "near").unwrap();
        let entry = |digit: &str, size| ManifestEntry {
            sha256: digit.repeat(64),
            size,
        };
        let listed = [
            ("a", entry("1", 4)),
            ("b", entry("2", 5000)),
            ("c", entry("2", 5000)),
            ("d", entry("3", 7)),
            // On the same file system: in a linked directory, with another mode, and with the same
            // mode.
            ("e", entry("4", 11)),
            ("bin/f", entry("5", 13)),
            ("g", entry("5", 13)),
        ];
        let manifest = serde_json::json!({"format": 1, "name": "halite", "version": "1", "built": "",
            "kubernetes": "", "components": {}, "images": {}, "packages": {},
            "files": BTreeMap::from(listed)});
        let manifest =
            manifest::from_bytes(dir.path(), &serde_json::to_vec(&manifest).unwrap()).unwrap();
        let found = BTreeMap::from([
            ("1".repeat(64), here(&near, 4, own)),
            ("2".repeat(64), here(&far, 5000, own)),
            ("4".repeat(64), here(&near, 11, Whose::Foreign)),
            ("5".repeat(64), here(&near, 13, own)),
        ]);
        let cache = Cache::open(&dir.path().join("cache")).unwrap();
        let missing = missing(&manifest, &found, &cache).unwrap();
        let mut wanted = Need::default();
        [7, 5000, 5000, 11, 13]
            .into_iter()
            .for_each(|size| wanted.add(size));
        assert_eq!(need(dir.path(), &manifest, &missing, &found), wanted);
    }
}
