//! Reading a whole bundle and reporting everything in it that differs from its manifest.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use halite_durable::{ByteProgress, files};
use halite_errors::chain;
use halite_fetch::{apt_index, oci_layout};
use halite_manifest::{ImageReference, Manifest, manifest};

use crate::damage::BundleDamage;
use crate::error::Error;
use crate::sbom;

/// Hashing is CPU-bound, and the smallest supported host has two processors.
const READERS: usize = 2;

/// The report of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyReport {
    /// Number of files that were read.
    pub files: usize,
    /// Their size in bytes according to the manifest.
    pub size: u64,
    /// All problems, in a fixed order.
    pub problems: Vec<BundleDamage>,
}

impl VerifyReport {
    /// Returns whether the bundle matches its manifest.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Verifies the bundle in a directory: its manifest, every existing or missing file, and the
/// completeness of each image and each package.
///
/// # Errors
/// The directory cannot be listed. Problems of the bundle are in the report.
pub fn verify(dir: &Path, progress: &mut dyn FnMut(&str)) -> Result<VerifyReport, Error> {
    by(dir, manifest::load(dir), progress)
}

/// Verifies the bundle in a directory only by the manifest with this SHA-256, whose [signature was
/// verified](crate::signed_manifest::verified()).
///
/// # Errors
/// As for [`verify`].
pub fn verify_same(
    dir: &Path,
    sha256: &str,
    progress: &mut dyn FnMut(&str),
) -> Result<VerifyReport, Error> {
    by(dir, manifest::load_same(dir, sha256), progress)
}

fn by(
    dir: &Path,
    manifest: Result<Manifest, halite_durable::Error>,
    progress: &mut dyn FnMut(&str),
) -> Result<VerifyReport, Error> {
    let manifest = match manifest {
        Ok(manifest) => manifest,
        Err(error) => {
            let problem = BundleDamage::Manifest {
                message: chain(&error),
            };
            return Ok(VerifyReport {
                files: 0,
                size: 0,
                problems: vec![problem],
            });
        }
    };
    let mut problems = contents(dir, &manifest, progress);
    problems.extend(extra(dir, &manifest)?);
    // Damage is already reported; only an intact bundle can still be incomplete.
    if problems.is_empty() {
        problems.extend(images(dir, &manifest));
        problems.extend(packages(dir, &manifest));
        problems.extend(components(dir, &manifest));
    }
    problems.sort_unstable();
    let size = manifest.files.values().map(|entry| entry.size).sum();
    Ok(VerifyReport {
        files: manifest.files.len(),
        size,
        problems,
    })
}

/// The differences between a directory and its manifest that are visible in names and sizes. This
/// takes no longer for large files than for small ones.
///
/// # Errors
/// The directory cannot be listed.
pub(crate) fn sizes(dir: &Path, manifest: &Manifest) -> Result<Vec<String>, Error> {
    let size = |(path, entry): (&String, &manifest::ManifestEntry)| match std::fs::symlink_metadata(
        dir.join(path),
    ) {
        Ok(status) if !status.is_file() => Some(format!("{path}: it is not a regular file")),
        Ok(status) if status.len() != entry.size => Some(format!(
            "{path}: {} bytes instead of {}",
            status.len(),
            entry.size
        )),
        Ok(_) => None,
        Err(error) => Some(format!("{path}: {error}")),
    };
    let mut wrong: Vec<String> = manifest.files.iter().filter_map(size).collect();
    wrong.extend(extra(dir, manifest)?.iter().map(ToString::to_string));
    Ok(wrong)
}

/// The existing files that are not in the manifest.
fn extra(dir: &Path, manifest: &Manifest) -> Result<Vec<BundleDamage>, Error> {
    let (there, others) = files::entries(dir)?;
    let extra = there.into_iter().filter(|path| {
        path != manifest::FILE
            && path != manifest::CHECKSUM
            && !manifest::is_signature(path)
            && !manifest.files.contains_key(path)
    });
    Ok(extra
        .chain(others)
        .map(|path| BundleDamage::Extra { path })
        .collect())
}

/// Reads every file of the manifest.
pub(crate) fn contents(
    dir: &Path,
    manifest: &Manifest,
    progress: &mut dyn FnMut(&str),
) -> Vec<BundleDamage> {
    let mut work: Vec<_> = manifest.files.iter().collect();
    // The largest files first, so that both readers end at about the same time.
    work.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.size));
    let total: u64 = work.iter().map(|(_, entry)| entry.size).sum();
    let next = AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    let mut problems = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            let (sender, work, next) = (sender.clone(), &work, &next);
            scope.spawn(move || {
                while let Some((path, entry)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if sender
                        .send((entry.size, content(dir, path, entry)))
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut tenths = ByteProgress::new("read", total, progress);
        for (size, problem) in results {
            tenths.add(size);
            problems.extend(problem);
        }
    });
    problems
}

