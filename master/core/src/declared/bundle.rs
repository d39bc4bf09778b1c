//! A bundle in use, that is, a bundle of the site that the cluster document or a node document
//! records, and its content.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use halite_errors::chain;
use halite_manifest::manifest::load_text;
use halite_manifest::{Bundles, InstalledBundle, Manifest};
use halite_pillar::bundle_facts::{BundleFacts, SiteBundle};
use halite_pillar::cluster::Cluster;
use halite_states::tree::{MAX_FILE, MemoryTree, from_bundle_path};

use crate::refusal::Refusal;

/// The content of a bundle in use.
pub struct InUse {
    pub facts: BundleFacts,
    pub manifest: Manifest,
    by_hash: HashMap<String, PathBuf>,
}

impl InUse {
    /// The path of a file with this digest.
    pub fn file(&self, sha256: &str) -> Option<PathBuf> {
        self.by_hash.get(sha256).cloned()
    }
}

/// The directory of the bundle that a cluster uses: the recorded bundle of its document, otherwise
/// the configured one.
///
/// # Errors
/// The document records no bundle and none is configured.
pub fn directory(
    cluster: &Cluster,
    bundles: &Bundles,
    configured: Option<&Path>,
) -> Result<PathBuf, Refusal> {
    let recorded = cluster
        .resolved
        .as_ref()
        .and_then(|resolved| resolved.bundle.as_ref());
    match (recorded, configured) {
        (Some(version), _) => Ok(bundles.path(version)),
        (None, Some(path)) => Ok(path.to_owned()),
        (None, None) => Err(Refusal::invalid(
            "the cluster document records no bundle: `ctl bundle list` shows the bundles of this site, `ctl bundle use` records one",
        )),
    }
}

/// Reads a bundle: the facts and the state tree for the compiler, and the list of the site's other
/// bundles.
///
/// The owner of a linked directory may change its files after they were checked, and a disk may
/// damage any file. So each file of the state tree is compared with the manifest, and exactly the
/// compared bytes are compiled.
///
/// # Errors
/// The bundle is missing or damaged; the text has its expected directory and the remedy.
pub fn read(directory: &Path, bundles: &Bundles) -> Result<(InUse, MemoryTree), Refusal> {
    let all = bundles
        .list()
        .map_err(|error| Refusal::internal(chain(&error)))?;
    let held = all.iter().find(|held| held.path == directory);
    // Running services continue; only requests that need the bundle fail. An operator has to act,
    // so this is not `Unavailable`, after which callers retry by themselves.
    let unusable = |why: &str| {
        Refusal::conflict(match held {
            Some(held) => held.unusable(why),
            None => format!(
                "cannot read the bundle that this cluster uses at {}: {why}; add it again with `ctl bundle add`, or record \
                 another with `ctl bundle use`",
                directory.display()
            ),
        })
    };
    if let Some(why) = held.and_then(|held| held.manifest.as_ref().err()) {
        return Err(unusable(&chain(why)));
    }
    let recorded = held.and_then(|held| held.recorded.as_deref());
    // The text itself is needed, because other hosts know the bundle by its digest.
    let (manifest, text) =
        load_text(directory, recorded).map_err(|error| unusable(&chain(&error)))?;
    let tree = tree(directory, &manifest).map_err(|error| unusable(&chain(&error)))?;
    let path = directory.display().to_string();
    let mut facts = BundleFacts::from_manifest(&text, &path).map_err(|error| {
        Refusal::internal(format!(
            "cannot read the bundle's manifest: {}",
            chain(&error)
        ))
    })?;
    facts.site = all.iter().filter_map(on_site).collect();
    let files = manifest.files.iter();
    let by_hash = files
        .map(|(path, entry)| (entry.sha256.clone(), directory.join(path)))
        .collect();
    Ok((
        InUse {
            facts,
            manifest,
            by_hash,
        },
        tree,
    ))
}

/// Reads the state tree of a bundle and its charts, and compares each file with the manifest.
fn tree(directory: &Path, manifest: &Manifest) -> Result<MemoryTree, halite_manifest::Error> {
    let mut tree = MemoryTree::new();
    for (path, _) in manifest
        .files
        .iter()
        .filter(|(_, entry)| entry.size <= MAX_FILE)
    {
        let Some(name) = from_bundle_path(path) else {
            continue;
        };
        let content = manifest.read(directory, path)?;
        let mode = std::fs::metadata(directory.join(path))
            .ok()
            .map(|data| data.permissions().mode() & 0o7777);
        tree.insert(name, content, mode);
    }
    Ok(tree)
}

fn on_site(held: &InstalledBundle) -> Option<SiteBundle> {
    let manifest = held.manifest.as_ref().ok()?;
    Some(SiteBundle {
        version: held.version.clone(),
        kubernetes: manifest.kubernetes.clone(),
        path: held.path.display().to_string(),
        manifest: held.digest()?,
    })
}
