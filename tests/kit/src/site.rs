//! A small site: a recipe with everything that a bundle needs, each as small as it can be.

use std::fs;
use std::path::{Path, PathBuf};

use halite_builder::completeness::Requirements;
use halite_builder::{Error, Options, RequirementsOf, Resolved};
use halite_manifest::Manifest;
use halite_names::BundleVersion;
use serde_json::{Value, json};

use crate::files::{content, hex, put};

/// A directory with a recipe and all files that it names.
pub struct Site {
    /// Its directory.
    pub dir: tempfile::TempDir,
    /// The recipe, which every step writes as `recipe.yaml`.
    pub recipe: Value,
}

const IMAGES: &[(&str, &str)] = &[
    ("coredns", "registry.k8s.io/coredns/coredns:v1.14.2"),
    ("etcd", "registry.k8s.io/etcd:3.6.8-0"),
    ("flannel", "ghcr.io/flannel-io/flannel:v0.28.4"),
    (
        "flannel-cni-plugin",
        "ghcr.io/flannel-io/flannel-cni-plugin:v1.9.1-flannel1",
    ),
    ("kube-apiserver", "registry.k8s.io/kube-apiserver:v1.36.3"),
    (
        "kube-controller-manager",
        "registry.k8s.io/kube-controller-manager:v1.36.3",
    ),
    ("kube-proxy", "registry.k8s.io/kube-proxy:v1.36.3"),
    ("kube-scheduler", "registry.k8s.io/kube-scheduler:v1.36.3"),
    ("pause", "registry.k8s.io/pause:3.10.2"),
];

impl Site {
    /// A site for Kubernetes 1.36.3 and Debian, version 0.1.0.
    #[expect(
        clippy::new_without_default,
        reason = "it writes files, and is not a default value"
    )]
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        let images: Vec<Value> = IMAGES
            .iter()
            .map(|(component, reference)| {
                layout(&at.join("images").join(component), reference, component.as_bytes());
                json!({"component": component, "reference": reference, "layout": format!("images/{component}")})
            })
            .collect();
        let program = |name: &str| {
            put(
                &at.join("bin").join(name),
                format!("#!/bin/sh\necho {name}\n").as_bytes(),
            );
            format!("bin/{name}")
        };
        let package = |name: &str, programs: &[&str]| {
            let programs: serde_json::Map<String, Value> = programs
                .iter()
                .map(|name| ((*name).to_owned(), json!(program(name))))
                .collect();
            json!({"package": name, "version": "1.2.3-1", "programs": programs})
        };
        let recipe = json!({
            "format": 1,
            "version": "0.1.0",
            "kubernetes": "v1.36.3",
            "images": images,
            "packages": {
                "base": "status",
                "apt": [],
                "made": [
                    package("kubelet", &["kubelet"]),
                    package("kubeadm", &["kubeadm"]),
                    package("kubectl", &["kubectl"]),
                    package("kubernetes-cni", &["bridge", "host-local", "loopback", "portmap"]),
                    package("containerd", &["containerd", "containerd-shim-runc-v2", "ctr"]),
                ],
            },
            "binaries": {
                "ctl": program("ctl"),
                "halite-master": program("halite-master"),
                "halite-minion": program("halite-minion"),
            },
            "states": "states",
            "signing-key": "signing-key.asc",
            "cache": "cache",
        });
        put(&at.join("states/top.sls"), b"base:\n  '*': [host]\n");
        put(&at.join("states/host/init.sls"), b"{}\n");
        let site = Self { dir, recipe };
        site.base(&["mount", "runc", "util-linux"]);
        site
    }

    /// Declares the packages of a bare host.
    pub fn base(&self, packages: &[&str]) {
        put(&self.path("status"), status(packages).as_bytes());
    }

    /// A path in its directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Builds a bundle in its directory.
    ///
    /// # Errors
    /// Any refusal of the library.
    pub fn build(&self, out: &str) -> Result<Manifest, Error> {
        self.build_with(out, &Options::default())
    }

    /// Builds with options.
    ///
    /// # Errors
    /// Any refusal of the library.
    pub fn build_with(&self, out: &str, options: &Options) -> Result<Manifest, Error> {
        self.build_for(out, options, &|_, _| Ok(Requirements::default()))
    }

    /// Builds for the requirements that the caller computes.
    ///
    /// # Errors
    /// Any refusal of the library.
    pub fn build_for(
        &self,
        out: &str,
        options: &Options,
        requirements: &RequirementsOf<'_>,
    ) -> Result<Manifest, Error> {
        halite_builder::build_with(
            &self.written(),
            &self.path(out),
            options,
            requirements,
            &mut |_| (),
        )
    }

    /// Builds a bundle into an unsigned image.
    ///
    /// # Errors
    /// Any refusal of the library.
    pub fn build_image(&self, out: &str) -> Result<Manifest, Error> {
        let (out, options) = (self.path(out), Options::default());
        let requirements: &RequirementsOf<'_> = &|_, _| Ok(Requirements::default());
        halite_builder::build_image_with(
            &self.written(),
            &out,
            &[],
            &options,
            requirements,
            &mut |_| (),
        )
    }

    /// Sets a key of the recipe.
    pub fn set(&mut self, key: &str, value: Value) {
        self.recipe[key] = value;
    }

    /// Gives each image of the recipe another reference, by its component; `None` leaves it
    /// unchanged.
    pub fn rename_images(&mut self, mut reference: impl FnMut(&str) -> Option<String>) {
        for image in self.recipe["images"].as_array_mut().into_iter().flatten() {
            let component = image["component"].as_str().unwrap_or_default().to_owned();
            if let Some(reference) = reference(&component) {
                image["reference"] = reference.into();
            }
        }
    }

    /// Records what the recipe requests and the lock lacks.
    ///
    /// # Errors
    /// Any refusal of the library.
    pub fn lock(&self) -> Result<Resolved, Error> {
        halite_builder::lock(&self.written(), &Options::default(), &mut |_| ())
    }

    /// Resolves the current versions, and records them if `write` is set.
    ///
    /// # Errors
    /// Any refusal of the library.
    pub fn update(&self, write: bool) -> Result<Resolved, Error> {
        halite_builder::update(&self.written(), &Options::default(), write, &mut |_| ())
    }

    /// Builds with the current versions.
    pub fn renew(&self, out: &str) -> Manifest {
        self.update(true).unwrap();
        self.build(out).unwrap()
    }

    /// Records the current versions as resolved at that moment, which counts as the build time.
    pub fn record(&self, moment: &str) {
        self.update(true).unwrap();
        let lock = self.path("recipe.lock.yaml");
        let text = fs::read_to_string(&lock).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("resolved:"))
            .unwrap();
        fs::write(&lock, text.replace(line, &format!("resolved: {moment}"))).unwrap();
    }

    /// Adds this many bytes to the contents of its bundle, so that an operation takes long enough
    /// to be interrupted in the middle.
    pub fn enlarge(&self, bytes: usize) {
        put(&self.path("states/large"), &content(bytes, 1));
    }

    /// The recipe as a file.
    pub fn written(&self) -> PathBuf {
        let (path, text) = (
            self.path("recipe.yaml"),
            serde_json::to_string_pretty(&self.recipe).unwrap(),
        );
        // A running build has the file open.
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            put(&path, text.as_bytes());
        }
        path
    }
}

