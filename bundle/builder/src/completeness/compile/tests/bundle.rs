//! A bundle with the shipped state tree, for the tests of the tree's requirements.

use super::*;
use crate::rpm::{Base, stubs};

/// A bundle with the shipped state tree; everything else in it is as small as possible.
pub(super) struct Bundle {
    pub(super) dir: tempfile::TempDir,
    pub(super) manifest: Value,
}

const IMAGES: &[(&str, &str)] = &[
    ("coredns", "registry.k8s.io/coredns/coredns:v1.14.2"),
    ("etcd", "registry.k8s.io/etcd:3.6.8-0"),
    ("flannel", "ghcr.io/flannel-io/flannel:v0.28.4"),
    (
        "flannel-cni-plugin",
        "ghcr.io/flannel-io/flannel-cni-plugin:v1.9.1-flannel1",
    ),
    ("demo", "registry.example/demo:1"),
    ("kube-apiserver", "registry.k8s.io/kube-apiserver:v1.36.3"),
    (
        "kube-controller-manager",
        "registry.k8s.io/kube-controller-manager:v1.36.3",
    ),
    ("kube-proxy", "registry.k8s.io/kube-proxy:v1.36.3"),
    ("kube-scheduler", "registry.k8s.io/kube-scheduler:v1.36.3"),
    ("local-path-helper", "docker.io/library/busybox:1.37.0"),
    (
        "local-path-provisioner",
        "docker.io/rancher/local-path-provisioner:v0.0.30",
    ),
    (
        "metrics-server",
        "registry.k8s.io/metrics-server/metrics-server:v0.9.0",
    ),
    ("pause", "registry.k8s.io/pause:3.10.2"),
];

/// A chart whose image nothing else names.
const CHART: &str = "apiVersion: v1
kind: Pod
metadata: {name: demo, namespace: default}
spec: {containers: [{name: demo, image: 'registry.example/demo:1'}]}
";

/// Packages of the repository, each with its dependencies.
const PACKAGES: &[(&str, &str)] = &[
    ("chrony", "libc6"),
    ("conntrack", "libc6"),
    ("containerd", "runc"),
    ("curl", "libcurl4 (>= 1)"),
    ("distribution-registry", ""),
    ("ethtool", "libc6"),
    ("firewalld", "python3-nftables"),
    ("haproxy", "libc6"),
    ("iptables", "libc6"),
    ("keepalived", "libc6"),
    ("kubeadm", "kubelet"),
    ("kubectl", ""),
    ("kubelet", "kubernetes-cni"),
    ("kubernetes-cni", ""),
    ("libcurl4", "libc6"),
    ("netbase", ""),
    ("nftables", "libc6"),
    ("nginx-light", "libc6"),
    ("python3-nftables", "libc6"),
    ("runc", "libc6"),
    ("socat", "libc6"),
];

/// The names of the tree's packages on hosts of Red Hat's family, and of one package that only
/// another one needs.
pub(super) const RPMS: &str = "chrony conntrack-tools containerd curl distribution-registry ethtool firewalld haproxy iptables-nft keepalived \
                    kubeadm kubectl kubelet kubernetes-cni libmnl nftables nginx runc socat";

impl Bundle {
    pub(super) fn new() -> Self {
        let tree = halite_testkit::state_tree();
        let manifest = json!({"format": 1, "name": "halite", "version": "1", "built": "2026-01-01T00:00:00Z",
            "kubernetes": "v1.36.3", "charts": {"demo": "1.0.0"}, "components": {}, "images": IMAGES.iter().copied().collect::<BTreeMap<_, _>>(),
            "packages": PACKAGES.iter().map(|(name, _)| (*name, "1-1")).collect::<BTreeMap<_, _>>(), "files": {}});
        let mut site = Self {
            dir: tempfile::tempdir().unwrap(),
            manifest,
        };
        let source = DirTree::new().root(tree);
        for path in source.list() {
            site.put(&format!("states/{path}"), &source.read(&path).unwrap());
        }
        for path in [
            "bin/ctl",
            "bin/halite-master",
            "bin/halite-minion",
            "install",
            "apt/halite.gpg",
            "nginx/manifests.map",
            "nginx/lists.map",
            "nginx/links.map",
            "nginx/registry.conf",
            "images/oci-layout",
            "apt/dists/stable/InRelease",
            "apt/dists/stable/Release",
            "apt/dists/stable/Release.gpg",
            "apt/dists/stable/main/binary-amd64/Packages.gz",
        ] {
            site.put(path, path.as_bytes());
        }
        site.put("charts/demo.yaml", CHART.as_bytes());
        site.images();
        site.packages();
        site.put(
            "base/dpkg-status",
            b"Package: libc6\nStatus: install ok installed\nVersion: 2\n",
        );
        site
    }