fn content(dir: &Path, path: &str, entry: &manifest::ManifestEntry) -> Option<BundleDamage> {
    let file = dir.join(path);
    let missing = |message: String| {
        Some(BundleDamage::Missing {
            path: path.to_owned(),
            message,
        })
    };
    match std::fs::symlink_metadata(&file) {
        Ok(status) if status.is_file() => {}
        Ok(_) => return missing("it is not a regular file".to_owned()),
        Err(error) => return missing(error.to_string()),
    }
    match files::digest(&file) {
        Err(error) => missing(chain(&error)),
        Ok((sha256, size)) if size != entry.size => {
            let message = format!("{size} bytes instead of {}, sha256 {sha256}", entry.size);
            Some(BundleDamage::Changed {
                path: path.to_owned(),
                message,
            })
        }
        Ok((sha256, _)) if sha256 != entry.sha256 => {
            let message = format!("sha256 {sha256} instead of {}", entry.sha256);
            Some(BundleDamage::Changed {
                path: path.to_owned(),
                message,
            })
        }
        Ok(_) => None,
    }
}

/// Checks that the SPDX document names all components of the bundle.
fn components(dir: &Path, manifest: &Manifest) -> Vec<BundleDamage> {
    let found = sbom::check::check(dir, manifest).unwrap_or_else(|error| vec![chain(&error)]);
    found
        .into_iter()
        .map(|message| BundleDamage::Incomplete { message })
        .collect()
}

/// Checks that every image of the manifest is in the layout, with its configuration and layers.
fn images(dir: &Path, manifest: &Manifest) -> Vec<BundleDamage> {
    let layout = dir.join("images");
    let named: Vec<_> = match oci_layout::names(&layout) {
        Ok(names) => names
            .into_iter()
            .filter_map(|(name, entry)| Some((name?, entry)))
            .collect(),
        Err(error) => {
            return vec![BundleDamage::Incomplete {
                message: chain(&error),
            }];
        }
    };
    let mut found = Vec::new();
    let present: BTreeMap<_, _> = named
        .iter()
        .map(|(name, entry)| (name.as_str(), entry.digest.as_str()))
        .collect();
    for (component, reference) in &manifest.images {
        let ImageReference { name, digest } = ImageReference::new(reference);
        match present.get(name) {
            None => found.push(format!("{name} ({component}) is not in images/index.json")),
            Some(other) if digest.is_some_and(|digest| digest != *other) => found.push(format!(
                "{name} ({component}) is {other} in images/index.json, and another image in {}",
                manifest::FILE
            )),
            Some(_) => {}
        }
    }
    for (name, entry) in named {
        let image = match oci_layout::read(&layout, entry) {
            Ok(image) => image,
            Err(error) => {
                found.push(format!("{name}: {}", chain(&error)));
                continue;
            }
        };
        for blob in image.blobs() {
            let hex = blob.hex().unwrap_or_default();
            let path = format!("images/blobs/sha256/{hex}");
            match manifest.files.get(&path) {
                None => found.push(format!("{name}: {} is missing", blob.digest)),
                Some(entry) if entry.sha256 != hex || entry.size != blob.size => {
                    found.push(format!("{name}: {} has different content", blob.digest));
                }
                Some(_) => {}
            }
        }
    }
    found
        .into_iter()
        .map(|message| BundleDamage::Incomplete { message })
        .collect()
}

/// Checks that the repository lists every package of the manifest, and that every listed file
/// exists.
fn packages(dir: &Path, manifest: &Manifest) -> Vec<BundleDamage> {
    let listed = match apt_index::parse_index(&dir.join("apt")) {
        Ok(listed) => listed,
        Err(error) => {
            return vec![BundleDamage::Incomplete {
                message: chain(&error),
            }];
        }
    };
    let mut found = Vec::new();
    for (package, version) in &manifest.packages {
        if !listed
            .iter()
            .any(|entry| entry.package == *package && entry.version == *version)
        {
            found.push(format!(
                "the package {package} {version} is not in the index of the repository"
            ));
        }
    }
    for entry in &listed {
        let file = manifest.files.get(&format!("apt/{}", entry.file));
        if file.is_none_or(|file| file.sha256 != entry.sha256 || file.size != entry.size) {
            found.push(format!(
                "the package {}: {} does not match the index",
                entry.package, entry.file
            ));
        }
    }
    found
        .into_iter()
        .map(|message| BundleDamage::Incomplete { message })
        .collect()
}
