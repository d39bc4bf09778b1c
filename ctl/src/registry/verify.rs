//! Reading a backup: whether it has what it had when it was made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use halite_durable::{ByteProgress, Error};

use super::backups::Backup;
use super::digest::Digest;
use super::facts::{Damage, Facts};
use super::folder::{Folder, Found};
use super::tree::Tree;
use super::{BLOBS, REPOSITORIES, ROOT, blob};

/// What was found in a backup.
#[derive(Debug)]
pub struct Verified {
    /// Blobs that are as they should be.
    pub blobs: usize,
    /// Their size in bytes.
    pub bytes: u64,
    /// Everything else.
    pub damaged: Vec<Damage>,
}

/// A backup that can be read.
pub struct Opened {
    /// What it says of itself.
    pub facts: Facts,
    /// `docker/registry/v2`.
    pub v2: Folder,
    /// Its links.
    pub tree: Tree,
    /// What is wrong with them.
    pub damaged: Vec<Damage>,
}

impl Opened {
    /// Reads the links of a backup.
    ///
    /// # Errors
    /// It is none.
    pub fn new(backup: &Backup) -> Result<Self, Error> {
        let facts = backup.facts.clone().map_err(|why| {
            Error::content(
                &backup.path,
                format!("it is no whole backup of a registry: {why}"),
            )
        })?;
        let part = |found: Found<Folder>, path: &Path| match found {
            Found::Here(folder) => Ok(folder),
            Found::Gone => Err(Error::content(
                path,
                "it is missing: this is no whole backup of a registry",
            )),
            Found::Strange(why) => Err(Error::content(path, why)),
        };
        let v2 = part(
            Folder::open(&backup.path)?.below(ROOT),
            &backup.path.join(ROOT),
        )?;
        let repositories = part(v2.enter(REPOSITORIES), &v2.path().join(REPOSITORIES))?;
        let tree = Tree::read(&repositories, false);
        let mut damaged: Vec<Damage> = tree
            .strange
            .iter()
            .map(|(path, why)| {
                let what = format!("{ROOT}/{REPOSITORIES}/{}", path.escape_debug());
                Damage {
                    what,
                    why: why.clone(),
                    repositories: Vec::new(),
                }
            })
            .collect();
        if damaged.is_empty()
            && (tree.links.len(), tree.sha256()) != (facts.links, facts.links_sha256.clone())
        {
            let why = format!(
                "there were {} links, and these {} are others",
                facts.links,
                tree.links.len()
            );
            damaged.push(Damage {
                what: format!("{ROOT}/{REPOSITORIES}"),
                why,
                repositories: Vec::new(),
            });
        }
        Ok(Self {
            facts,
            v2,
            tree,
            damaged,
        })
    }

    /// What it has no link of, since the registry's own was damaged. Blobs that it lacks are told
    /// by its links.
    pub fn lacking(&self) -> Vec<Damage> {
        let links = self
            .facts
            .damaged
            .iter()
            .filter(|damage| damage.what.parse::<Digest>().is_err());
        links.cloned().collect()
    }

    /// What is damaged about a blob of it.
    pub fn damage(&self, digest: &Digest, why: String) -> Damage {
        Damage {
            what: digest.to_string(),
            why,
            repositories: self.tree.repositories_of(digest),
        }
    }
}

/// Compares every blob of a backup with its name.
///
/// # Errors
/// It is no backup, or cannot be read, or is removed meanwhile.
pub fn verify(backup: &Backup, progress: &mut dyn FnMut(&str)) -> Result<Verified, Error> {
    let opened = Opened::new(backup)?;
    let mut damaged = Vec::new();
    let mut wanted: BTreeSet<Digest> = listed(&opened.v2, &mut damaged)?;
    wanted.extend(opened.tree.needs().into_keys().cloned());
    let known: BTreeMap<&str, &Damage> = opened
        .facts
        .damaged
        .iter()
        .map(|damage| (damage.what.as_str(), damage))
        .collect();
    let (mut blobs, mut bytes) = (0, 0);
    let mut tenths = ByteProgress::new("read", opened.facts.bytes, progress);
    for digest in &wanted {
        let checked = match blob(&opened.v2, digest) {
            Found::Here(mut file) => digest.check(&mut file),
            Found::Gone => Err(match known.get(digest.to_string().as_str()) {
                Some(damage) => format!("the registry itself did not have it: {}", damage.why),
                None => "it is missing".to_owned(),
            }),
            Found::Strange(why) => Err(format!("its file {why}")),
        };
        match checked {
            Ok(size) => {
                blobs += 1;
                bytes += size;
                tenths.add(size);
            }
            Err(why) => damaged.push(opened.damage(digest, why)),
        }
    }
    damaged.extend(opened.lacking());
    damaged.extend(opened.damaged);
    // A backup that is removed loses its name first.
    if !damaged.is_empty() && Folder::open(&backup.path).is_err() {
        return Err(Error::content(
            &backup.path,
            "it was removed while it was read: read another one",
        ));
    }
    Ok(Verified {
        blobs,
        bytes,
        damaged,
    })
}

/// The blobs that are there, by the names of their directories.
fn listed(v2: &Folder, damaged: &mut Vec<Damage>) -> Result<BTreeSet<Digest>, Error> {
    let mut digests = BTreeSet::new();
    let mut waiting = vec![(BLOBS.to_owned(), Vec::new())];
    while let Some((path, names)) = waiting.pop() {
        let mut strange = |why: String| {
            let what = format!("{ROOT}/{}", path.escape_debug());
            damaged.push(Damage {
                what,
                why,
                repositories: Vec::new(),
            });
        };
        let names: Vec<String> = names;
        if let [algorithm, _, hex] = names.as_slice() {
            match Digest::of_names(algorithm, hex).filter(|digest| digest.folder() == path) {
                Some(digest) => {
                    digests.insert(digest);
                }
                None => strange("is named like no blob".to_owned()),
            }
            continue;
        }
        match v2.below(&path) {
            Found::Here(folder) => {
                let below = folder.names().map_err(Error::file("list", folder.path()))?;
                waiting.extend(below.into_iter().map(|name| {
                    (
                        format!("{path}/{name}"),
                        [names.as_slice(), &[name]].concat(),
                    )
                }));
            }
            Found::Gone => {}
            Found::Strange(why) => strange(why),
        }
    }
    Ok(digests)
}