    pub(super) fn put(&mut self, path: &str, content: &[u8]) -> String {
        let file = self.dir.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
        let hash = sha256(content);
        self.manifest["files"][path] = json!({"sha256": hash, "size": content.len()});
        hash
    }

    fn images(&mut self) {
        let mut manifests = Vec::new();
        for (component, reference) in IMAGES {
            let mut blob = |content: &[u8], kind: &str| {
                let hash = sha256(content);
                self.put(&format!("images/blobs/sha256/{hash}"), content);
                json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": format!("sha256:{hash}"),
                    "size": content.len()})
            };
            let layer = blob(component.as_bytes(), "layer.v1.tar");
            let config = blob(
                format!("{{\"of\": \"{component}\"}}").as_bytes(),
                "config.v1+json",
            );
            let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
            let mut manifest = blob(manifest.to_string().as_bytes(), "manifest.v1+json");
            manifest["annotations"] = json!({"org.opencontainers.image.ref.name": reference});
            manifests.push(manifest);
        }
        self.put(
            "images/index.json",
            json!({"schemaVersion": 2, "manifests": manifests})
                .to_string()
                .as_bytes(),
        );
    }

    fn packages(&mut self) {
        let mut stanzas = Vec::new();
        for (name, depends) in PACKAGES {
            let hash = self.put(&format!("apt/pool/{name}.deb"), name.as_bytes());
            stanzas.push(format!(
                "Package: {name}\nVersion: 1-1\nDepends: {depends}\nFilename: pool/{name}.deb\nSHA256: {hash}\n"
            ));
        }
        self.put(
            "apt/dists/stable/main/binary-amd64/Packages",
            stanzas.join("\n").as_bytes(),
        );
    }

    /// Adds a repository of RPM packages.
    pub(super) fn add_rpms(&mut self) {
        let root = self.dir.path().join("rpm");
        let packages: Vec<&str> = RPMS.split_whitespace().collect();
        let mut list: String = packages
            .iter()
            .map(|name| format!("P {name} 0:1-1 x86_64\n"))
            .collect();
        list = list.replace(
            "P conntrack-tools 0:1-1 x86_64\n",
            "P conntrack-tools 0:1-1 x86_64\nr libmnl\nr libc >= 2\n",
        );
        stubs(
            &Base::parse(&list).unwrap().packages,
            &root.join("packages"),
        )
        .unwrap();
        let mut index = std::process::Command::new("createrepo_c");
        let index = index
            .args(["--quiet", "--no-database", "--simple-md-filenames"])
            .arg(&root)
            .status();
        assert!(
            index
                .expect("this test needs createrepo_c: install createrepo-c")
                .success()
        );
        for dir in ["repodata", "packages"] {
            for entry in fs::read_dir(root.join(dir)).unwrap() {
                let path = entry.unwrap().path();
                let name = format!("rpm/{dir}/{}", path.file_name().unwrap().to_str().unwrap());
                self.put(&name, &fs::read(path).unwrap());
            }
        }
        self.put("rpm/repodata/repomd.xml.asc", b"signature");
        self.put("rpm/halite.asc", b"key");
        self.put("base/rpm-packages", b"P glibc 0:2-1 x86_64\np libc = 2-1\n");
        self.manifest["rpms"] = json!(
            packages
                .iter()
                .map(|name| (*name, "1-1"))
                .collect::<BTreeMap<_, _>>()
        );
    }

    pub(super) fn manifest(&self) -> Manifest {
        serde_json::from_value(self.manifest.clone()).unwrap()
    }

    pub(super) fn stock(&self) -> Inventory {
        Inventory::read(self.dir.path(), &self.manifest()).unwrap()
    }
}
