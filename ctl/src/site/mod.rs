//! The site of this host: its directories, its bundles, and the bundle that its cluster uses.

mod keys;
mod signed_manifest;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use halite_bundle::BundleStore;
use halite_manifest::{InstalledBundle, manifest};
use halite_names::BundleVersion;
use halite_pillar::bundle_facts::SiteBundle;
use halite_secrets::yaml;

use crate::paths::CONFIG;

pub use keys::{own_keys, trusted_keys, verify_manifest, verify_manifest_with_known_keys};
pub use signed_manifest::{BundleOrigin, REFUSED, VerifiedBundle};

/// A site.
pub struct Site {
    /// The directory of cluster document, node documents and trusted keys.
    pub config: PathBuf,
    /// The site's bundles.
    pub bundles: BundleStore,
}

/// The bundle that a site's cluster uses.
pub struct InUse {
    /// Its version, if the cluster document records it. Documents of the first versions do not.
    pub version: Option<BundleVersion>,
    /// Its directory, which may be missing.
    pub path: PathBuf,
}

impl Site {
    /// The site of this host.
    pub fn here() -> Self {
        Self {
            config: CONFIG.into(),
            bundles: BundleStore::default(),
        }
    }

    /// The path of the cluster document.
    pub fn document(&self) -> PathBuf {
        self.config.join("cluster.yaml")
    }

    /// The directory of the keys that the site trusts.
    pub fn trusted(&self) -> PathBuf {
        self.config.join("trust")
    }

    /// The bundle in use; `None` on a host without a cluster.
    ///
    /// # Errors
    /// The cluster document cannot be read, or the version that it records is invalid.
    pub fn in_use(&self) -> anyhow::Result<Option<InUse>> {
        let document = self.document();
        let text = match std::fs::read_to_string(&document) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| {
                format!(
                    "cannot read {}, which names the bundle in use; run ctl as root",
                    document.display()
                )
            })?,
        };
        if let Some(version) = recorded(&text) {
            let version: BundleVersion = version
                .parse()
                .with_context(|| format!("resolved.bundle of {}", document.display()))?;
            let path = self.bundles.path(&version);
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

    /// The hosts whose documents record a bundle of their own, by its version. A document that
    /// cannot be used is reported where it is loaded.
    ///
    /// # Errors
    /// A node document cannot be read.
    pub fn used_by_hosts(&self) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let directory = self.config.join("nodes");
        let entries = match std::fs::read_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
            read => read.with_context(|| format!("cannot read {}", directory.display()))?,
        };
        for entry in entries {
            let path = entry
                .with_context(|| format!("cannot read {}", directory.display()))?
                .path();
            let name = path.file_stem().and_then(|name| name.to_str());
            let is_document = path.extension().is_some_and(|ending| ending == "yaml");
            let Some(name) = name.filter(|_| is_document) else {
                continue;
            };
            let text = std::fs::read_to_string(&path).with_context(|| {
                format!(
                    "cannot read {}, which names the bundle of {name}; run ctl as root",
                    path.display()
                )
            })?;
            if let Some(version) = recorded(&text) {
                found.entry(version).or_default().push(name.to_owned());
            }
        }
        found.values_mut().for_each(|names| names.sort());
        Ok(found)
    }

    /// The path of a bundle: the given one, or else the directory of the bundle that contains the
    /// running program (`BUNDLE/bin/ctl`), or else the bundle in use.
    ///
    /// # Errors
    /// None of these exists, or the cluster document cannot be read.
    pub fn bundle_directory(&self, given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
        if let Some(directory) = given {
            return directory
                .canonicalize()
                .with_context(|| format!("there is no bundle at {}", directory.display()));
        }
        let program = std::env::current_exe()
            .and_then(|path| path.canonicalize())
            .context("cannot find the path of this program")?;
        match program.parent().and_then(Path::parent) {
            Some(directory) if directory.join(manifest::FILE).exists() => Ok(directory.to_owned()),
            _ => match self.in_use()? {
                Some(in_use) => Ok(in_use.path),
                None => {
                    bail!(
                        "{} is not part of a bundle, and none is installed here: name one",
                        program.display()
                    )
                }
            },
        }
    }

    /// The installed bundles, as templates see them.
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

    /// The message about a bundle that is older than the one in use. A signature does not prove
    /// that a bundle is the newest one, so a downgrade needs the operator's consent.
    ///
    /// # Errors
    /// As [`Self::in_use`].
    pub fn downgrade(
        &self,
        version: &BundleVersion,
        built: jiff::Timestamp,
    ) -> anyhow::Result<Option<String>> {
        let Some(in_use) = self.in_use()? else {
            return Ok(None);
        };
        if in_use.version.as_ref() == Some(version) {
            return Ok(None);
        }
        let name = in_use
            .version
            .map(String::from)
            .unwrap_or_else(|| in_use.path.display().to_string());
        let there = match manifest::load(&in_use.path) {
            Ok(manifest) => manifest.built.parse::<jiff::Timestamp>().ok(),
            Err(_) => None,
        };
        Ok(match there {
            Some(there) if built >= there => None,
            Some(there) => Some(format!(
                "the bundle {version} was built at {built}, before the one in use ({name}, {there}); --allow-downgrade \
                 accepts it"
            )),
            None => Some(format!(
                "the bundle in use ({name}) is no longer at {}, so ctl cannot tell whether {version} (built at {built}) is \
                 older; --allow-downgrade accepts it",
                in_use.path.display()
            )),
        })
    }
}

/// The version of the bundle that a cluster document or a node document records.
pub fn recorded(text: &str) -> Option<String> {
    let root = yaml::parse("document", text).ok()?;
    Some(root.get("resolved")?.get("bundle")?.raw.clone())
}

/// The bundle that the master's configuration names, for clusters of the first versions.
fn configured(config: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(config.join("master.yaml")).ok()?;
    let root = yaml::parse("master.yaml", &text).ok()?;
    Some(PathBuf::from(root.get("bundle")?.raw.clone()))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