/// Content of dpkg's status file on a host that has these packages.
#[must_use]
pub fn status(packages: &[&str]) -> String {
    packages
        .iter()
        .map(|name| {
            format!(
                "Package: {name}\nStatus: install ok installed\nVersion: 9\nArchitecture: amd64\n\
                 Maintainer: Tests <tests@example.org>\nDescription: {name}\n\n"
            )
        })
        .collect()
}

/// Writes a layout with one image whose only layer has that content.
pub fn layout(dir: &Path, reference: &str, content: &[u8]) {
    let blob = |bytes: &[u8], media_type: &str| {
        put(&dir.join("blobs/sha256").join(hex(bytes)), bytes);
        json!({"mediaType": media_type, "digest": format!("sha256:{}", hex(bytes)), "size": bytes.len()})
    };
    let layer = blob(content, "application/vnd.oci.image.layer.v1.tar");
    let config = json!({
        "architecture": "amd64", "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let config = blob(
        &serde_json::to_vec(&config).unwrap(),
        "application/vnd.oci.image.config.v1+json",
    );
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
    let mut manifest = blob(
        &serde_json::to_vec(&manifest).unwrap(),
        "application/vnd.oci.image.manifest.v1+json",
    );
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": reference});
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    put(
        &dir.join("index.json"),
        &serde_json::to_vec(&index).unwrap(),
    );
    put(
        &dir.join("oci-layout"),
        br#"{"imageLayoutVersion":"1.0.0"}"#,
    );
}

/// Writes a layout with one image whose only layer holds those programs and texts.
pub fn layout_of(dir: &Path, reference: &str, files: &[(&str, &[u8])]) {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        archive.append_data(&mut header, path, *content).unwrap();
    }
    layout(dir, reference, &archive.into_inner().unwrap());
}

/// A bundle's version, from a short text.
pub fn version(text: &str) -> BundleVersion {
    text.parse().unwrap()
}
