//! This host as the first one of a site: which bundles stand here, and which of them its cluster
//! uses.

mod vouched;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use halite_bundle::BundleStore;
use halite_manifest::{InstalledBundle, manifest};
use halite_pillar::bundle_facts::SiteBundle;
use halite_secrets::yaml;
use serde_json::Value;

pub use vouched::{REFUSED, Source, Vouched};

/// Where the declaration lives.
pub const CONFIG: &str = "/etc/halite";

/// A site, by its directories.
pub struct Site {
    /// Cluster document, node documents, trusted keys.
    pub config: PathBuf,
    /// Its bundles.
    pub bundles: BundleStore,
}

/// The bundle that a site's cluster uses.
pub struct InUse {
    /// Its version, as it is recorded; nothing is recorded of a cluster that was made before there
    /// were several.
    pub version: Option<String>,
    /// Where it should be.
    pub path: PathBuf,
}

impl Site {
    /// The site that this host is the first one of.
    pub fn here() -> Self {
        Self {
            config: CONFIG.into(),
            bundles: BundleStore::default(),
        }
    }

    /// The cluster document's file.
    pub fn document(&self) -> PathBuf {
        self.config.join("cluster.yaml")
    }

    /// The directory of the keys that the site trusts.
    pub fn trusted(&self) -> PathBuf {
        self.config.join("trust")
    }

    /// The bundle in use; none on a host without a cluster.
    ///
    /// # Errors
    /// The cluster document is there and cannot be read, or records what can be no bundle's
    /// version.
    pub fn in_use(&self) -> anyhow::Result<Option<InUse>> {
        let document = self.document();
        let text = match std::fs::read_to_string(&document) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| {
                format!(
                    "{} says which bundle is in use and cannot be read (only root can)",
                    document.display()
                )
            })?,
        };
        if let Some(version) = recorded(&text) {
            let path = self.bundles.path(&version)?;
            return Ok(Some(InUse {
                version: Some(version),
                path,
            }));
        }
        Ok(configured(&self.config).map(|path| InUse {
            version: None,
            path,
        }))
    }

    /// The bundles that stand here and can be used, as templates see them.
    pub fn others(&self) -> Vec<SiteBundle> {
        let known = |held: &InstalledBundle| {
            let kubernetes = held.manifest.as_ref().ok()?.kubernetes.clone();
            let path = held.path.display().to_string();
            Some(SiteBundle {
                version: held.version.clone(),
                kubernetes,
                path,
                manifest: held.digest()?,
            })
        };
        self.bundles
            .list()
            .unwrap_or_default()
            .iter()
            .filter_map(known)
            .collect()
    }

    /// Why a bundle is no successor of the one in use: a signature does not say that it is the
    /// newest one, so a site asks before it goes back.
    ///
    /// # Errors
    /// As [`Self::in_use`].
    pub fn downgrade(
        &self,
        version: &str,
        built: jiff::Timestamp,
    ) -> anyhow::Result<Option<String>> {
        let Some(in_use) = self.in_use()? else {
            return Ok(None);
        };
        if in_use.version.as_deref() == Some(version) {
            return Ok(None);
        }
        let name = in_use
            .version
            .unwrap_or_else(|| in_use.path.display().to_string());
        let there = match manifest::load(&in_use.path) {
            Ok(manifest) => manifest.built.parse::<jiff::Timestamp>().ok(),
            Err(_) => None,
        };
        Ok(match there {
            Some(there) if built >= there => None,
            Some(there) => Some(format!(
                "the bundle {version} was built at {built}, before the one in use ({name}, {there}); --allow-downgrade \
                 takes it all the same"
            )),
            None => Some(format!(
                "the bundle in use ({name}) is not at {} any more, so nobody knows whether {version} (built at {built}) is \
                 older; --allow-downgrade takes it all the same",
                in_use.path.display()
            )),
        })
    }
}

/// The version of the bundle that a cluster document records.
pub fn recorded(text: &str) -> Option<String> {
    let root = yaml::parse("cluster.yaml", text).ok()?;
    Some(root.get("resolved")?.get("bundle")?.raw.clone())
}

/// What the master's configuration names, where the cluster document records nothing.
fn configured(config: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(config.join("master.yaml")).ok()?;
    let configuration: Value = serde_saphyr::from_str(&text).ok()?;
    Some(PathBuf::from(configuration["bundle"].as_str()?))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
