//! Facts of a bundle: the part of its `manifest.json` that views and validation use.

use std::collections::BTreeMap;

use halite_names::BundleVersion;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::options::Allowed;

/// The default directory of a bundle on the bootstrap host.
pub const DEFAULT_PATH: &str = "/media/halite";

/// The components whose images every cluster runs.
pub(crate) const CLUSTER_IMAGES: [&str; 7] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "etcd",
    "coredns",
    "pause",
];

/// The components of the pod network that Halite installs, unless another one is declared.
pub(crate) const FLANNEL_IMAGES: [&str; 2] = ["flannel", "flannel-cni-plugin"];

/// The components whose images every complete bundle has, whatever is declared.
pub fn components() -> impl Iterator<Item = &'static str> {
    CLUSTER_IMAGES.into_iter().chain(FLANNEL_IMAGES)
}

/// The facts of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleFacts {
    /// Directory on the bootstrap host; not in the manifest.
    #[serde(default = "default_path")]
    pub path: String,
    /// SHA-256 of `manifest.json`, which contains the digest of every other file; not in the
    /// manifest.
    #[serde(default)]
    pub manifest: String,
    /// The bundle's own version.
    pub version: BundleVersion,
    /// Its Kubernetes, for example `v1.36.3`.
    pub kubernetes: String,
    /// Versions by component.
    #[serde(default)]
    pub components: BTreeMap<String, String>,
    /// Full image references by component.
    #[serde(default)]
    pub images: BTreeMap<String, String>,
    /// Package versions by package.
    #[serde(default)]
    pub packages: BTreeMap<String, String>,
    /// Package versions by package, for hosts of RPM distributions. Empty: the bundle does not
    /// support them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rpms: BTreeMap<String, String>,
    /// Versions by chart.
    #[serde(default)]
    pub charts: BTreeMap<String, String>,
    /// The options that the bundle was made for, by field of the cluster document. A field that is
    /// not listed may have any value.
    #[serde(default)]
    pub options: Allowed,
    /// SHA-256 of its programs (`bin/`), by name; in the manifest they are among all files.
    #[serde(default)]
    pub programs: BTreeMap<String, String>,
    /// Every complete bundle of the site, including this one; not in the manifest. Empty: other
    /// bundles are not known.
    #[serde(default)]
    pub site: Vec<SiteBundle>,
}

/// A bundle of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteBundle {
    /// Its version.
    pub version: BundleVersion,
    /// Its Kubernetes, for example `v1.36.3`.
    pub kubernetes: String,
    /// Its directory on the bootstrap host.
    pub path: String,
    /// SHA-256 of its `manifest.json`, by which other hosts identify it.
    #[serde(default)]
    pub manifest: String,
}

fn sha256(content: &[u8]) -> String {
    format!("{:x}", Sha256::digest(content))
}

fn default_path() -> String {
    DEFAULT_PATH.to_owned()
}

impl BundleFacts {
    /// The facts of a bundle without content.
    #[must_use]
    pub fn new(version: BundleVersion, kubernetes: &str) -> Self {
        Self {
            path: default_path(),
            manifest: String::new(),
            version,
            kubernetes: kubernetes.to_owned(),
            components: BTreeMap::new(),
            images: BTreeMap::new(),
            packages: BTreeMap::new(),
            rpms: BTreeMap::new(),
            charts: BTreeMap::new(),
            options: Allowed::default(),
            programs: BTreeMap::new(),
            site: Vec::new(),
        }
    }

    /// Reads the facts from the text of the `manifest.json` of a bundle in the directory `path`.
    ///
    /// # Errors
    /// The text is not a manifest.
    pub fn from_manifest(text: &str, path: &str) -> Result<Self, serde_json::Error> {
        let mut facts = Self::from_value(&serde_json::from_str(text)?, path)?;
        facts.manifest = sha256(text.as_bytes());
        Ok(facts)
    }

