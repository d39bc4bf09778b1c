//! Copies of OCI layouts with one image, whose process has other settings and whose layers are the
//! same.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use halite_lab::command::run;
use halite_upstream::store::hex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// `index.json` of a layout.
#[derive(Serialize, Deserialize)]
struct LayoutIndex {
    manifests: Vec<BlobDescriptor>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Default, Serialize, Deserialize)]
struct BlobDescriptor {
    digest: String,
    size: usize,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct LayoutManifest {
    config: BlobDescriptor,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct ImageConfig {
    #[serde(default)]
    config: ImageSettings,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Settings of an image.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ImageSettings {
    /// Variables, as `NAME=VALUE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) env: Vec<String>,
    /// Arguments if none are given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) cmd: Vec<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) labels: Map<String, Value>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Copies a layout, and changes the settings of its image.
pub(crate) fn copy(from: &Path, to: &Path, change: impl FnOnce(&mut ImageSettings)) -> Result<()> {
    let parent = to.parent().context("no directory")?;
    fs::create_dir_all(parent)?;
    run("cp", &["-rT".as_ref(), from.as_os_str(), to.as_os_str()])?;
    let file = to.join("index.json");
    let mut index: LayoutIndex = read(&file)?;
    let descriptor = index.manifests.first_mut().context("there is no image")?;
    let mut manifest: LayoutManifest = read(&blob(to, &descriptor.digest)?)?;
    let mut image: ImageConfig = read(&blob(to, &manifest.config.digest)?)?;
    change(&mut image.config);
    store(to, &image, &mut manifest.config)?;
    store(to, &manifest, descriptor)?;
    let text = serde_json::to_vec(&index)?;
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn read<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let text = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("cannot parse {}", file.display()))
}

/// The file with that digest.
fn blob(layout: &Path, digest: &str) -> Result<PathBuf> {
    let digest = digest.strip_prefix("sha256:");
    let digest = digest.context("a digest is not a SHA-256")?;
    Ok(layout.join("blobs/sha256").join(digest))
}

/// Stores a document, and updates its descriptor.
fn store(layout: &Path, document: &impl Serialize, descriptor: &mut BlobDescriptor) -> Result<()> {
    let bytes = serde_json::to_vec(document)?;
    descriptor.digest = format!("sha256:{}", hex(&Sha256::digest(&bytes)));
    descriptor.size = bytes.len();
    let file = blob(layout, &descriptor.digest)?;
    fs::write(&file, bytes).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_changed_settings_differ() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("new/to"));
        fs::create_dir_all(from.join("blobs/sha256")).unwrap();
        let mut descriptors = [BlobDescriptor::default(), BlobDescriptor::default()];
        let [config, manifest] = &mut descriptors;
        let settings = json!({"Env": ["PATH=/bin"], "Entrypoint": ["/lab-pod"]});
        store(&from, &json!({"os": "linux", "config": settings}), config).unwrap();
        store(&from, &json!({"config": config, "layers": []}), manifest).unwrap();
        let index = json!({"schemaVersion": 2, "manifests": [manifest]});
        fs::write(from.join("index.json"), index.to_string()).unwrap();

        copy(&from, &to, |settings| {
            settings.cmd = vec!["serve".to_owned()];
            settings.env.push("ANSWER=yes".to_owned());
        })
        .unwrap();
        let index: LayoutIndex = read(&to.join("index.json")).unwrap();
        let manifest: LayoutManifest =
            read(&blob(&to, &index.manifests[0].digest).unwrap()).unwrap();
        let image: Value = read(&blob(&to, &manifest.config.digest).unwrap()).unwrap();
        let settings = json!({"Env": ["PATH=/bin", "ANSWER=yes"], "Cmd": ["serve"], "Entrypoint": ["/lab-pod"]});
        assert_eq!(image, json!({"os": "linux", "config": settings}));
    }
}
