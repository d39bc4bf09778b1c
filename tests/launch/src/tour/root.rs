//! The root of the tour: Halite's programs, a bundle of one tree, and the documents of an operator.

use std::path::Path;
use std::process::Command;
use std::{fs, io};

use crate::errors::Context as _;
use crate::programs::run;

/// The programs in the root; there are no others, no shell and no library.
pub const PROGRAMS: [&str; 3] = ["ctl", "halite-master", "halite-minion"];

/// Directory of the programs, as on a host.
pub(super) const BIN: &str = "usr/local/bin";

/// Devices that every kernel has: a static program reads the random ones itself.
pub(super) const DEVICES: [&str; 3] = ["null", "random", "urandom"];

/// The bundle's tree: only the operator's own states are declared.
const TOP: &str = "base:
  '* and not master':
    - match: compound
    - custom
";

/// The components for which a bundle has an image; none is used here.
const IMAGES: [&str; 9] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "etcd",
    "coredns",
    "pause",
    "flannel",
    "flannel-cni-plugin",
];

/// Files of the root by path.
const FILES: [(&str, &str); 9] = [
    ("media/halite/states/top.sls", TOP),
    (
        "etc/halite/master.yaml",
        "cluster: try\nadvertise: [127.0.0.1]\nbundle: /media/halite\n",
    ),
    (
        "etc/halite/minion.yaml",
        "id: worker-1\nmaster: 127.0.0.1:4550\n",
    ),
    (
        "etc/halite/cluster.yaml",
        "apiVersion: halite/v1
kind: Cluster
metadata: {name: try}
networks:
  controlPlane: {cidrs: [10.10.0.0/24]}
kubernetes: {version: \"1.36\"}
custom:
  motd: Ask the platform team before you change anything here.
",
    ),
    (
        "etc/halite/nodes/bootstrap-1.yaml",
        "apiVersion: halite/v1
kind: Node
metadata: {name: bootstrap-1}
address: 10.10.0.11
roles: [bootstrap, registry, etcd, control-plane]
",
    ),
    (
        "etc/halite/nodes/worker-1.yaml",
        "apiVersion: halite/v1
kind: Node
metadata: {name: worker-1}
address: 10.10.0.12
roles: [worker]
",
    ),
    ("etc/motd", "Welcome to worker-1.\n"),
    (
        "etc/halite/custom/init.sls",
        "/etc/motd:
  file.managed:
    - contents: |
        {{ pillar.halite.node.name }} belongs to {{ pillar.halite.cluster.name }}.
        {{ pillar.custom.motd }}
/srv/app/settings.conf:
  file.managed:
    - source: salt://custom/settings.conf
    - mode: '0640'
    - makedirs: True
/srv/app/current:
  file.symlink:
    - target: /srv/app/settings.conf
    - require:
        - file: /srv/app/settings.conf
",
    ),
    (
        "etc/halite/custom/settings.conf",
        "workers = 4\nlog = \"info\"\n",
    ),
];

/// Makes the root with the programs of a directory.
pub(super) fn make(root: &Path, programs: &Path) -> io::Result<()> {
    for directory in [BIN, "dev", "proc", "tmp"] {
        make_directory(&root.join(directory))?;
    }
    for name in PROGRAMS {
        let (from, to) = (programs.join(name), root.join(BIN).join(name));
        // Cargo replaces a program instead of writing into it, so a link keeps its content.
        fs::hard_link(&from, &to)
            .or_else(|_| fs::copy(&from, &to).map(drop))
            .context(|| format!("cannot copy {}", from.display()))?;
    }
    for device in DEVICES {
        write(&root.join("dev").join(device), "")?;
    }
    for (path, text) in FILES {
        write(&root.join(path), text)?;
    }
    let bundle = root.join("media/halite");
    let digest = digests(&bundle, "states/top.sls")?;
    let digest = digest.split(' ').next().unwrap_or_default();
    write(&bundle.join("manifest.json"), &manifest(digest))?;
    let digests = digests(&bundle, "manifest.json")?;
    write(&bundle.join("manifest.json.sha256"), &digests)
}

/// The manifest of the bundle with the digest of its only file.
fn manifest(digest: &str) -> String {
    let images = IMAGES.map(|name| format!(r#""{name}": "registry.k8s.io/{name}:1""#));
    format!(
        r#"{{"format": 1, "name": "halite", "version": "0.1.0", "built": "2026-01-01T00:00:00Z", "kubernetes": "v1.36.3",
"components": {{}}, "packages": {{}}, "images": {{{}}},
"files": {{"states/top.sls": {{"sha256": "{digest}", "size": {}}}}}}}
"#,
        images.join(", "),
        TOP.len()
    )
}

/// The line `DIGEST  FILE` of a file.
fn digests(directory: &Path, file: &str) -> io::Result<String> {
    run(Command::new("sha256sum").arg(file).current_dir(directory))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        make_directory(directory)?;
    }
    fs::write(path, text).context(|| format!("cannot write {}", path.display()))
}

fn make_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path).context(|| format!("cannot make {}", path.display()))
}