    /// Reads the facts from the content of the manifest of a bundle in the directory `path`. The
    /// digest of its text is left empty: only additional hosts that serve the bundle request the
    /// manifest, and the master compiles for those from the text.
    ///
    /// # Errors
    /// The value is not a manifest.
    pub fn from_value(manifest: &serde_json::Value, path: &str) -> Result<Self, serde_json::Error> {
        let mut facts = Self::deserialize(manifest)?;
        facts.path = path.to_owned();
        if let Some(files) = manifest.get("files").and_then(serde_json::Value::as_object) {
            let program = |(path, entry): (&String, &serde_json::Value)| {
                Some((
                    path.strip_prefix("bin/")?.to_owned(),
                    entry.get("sha256")?.as_str()?.to_owned(),
                ))
            };
            facts.programs = files.iter().filter_map(program).collect();
        }
        Ok(facts)
    }

    /// All bundles of the site, sorted by the text of their versions; this one is always included.
    #[must_use]
    pub fn on_site(&self) -> Vec<SiteBundle> {
        let own = SiteBundle {
            version: self.version.clone(),
            kubernetes: self.kubernetes.clone(),
            path: self.path.clone(),
            manifest: self.manifest.clone(),
        };
        let mut all: Vec<SiteBundle> = self
            .site
            .iter()
            .filter(|bundle| bundle.version != own.version)
            .cloned()
            .collect();
        all.push(own);
        all.sort_by(|a, b| a.version.cmp(&b.version));
        all
    }

    /// Returns whether the bundle has the required Kubernetes: `1.36` and `v1.36.3` both match
    /// `v1.36.3`.
    #[must_use]
    pub fn satisfies(&self, wanted: &str) -> bool {
        let have: Vec<&str> = self.kubernetes.trim_start_matches('v').split('.').collect();
        let want: Vec<&str> = wanted.trim_start_matches('v').split('.').collect();
        !wanted.is_empty() && have.starts_with(&want)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_match_by_their_parts() {
        let facts = BundleFacts::new("0.1.0".parse().unwrap(), "v1.36.3");
        for wanted in ["1.36", "v1.36", "1.36.3", "v1.36.3", "1"] {
            assert!(facts.satisfies(wanted), "{wanted}");
        }
        for wanted in ["1.3", "1.35", "1.36.4", "1.36.30", ""] {
            assert!(!facts.satisfies(wanted), "{wanted}");
        }
    }

    #[test]
    fn a_bundle_is_among_those_of_its_site_once() {
        let bundle = |version: &str, kubernetes: &str| SiteBundle {
            version: version.parse().unwrap(),
            kubernetes: kubernetes.into(),
            path: format!("/b/{version}"),
            manifest: String::new(),
        };
        let mut facts = BundleFacts {
            path: "/b/0.2.0".into(),
            ..BundleFacts::new("0.2.0".parse().unwrap(), "v1.36.3")
        };
        assert_eq!(facts.on_site(), [bundle("0.2.0", "v1.36.3")]);
        facts.site = vec![
            bundle("0.3.0", "v1.36.4"),
            bundle("0.2.0", "v1.36.3"),
            bundle("0.1.0", "v1.35.4"),
        ];
        let versions: Vec<BundleVersion> = facts
            .on_site()
            .into_iter()
            .map(|bundle| bundle.version)
            .collect();
        assert_eq!(versions, ["0.1.0", "0.2.0", "0.3.0"]);
    }

    #[test]
    fn foreign_manifest_fields_are_left_alone() {
        let text = r#"{"format":1,"name":"halite","version":"0.1.0","built":"x","kubernetes":"v1.36.3",
                "files":{"bin/ctl":{"sha256":"ab","size":1},"apt/halite.gpg":{"sha256":"cd","size":1}}}"#;
        let facts = BundleFacts::from_manifest(text, "/mnt/b").unwrap();
        assert_eq!(
            (facts.path.as_str(), facts.version.as_str()),
            ("/mnt/b", "0.1.0")
        );
        assert_eq!(facts.manifest, sha256(text.as_bytes()));
        assert_eq!(facts.programs, [("ctl".to_owned(), "ab".to_owned())].into());
    }
}
