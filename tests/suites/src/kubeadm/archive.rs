//! Images for a host without a registry.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use halite_lab::command;
use halite_upstream::UpstreamImage;
use serde_json::json;

/// Writes `images.tar` into a directory: all images, each under the two names that containerd looks
/// it up by: with its tag, as kubeadm asks for it, and with its digest, as flannel's objects and
/// containerd's configuration do.
///
/// # Errors
/// A layout cannot be read, or the file cannot be written.
pub fn archive(images: &[UpstreamImage], dir: &Path) -> Result<()> {
    let mut manifests = Vec::new();
    let mut args = vec![
        "-cf".to_owned(),
        dir.join("images.tar").to_string_lossy().into_owned(),
    ];
    for image in images {
        let index = fs::read(image.layout.join("index.json"))?;
        let index: serde_json::Value = serde_json::from_slice(&index)?;
        let manifest = &index["manifests"][0];
        let digest = manifest["digest"].as_str().context("no digest")?;
        let (repository, _) = image.reference.rsplit_once(':').context("no tag")?;
        for name in [image.reference.clone(), format!("{repository}@{digest}")] {
            let mut named = manifest.clone();
            named["annotations"] = json!({"io.containerd.image.name": name});
            manifests.push(named);
        }
        args.extend([
            "-C".to_owned(),
            image.layout.to_string_lossy().into_owned(),
            "blobs".to_owned(),
        ]);
    }
    let index = json!({"schemaVersion": 2, "manifests": manifests});
    fs::write(dir.join("index.json"), index.to_string())?;
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    args.extend(["-C".to_owned(), dir.to_string_lossy().into_owned()]);
    args.extend(["oci-layout".to_owned(), "index.json".to_owned()]);
    command::run("tar", &args).map(drop)
}
