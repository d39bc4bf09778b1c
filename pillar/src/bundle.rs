//! What the declaration needs to know of a bundle: the part of its `manifest.json` that views and validation use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::options::Allowed;

/// Where a bundle stands on the bootstrap host.
pub const DEFAULT_PATH: &str = "/media/halite";

/// The facts of a bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleFacts {
    /// Directory on the bootstrap host; not in the manifest.
    #[serde(default = "default_path")]
    pub path: String,
    /// The bundle's own version.
    pub version: String,
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
    /// Versions by chart.
    #[serde(default)]
    pub charts: BTreeMap<String, String>,
    /// The choices that it was made for, by field of the cluster document; those that are not named may be any.
    #[serde(default)]
    pub options: Allowed,
    /// SHA-256 of its programs (`bin/`), by name; in the manifest they stand among all files.
    #[serde(default)]
    pub programs: BTreeMap<String, String>,
}

fn default_path() -> String {
    DEFAULT_PATH.to_owned()
}

impl BundleFacts {
    /// Reads the facts out of the text of a `manifest.json` of a bundle that stands at `path`.
    ///
    /// # Errors
    /// The text is not a manifest.
    pub fn from_manifest(text: &str, path: &str) -> Result<Self, serde_json::Error> {
        let manifest: serde_json::Value = serde_json::from_str(text)?;
        let mut facts = Self::deserialize(&manifest)?;
        facts.path = path.to_owned();
        if let Some(files) = manifest.get("files").and_then(serde_json::Value::as_object) {
            let program = |(path, entry): (&String, &serde_json::Value)| {
                Some((path.strip_prefix("bin/")?.to_owned(), entry.get("sha256")?.as_str()?.to_owned()))
            };
            facts.programs = files.iter().filter_map(program).collect();
        }
        Ok(facts)
    }

    /// Whether the bundle's Kubernetes is the wanted one: `1.36` and `v1.36.3` both match `v1.36.3`.
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
        let facts = BundleFacts { kubernetes: "v1.36.3".into(), ..BundleFacts::default() };
        for wanted in ["1.36", "v1.36", "1.36.3", "v1.36.3", "1"] {
            assert!(facts.satisfies(wanted), "{wanted}");
        }
        for wanted in ["1.3", "1.35", "1.36.4", "1.36.30", ""] {
            assert!(!facts.satisfies(wanted), "{wanted}");
        }
    }

    #[test]
    fn foreign_manifest_fields_are_left_alone() {
        let text = r#"{"format":1,"name":"halite","version":"0.1.0","built":"x","kubernetes":"v1.36.3",
                "files":{"bin/ctl":{"sha256":"ab","size":1},"apt/halite.gpg":{"sha256":"cd","size":1}}}"#;
        let facts = BundleFacts::from_manifest(text, "/mnt/b").unwrap();
        assert_eq!((facts.path.as_str(), facts.version.as_str()), ("/mnt/b", "0.1.0"));
        assert_eq!(facts.programs, [("ctl".to_owned(), "ab".to_owned())].into());
    }
}
