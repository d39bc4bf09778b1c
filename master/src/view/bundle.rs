//! The bundle in use: which of the site's bundles the cluster document records, and what is in it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use halite_bundle::Manifest;
use halite_bundle::site::{Bundles, Held};
use halite_pillar::bundle::{BundleFacts, SiteBundle};
use halite_pillar::cluster::Cluster;

use crate::app::Refusal;

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

/// Where the bundle stands that a cluster uses: the one that its document records, else the configured one.
///
/// # Errors
/// Neither is there, or what is recorded can be no bundle's version.
pub fn place(cluster: &Cluster, bundles: &Bundles, configured: Option<&Path>) -> Result<PathBuf, Refusal> {
    let recorded = cluster.resolved.as_ref().and_then(|resolved| resolved.bundle.as_deref());
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

/// Reads the bundle that stands at a place, and which others there are.
///
/// # Errors
/// It is not there (any more), or is not what it should be: where it should be, and what to do.
pub fn read(place: &Path, bundles: &Bundles) -> Result<InUse, Refusal> {
    let all = bundles.list().map_err(|error| Refusal::internal(error.to_string()))?;
    let manifest = match all.iter().find(|held| held.path == place) {
        Some(held) => held.manifest.clone().map_err(|_| held.trouble().unwrap_or_default()),
        None => halite_bundle::manifest::load(place).map_err(|error| {
            format!(
                "the bundle that this cluster uses is not at {}: {error}; put it there again with `ctl bundle add`, or \
                 record another with `ctl bundle use`",
                place.display()
            )
        }),
    };
    // What runs goes on running; only what needs the bundle has to wait. Somebody has to do something about it, so nobody
    // tries again by himself, as for a master that is away.
    let manifest = manifest.map_err(Refusal::conflict)?;
    let path = place.display().to_string();
    // The text itself: its hash is what other hosts know the bundle by.
    let text = std::fs::read_to_string(place.join(halite_bundle::manifest::FILE));
    let text = text.map_err(|error| Refusal::internal(format!("the bundle's manifest: {error}")))?;
    let mut facts = BundleFacts::from_manifest(&text, &path)
        .map_err(|error| Refusal::internal(format!("the bundle's manifest: {error}")))?;
    facts.site = all.iter().filter_map(on_site).collect();
    let files = manifest.files.iter();
    let by_hash = files.map(|(path, entry)| (entry.sha256.clone(), place.join(path))).collect();
    Ok(InUse { facts, manifest, by_hash })
}

fn on_site(held: &Held) -> Option<SiteBundle> {
    let manifest = held.manifest.as_ref().ok()?;
    Some(SiteBundle {
        version: held.version.clone(),
        kubernetes: manifest.kubernetes.clone(),
        path: held.path.display().to_string(),
        manifest: held.digest()?,
    })
}
