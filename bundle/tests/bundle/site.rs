//! A small site: a recipe with everything that a bundle needs, each as small as it can be.

use std::{
    fs,
    path::{Path, PathBuf},
};

use halite_bundle::{Error, Manifest, Options, Render, Resolved, complete::Needs};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

pub struct Site {
    pub dir: tempfile::TempDir,
    pub recipe: Value,
}

pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

const IMAGES: &[(&str, &str)] = &[
    ("coredns", "registry.k8s.io/coredns/coredns:v1.14.2"),
    ("etcd", "registry.k8s.io/etcd:3.6.8-0"),
    ("flannel", "ghcr.io/flannel-io/flannel:v0.28.4"),
    ("flannel-cni-plugin", "ghcr.io/flannel-io/flannel-cni-plugin:v1.9.1-flannel1"),
    ("kube-apiserver", "registry.k8s.io/kube-apiserver:v1.36.3"),
    ("kube-controller-manager", "registry.k8s.io/kube-controller-manager:v1.36.3"),
    ("kube-proxy", "registry.k8s.io/kube-proxy:v1.36.3"),
    ("kube-scheduler", "registry.k8s.io/kube-scheduler:v1.36.3"),
    ("pause", "registry.k8s.io/pause:3.10.2"),
];

impl Site {
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
            put(&at.join("bin").join(name), format!("#!/bin/sh\necho {name}\n").as_bytes());
            format!("bin/{name}")
        };
        let package = |name: &str, programs: &[&str]| {
            let programs: serde_json::Map<String, Value> =
                programs.iter().map(|name| ((*name).to_owned(), json!(program(name)))).collect();
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

    /// Says which packages a bare host has.
    pub fn base(&self, packages: &[&str]) {
        let status: String = packages
            .iter()
            .map(|name| {
                format!(
                    "Package: {name}\nStatus: install ok installed\nVersion: 9\nArchitecture: amd64\n\
                     Maintainer: nobody <nobody@example.org>\nDescription: {name}\n\n"
                )
            })
            .collect();
        put(&self.dir.path().join("status"), status.as_bytes());
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn build(&self, out: &str) -> Result<Manifest, Error> {
        self.build_with(out, &Options::default())
    }

    pub fn build_with(&self, out: &str, options: &Options) -> Result<Manifest, Error> {
        self.build_for(out, options, &|_, _| Ok(Needs::default()))
    }

    pub fn build_for(&self, out: &str, options: &Options, render: &Render<'_>) -> Result<Manifest, Error> {
        halite_bundle::build(&self.written(), &self.path(out), options, render, &mut |_| ())
    }

    pub fn build_image(&self, out: &str) -> Result<Manifest, Error> {
        let (out, options) = (self.path(out), Options::default());
        let render: &Render<'_> = &|_, _| Ok(Needs::default());
        halite_bundle::build_image(&self.written(), &out, &[], &options, render, &mut |_| ())
    }

    pub fn lock(&self) -> Result<Resolved, Error> {
        halite_bundle::lock(&self.written(), &Options::default(), &mut |_| ())
    }

    pub fn update(&self, write: bool) -> Result<Resolved, Error> {
        halite_bundle::update(&self.written(), &Options::default(), write, &mut |_| ())
    }

    /// Builds with whatever is there now.
    pub fn renew(&self, out: &str) -> Manifest {
        self.update(true).unwrap();
        self.build(out).unwrap()
    }

    /// The recipe as a file.
    fn written(&self) -> PathBuf {
        let (path, text) = (self.path("recipe.yaml"), serde_json::to_string_pretty(&self.recipe).unwrap());
        // A build that runs holds the file.
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            put(&path, text.as_bytes());
        }
        path
    }
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
    let config = blob(&serde_json::to_vec(&config).unwrap(), "application/vnd.oci.image.config.v1+json");
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
    let mut manifest =
        blob(&serde_json::to_vec(&manifest).unwrap(), "application/vnd.oci.image.manifest.v1+json");
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": reference});
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    put(&dir.join("index.json"), &serde_json::to_vec(&index).unwrap());
    put(&dir.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#);
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

/// Writes a file, whatever was there.
pub fn put(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let _ = fs::remove_file(path);
    fs::write(path, content).unwrap();
}

/// Every file below a directory, as sorted relative paths.
pub fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}
