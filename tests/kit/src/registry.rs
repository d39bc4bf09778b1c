//! Content of a registry.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::files::hex;

/// The media type of an OCI index.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The media type of an OCI manifest.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of Docker's manifests.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// Manifests and blobs.
#[derive(Default, Clone)]
pub struct Content {
    /// Manifests by `NAME/TAG` and `NAME/sha256:…`, with their kind.
    pub manifests: BTreeMap<String, (String, Vec<u8>)>,
    /// Blobs by `sha256:…`.
    pub blobs: BTreeMap<String, Vec<u8>>,
}

impl Content {
    /// Adds a blob and returns a descriptor of it.
    pub fn blob(&mut self, kind: &str, bytes: &[u8]) -> Value {
        let digest = format!("sha256:{}", hex(bytes));
        self.blobs.insert(digest.clone(), bytes.to_vec());
        json!({"mediaType": kind, "digest": digest, "size": bytes.len()})
    }

    /// Adds a manifest under its digest and returns a descriptor of it.
    pub fn manifest(&mut self, name: &str, kind: &str, manifest: &Value) -> Value {
        let bytes = serde_json::to_vec_pretty(manifest).unwrap();
        let digest = format!("sha256:{}", hex(&bytes));
        let size = bytes.len();
        self.manifests
            .insert(format!("{name}/{digest}"), (kind.to_owned(), bytes));
        json!({"mediaType": kind, "digest": digest, "size": size})
    }

    /// Gives an existing manifest a tag.
    pub fn tag(&mut self, name: &str, tag: &str, descriptor: &Value) {
        let manifest =
            self.manifests[&format!("{name}/{}", descriptor["digest"].as_str().unwrap())].clone();
        self.manifests.insert(format!("{name}/{tag}"), manifest);
    }

    /// Adds an image with these layers (kind, bytes) for a platform (`linux/amd64`) and returns its
    /// descriptor.
    pub fn image(
        &mut self,
        name: &str,
        docker: bool,
        platform: &str,
        layers: &[(&str, &[u8])],
    ) -> Value {
        let (os, architecture) = platform.split_once('/').unwrap();
        let config = json!({"os": os, "architecture": architecture, "config": {}}).to_string();
        let config = self.blob(
            "application/vnd.oci.image.config.v1+json",
            config.as_bytes(),
        );
        let layers: Vec<_> = layers
            .iter()
            .map(|(kind, bytes)| self.blob(kind, bytes))
            .collect();
        let kind = if docker {
            DOCKER_MANIFEST
        } else {
            OCI_MANIFEST
        };
        let manifest =
            json!({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": layers});
        let mut descriptor = self.manifest(name, kind, &manifest);
        descriptor["platform"] = json!({"os": os, "architecture": architecture});
        descriptor
    }

    /// Adds an index of manifests and returns a descriptor of it.
    pub fn index(&mut self, name: &str, kind: &str, manifests: &[Value]) -> Value {
        self.manifest(
            name,
            kind,
            &json!({"schemaVersion": 2, "mediaType": kind, "manifests": manifests}),
        )
    }
}
