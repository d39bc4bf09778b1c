//! The application's image on the lab's mirror: the image of the lab's test pods, under the name in
//! the tutorial, with the answer of the application.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use halite_lab::command::run;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// Part of the answer that the page shows.
pub(super) const ANSWER: &str = "<title>Welcome to nginx!</title>";

/// The key of an image's name in an OCI layout.
const NAME: &str = "org.opencontainers.image.ref.name";

/// `index.json` of an OCI layout.
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
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    annotations: Map<String, Value>,
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
    config: ImageProcess,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ImageProcess {
    env: Vec<String>,
    #[serde(default)]
    cmd: Vec<String>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Writes the image with that name into a new OCI layout.
pub(super) fn write(test_pods: &Path, reference: &str, layout: &Path) -> Result<()> {
    let paths = [test_pods.as_os_str(), layout.as_os_str()];
    run("cp", &["-rT".as_ref(), paths[0], paths[1]])?;
    let file = layout.join("index.json");
    let mut index: LayoutIndex = read(&file)?;
    let descriptor = index.manifests.first_mut().context("there is no image")?;
    let mut manifest: LayoutManifest = read(&blob(layout, &descriptor.digest)?)?;
    let mut image: ImageConfig = read(&blob(layout, &manifest.config.digest)?)?;
    image.config.cmd = ["serve", "--http-port=80"].map(str::to_owned).to_vec();
    image.config.env.push(format!("ANSWER={ANSWER}"));
    store(layout, &image, &mut manifest.config)?;
    store(layout, &manifest, descriptor)?;
    descriptor
        .annotations
        .insert(NAME.to_owned(), reference.into());
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
    let digest = halite_upstream::store::hex(&Sha256::digest(&bytes));
    descriptor.digest = format!("sha256:{digest}");
    descriptor.size = bytes.len();
    let file = blob(layout, &descriptor.digest)?;
    fs::write(&file, bytes).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_image_has_its_own_name_and_settings() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("blobs/sha256")).unwrap();
        let mut descriptors = [BlobDescriptor::default(), BlobDescriptor::default()];
        let [config, manifest] = &mut descriptors;
        let process = json!({"Env": ["PATH=/bin"], "Entrypoint": ["/lab-pod"]});
        store(&from, &json!({"os": "linux", "config": process}), config).unwrap();
        store(&from, &json!({"config": config, "layers": []}), manifest).unwrap();
        let index = json!({"schemaVersion": 2, "manifests": [manifest]});
        fs::write(from.join("index.json"), index.to_string()).unwrap();

        write(&from, "example.org/web:1", &to).unwrap();
        let index: LayoutIndex = read(&to.join("index.json")).unwrap();
        let descriptor = &index.manifests[0];
        assert_eq!(
            Value::Object(descriptor.annotations.clone()),
            json!({ NAME: "example.org/web:1" })
        );
        let manifest: LayoutManifest = read(&blob(&to, &descriptor.digest).unwrap()).unwrap();
        let image: Value = read(&blob(&to, &manifest.config.digest).unwrap()).unwrap();
        let process = json!({"Env": ["PATH=/bin", format!("ANSWER={ANSWER}")],
            "Cmd": ["serve", "--http-port=80"], "Entrypoint": ["/lab-pod"]});
        assert_eq!(image, json!({"os": "linux", "config": process}));
    }
}
