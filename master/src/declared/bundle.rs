//! The bundle in use: which of the site's bundles the cluster document records, and what is in it.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use halite_manifest::manifest::load_text;
use halite_manifest::{Bundles, InstalledBundle, Manifest};
use halite_pillar::bundle::{BundleFacts, SiteBundle};
use halite_pillar::cluster::Cluster;
use halite_states::tree::{MAX_FILE, MemoryTree, of_bundle};

use crate::refusal::Refusal;

/// The bundle in use, read.
pub struct InUse {
    pub facts: BundleFacts,
    pub manifest: Manifest,
    by_hash: HashMap<String, PathBuf>,
}

impl InUse {
    /// Where a file lies, by its SHA-256.
    pub fn file(&self, sha256: &str) -> Option<PathBuf> {
        self.by_hash.get(sha256).cloned()
    }
}

/// Where the bundle stands that a cluster uses: the one that its document records, else the
/// configured one.
///
/// # Errors
/// Neither is there, or what is recorded can be no bundle's version.
pub fn place(
    cluster: &Cluster,
    bundles: &Bundles,
    configured: Option<&Path>,
) -> Result<PathBuf, Refusal> {
    let recorded = cluster
        .resolved
        .as_ref()
        .and_then(|resolved| resolved.bundle.as_deref());
    match (recorded, configured) {
        (Some(version), _) => bundles.path(version).map_err(|error| {
            Refusal::invalid(format!(
                "resolved.bundle of the cluster document: {error}; `ctl bundle use` records another"
            ))
        }),
        (None, Some(path)) => Ok(path.to_owned()),
        (None, None) => Err(Refusal::invalid(
            "the cluster document records no bundle: `ctl bundle list` shows those of this site, `ctl bundle use` records one",
        )),
    }
}

/// Reads the bundle that stands at a place with what a compiler needs of it, and which others there
/// are.
///
/// Who owns a directory that is linked may change its files after they were checked, and a disk may
/// do so with every other: so each file of the state tree is compared with the manifest, and what
/// was read then is what is compiled.
///
/// # Errors
/// It is not there (any more), or is not what it should be: where it should be, and what to do.
pub fn read(place: &Path, bundles: &Bundles) -> Result<(InUse, MemoryTree), Refusal> {
    let all = bundles
        .list()
        .map_err(|error| Refusal::internal(error.to_string()))?;
    let held = all.iter().find(|held| held.path == place);
    // What runs goes on running; only what needs the bundle has to wait. Somebody has to do
    // something about it, so nobody tries again by himself, as for a master that is away.
    let unusable = |why: &str| {
        Refusal::conflict(match held {
            Some(held) => held.unusable(why),
            None => format!(
                "the bundle that this cluster uses is not at {}: {why}; put it there again with `ctl bundle add`, or record \
                 another with `ctl bundle use`",
                place.display()
            ),
        })
    };
    if let Some(why) = held.and_then(|held| held.manifest.as_ref().err()) {
        return Err(unusable(why));
    }
    let recorded = held.and_then(|held| held.recorded.as_deref());
    // The text itself: its hash is what other hosts know the bundle by.
    let (manifest, text) =
        load_text(place, recorded).map_err(|error| unusable(&error.to_string()))?;
    let tree = tree(place, &manifest).map_err(|error| unusable(&error.to_string()))?;
    let path = place.display().to_string();
    let mut facts = BundleFacts::from_manifest(&text, &path)
        .map_err(|error| Refusal::internal(format!("the bundle's manifest: {error}")))?;
    facts.site = all.iter().filter_map(on_site).collect();
    let files = manifest.files.iter();
    let by_hash = files
        .map(|(path, entry)| (entry.sha256.clone(), place.join(path)))
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

/// The state tree of a bundle and its charts, as the manifest says that they are.
fn tree(place: &Path, manifest: &Manifest) -> Result<MemoryTree, halite_manifest::Error> {
    let mut tree = MemoryTree::new();
    for (path, _) in manifest
        .files
        .iter()
        .filter(|(_, entry)| entry.size <= MAX_FILE)
    {
        let Some(name) = of_bundle(path) else {
            continue;
        };
        let content = manifest.read(place, path)?;
        let mode = std::fs::metadata(place.join(path))
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
