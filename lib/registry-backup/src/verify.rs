//! Compares a backup with its metadata, and each of its blobs with its digest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use halite_durable::ByteProgress;
use halite_errors::chain;

use crate::backup_metadata::{BackupMetadata, StoredDamage};
use crate::backups::Backup;
use crate::digest::{BLOBS, BlobDamage, Digest};
use crate::error::Error;
use crate::folder::{Folder, Lookup};
use crate::layout::{REPOSITORIES, ROOT, open_blob};
use crate::scan::scan;
use crate::tree::Tree;

/// The result of a verification.
#[derive(Debug)]
pub struct Verified {
    /// The number of intact blobs.
    pub blobs: usize,
    /// The size of the intact blobs, in bytes.
    pub bytes: u64,
    /// All damage.
    pub damaged: Vec<StoredDamage>,
}

/// An open backup.
pub struct OpenBackup {
    /// Its metadata.
    pub metadata: BackupMetadata,
    /// The directory of its layout.
    pub v2: Folder,
    /// Its links.
    pub tree: Tree,
    /// Damage to its links.
    pub damaged: Vec<StoredDamage>,
}

impl OpenBackup {
    /// Reads the links of a backup.
    ///
    /// # Errors
    /// It is not a complete backup, or cannot be read.
    pub fn new(backup: &Backup) -> Result<Self, Error> {
        let metadata = match &backup.metadata {
            Ok(metadata) => metadata.clone(),
            Err(source) => {
                return Err(Error::Incomplete {
                    path: backup.path.clone(),
                    source: Arc::clone(source),
                });
            }
        };
        let part = |found: Lookup<Folder>, path: &Path| match found {
            Lookup::Found(folder) => Ok(folder),
            Lookup::Missing => Err(Error::unusable(
                path,
                "it is missing; this is not a complete backup of a registry",
            )),
            Lookup::Unexpected(why) => Err(Error::unusable(path, why)),
        };
        let v2 = part(
            Folder::open(&backup.path)?.below(ROOT),
            &backup.path.join(ROOT),
        )?;
        let repositories = part(v2.enter(REPOSITORIES), &v2.path().join(REPOSITORIES))?;
        let tree = scan(&repositories, false);
        let mut damaged: Vec<StoredDamage> = tree
            .unexpected
            .iter()
            .map(|(path, why)| {
                let what = format!("{ROOT}/{REPOSITORIES}/{}", path.escape_debug());
                StoredDamage {
                    what,
                    why: why.clone(),
                    repositories: Vec::new(),
                }
            })
            .collect();
        if damaged.is_empty()
            && (tree.links.len(), tree.sha256()) != (metadata.links, metadata.links_sha256.clone())
        {
            let why = format!(
                "the backup was made with {} links, and these {} differ from them",
                metadata.links,
                tree.links.len()
            );
            damaged.push(StoredDamage {
                what: format!("{ROOT}/{REPOSITORIES}"),
                why,
                repositories: Vec::new(),
            });
        }
        Ok(Self {
            metadata,
            v2,
            tree,
            damaged,
        })
    }

    /// The links that are not in the backup, because they were damaged in the registry. Missing
    /// blobs are found through the links.
    pub fn missing_links(&self) -> Vec<StoredDamage> {
        let links = self
            .metadata
            .damaged
            .iter()
            .filter(|damage| damage.what.parse::<Digest>().is_err());
        links.cloned().collect()
    }

    /// Describes damage to a blob of the backup.
    pub fn damage(&self, digest: &Digest, why: String) -> StoredDamage {
        StoredDamage {
            what: digest.to_string(),
            why,
            repositories: self.tree.repositories_of(digest),
        }
    }
}

/// Compares every blob of a backup with its digest.
///
/// # Errors
/// It is not a backup, it cannot be read, or it was removed during the verification.
pub fn verify(backup: &Backup, progress: &mut dyn FnMut(&str)) -> Result<Verified, Error> {
    let opened = OpenBackup::new(backup)?;
    let mut damaged = Vec::new();
    let mut expected: BTreeSet<Digest> = list_blobs(&opened.v2, &mut damaged)?;
    expected.extend(opened.tree.needs().into_keys().cloned());
    let known: BTreeMap<&str, &StoredDamage> = opened
        .metadata
        .damaged
        .iter()
        .map(|damage| (damage.what.as_str(), damage))
        .collect();
    let (mut blobs, mut bytes) = (0, 0);
    let mut byte_progress = ByteProgress::new("read", opened.metadata.bytes, progress);
    for digest in &expected {
        let checked = match open_blob(&opened.v2, digest) {
            Lookup::Found(mut file) => digest.check(&mut file).map_err(|damage| chain(&damage)),
            Lookup::Missing => Err(match known.get(digest.to_string().as_str()) {
                Some(damage) => format!("the registry did not have it either: {}", damage.why),
                None => BlobDamage::Missing.to_string(),
            }),
            Lookup::Unexpected(why) => Err(BlobDamage::Unexpected(why).to_string()),
        };
        match checked {
            Ok(size) => {
                blobs += 1;
                bytes += size;
                byte_progress.add(size);
            }
            Err(why) => damaged.push(opened.damage(digest, why)),
        }
    }
    damaged.extend(opened.missing_links());
    damaged.extend(opened.damaged);
    // The removal of a backup starts with its name.
    if !damaged.is_empty() && Folder::open(&backup.path).is_err() {
        return Err(Error::unusable(
            &backup.path,
            "it was removed during the verification; verify another backup",
        ));
    }
    Ok(Verified {
        blobs,
        bytes,
        damaged,
    })
}

/// The blobs in a backup, from the names of their directories.
fn list_blobs(v2: &Folder, damaged: &mut Vec<StoredDamage>) -> Result<BTreeSet<Digest>, Error> {
    let mut digests = BTreeSet::new();
    let mut waiting = vec![(BLOBS.to_owned(), Vec::new())];
    while let Some((path, names)) = waiting.pop() {
        let mut unexpected = |why: String| {
            let what = format!("{ROOT}/{}", path.escape_debug());
            damaged.push(StoredDamage {
                what,
                why,
                repositories: Vec::new(),
            });
        };
        let names: Vec<String> = names;
        if let [algorithm, _, hex] = names.as_slice() {
            match Digest::from_names(algorithm, hex).filter(|digest| digest.folder() == path) {
                Some(digest) => {
                    digests.insert(digest);
                }
                None => unexpected("is not the name of a blob".to_owned()),
            }
            continue;
        }
        match v2.below(&path) {
            Lookup::Found(folder) => {
                let below = folder.names().map_err(Error::file("list", folder.path()))?;
                waiting.extend(below.into_iter().map(|name| {
                    (
                        format!("{path}/{name}"),
                        [names.as_slice(), &[name]].concat(),
                    )
                }));
            }
            Lookup::Missing => {}
            Lookup::Unexpected(why) => unexpected(why),
        }
    }
    Ok(digests)
}
