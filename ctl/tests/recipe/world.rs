//! The internet that a recipe of `ctl bundle init` needs: each artifact is as small as possible.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use halite_builder::Release;
use halite_testkit::distribution::Registry;
use halite_testkit::process::make_program;
use halite_testkit::registry::{Content, OCI_INDEX, OCI_MANIFEST};
use halite_testkit::{Authority, CannedAnswer, Server, Signer, put, run, status};
use serde_json::json;

/// The packages that the recipe requests, without dependencies.
const PACKAGES: &[&str] = &[
    "chrony",
    "conntrack",
    "curl",
    "ethtool",
    "firewalld",
    "haproxy",
    "ipset",
    "iptables",
    "keepalived",
    "kmod",
    "netbase",
    "nftables",
    "nginx-light",
    "runc",
    "socat",
];

/// The addresses in the recipe, and their servers in this test.
const SUITES: &[(&str, &str, &[&str])] = &[
    ("debian", "bookworm", PACKAGES),
    ("debian-security", "bookworm-security", &[]),
];

/// Fewer example clusters: other tests check all of them.
const OPTIONS: &str = "options: {cni.plugin: [flannel], kubeProxy.mode: [nftables], host.manageSwap: [true], \
                       host.manageFirewall: [true], host.manageTime: [true], \
                       containerd.restrictOomScoreAdj: [false]}";

const CNI: &[&str] = &[
    "bridge",
    "firewall",
    "host-local",
    "loopback",
    "portmap",
    "tuning",
];

pub struct World {
    pub registry: Registry,
    pub web: Server,
    /// Declared before its working directory, so that it ends before that is removed.
    signer: Signer,
    pub dir: tempfile::TempDir,
}

impl World {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        let authority = Authority::new(at);
        let registry = Registry::start(at, &authority);
        let release = Release::of("v1.36.3").unwrap();
        for (name, tag) in [
            ("kube-apiserver", "v1.36.3"),
            ("kube-controller-manager", "v1.36.3"),
            ("kube-scheduler", "v1.36.3"),
            ("kube-proxy", "v1.36.3"),
            ("etcd", release.etcd),
            ("coredns/coredns", release.coredns),
            ("pause", release.pause),
            ("metrics-server/metrics-server", "v0.9.0"),
            ("flannel-io/flannel", "v0.28.4"),
            ("flannel-io/flannel-cni-plugin", "v1.9.1-flannel1"),
            ("rancher/local-path-provisioner", "v0.0.30"),
            ("library/busybox", "1.37.0"),
            ("team/app", "1.2"),
        ] {
            registry.push(name, &image(name, tag));
        }
        let root = at.join("www");
        let served = root.clone();
        let web = Server::tls(&authority, move |seen| {
            fs::read(served.join(&seen.path[1..])).map_or_else(
                |_| CannedAnswer::new(404),
                |bytes| CannedAnswer::new(200).body(bytes),
            )
        });
        let world = Self {
            registry,
            web,
            signer: Signer::new(at.to_owned(), "key.asc"),
            dir,
        };
        for name in ["kubelet", "kubeadm", "kubectl"] {
            program(&root.join("release/v1.36.3/bin/linux/amd64").join(name));
        }
        let cni = "containernetworking/plugins/releases/download/v1.9.1/cni-plugins-linux-amd64-v1.9.1.tgz";
        world.archive(cni, "", CNI);
        let containerd =
            "containerd/containerd/releases/download/v2.3.7/containerd-2.3.7-linux-amd64.tar.gz";
        world.archive(
            containerd,
            "bin/",
            &["containerd", "containerd-shim-runc-v2", "ctr"],
        );
        let registry =
            "distribution/distribution/releases/download/v3.1.2/registry_3.1.2_linux_amd64.tar.gz";
        world.archive(registry, "", &["registry"]);
        for (repository, suite, packages) in SUITES {
            world.repository(repository, suite, packages);
        }
        for name in ["ctl", "halite-master", "halite-minion"] {
            program(&world.path("bin").join(name));
        }
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs `ctl` in the directory of the recipe.
    pub fn ctl(&self, args: &[&str]) -> Output {
        let mut ctl = Command::new(env!("CARGO_BIN_EXE_ctl"));
        ctl.args(args)
            .current_dir(self.path("site"))
            .env("HOME", self.path("home"))
            .env("HALITE_OPTION_SETS", "covering");
        for name in [
            "HTTPS_PROXY",
            "https_proxy",
            "HTTP_PROXY",
            "http_proxy",
            "ALL_PROXY",
            "all_proxy",
        ] {
            ctl.env_remove(name);
        }
        ctl.output().unwrap()
    }

    /// Runs a command that must succeed, and returns its output.
    pub fn said(&self, args: &[&str]) -> String {
        let output = self.ctl(args);
        assert!(
            output.status.success(),
            "ctl {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must fail, and returns its output.
    pub fn refused(&self, args: &[&str]) -> String {
        let output = self.ctl(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "ctl {args:?}: {said}");
        said
    }

    fn archive(&self, name: &str, below: &str, programs: &[&str]) {
        let dir = self.path("archive").join(name.replace('/', "-"));
        for name in programs {
            program(&dir.join(below).join(name));
        }
        let to = self.path("www").join(name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        run("tar", &dir, "tar", &["-czf", to.to_str().unwrap(), "."]);
    }

    fn repository(&self, name: &str, suite: &str, packages: &[&str]) {
        let root = self.path("www").join(name);
        fs::create_dir_all(root.join("pool")).unwrap();
        for package in packages {
            let control = format!(
                "Package: {package}\nVersion: 1-1\nArchitecture: amd64\nMaintainer: Test <test@halite.invalid>\n\
                 Description: {package}\n"
            );
            put(&self.path("tree/DEBIAN/control"), control.as_bytes());
            let to = root.join(format!("pool/{package}_1-1_amd64.deb"));
            let args = [
                "--build",
                "--root-owner-group",
                "tree",
                to.to_str().unwrap(),
            ];
            run("dpkg", self.dir.path(), "dpkg-deb", &args);
        }
        let index = run("apt-utils", &root, "apt-ftparchive", &["packages", "pool"]);
        put(
            &root.join(format!("dists/{suite}/main/binary-amd64/Packages")),
            &index,
        );
        let option = format!("APT::FTPArchive::Release::Suite={suite}");
        let dists = format!("dists/{suite}");
        let release = run(
            "apt-utils",
            &root,
            "apt-ftparchive",
            &["-o", &option, "release", &dists],
        );
        let path = root.join(&dists).join("Release");
        put(&path, &release);
        self.signer
            .clearsign(&path, &path.with_file_name("InRelease"));
    }

    /// Points the recipe of `ctl bundle init` at the servers here.
    pub fn edit(&self) {
        let path = self.path("site/recipe.yaml");
        let mut text = fs::read_to_string(&path).unwrap();
        let web = format!("https://{}", self.web.host());
        // Uncomments only the example of a mirror.
        let mut mirror = false;
        let opened = text.lines().map(|line| {
            mirror = line.starts_with("#=") && (mirror || line == "#=   repositories:");
            if mirror {
                line.trim_start_matches("#= ")
            } else {
                line
            }
        });
        text = opened.collect::<Vec<_>>().join("\n");
        for there in [
            "https://dl.k8s.io",
            "https://github.com",
            "https://mirror.example.org",
        ] {
            assert!(text.contains(there), "{there}");
            text = text.replace(there, &web);
        }
        text = text.replace(
            "/usr/share/keyrings/debian-archive-keyring.gpg",
            "../key.asc",
        );
        let host = self.registry.host();
        text.push_str(&format!(
            "\nregistries:\n  registry.k8s.io: {{mirror: \"{host}\"}}\n  ghcr.io: {{mirror: \"{host}\"}}\n  docker.io: \
             {{mirror: \"{host}\"}}\n  \"{host}\": {{ca: ../authority.pem, login: ../login.json}}\n  \"{}\": {{ca: \
             ../authority.pem}}\nno-proxy: \"*\"\n{OPTIONS}\n",
            self.web.host()
        ));
        put(&path, text.as_bytes());
        let login = json!({"auths": {(host): {"auth": "bWU6c2VjcmV0"}}});
        put(&self.path("login.json"), login.to_string().as_bytes());
        fs::set_permissions(self.path("login.json"), fs::Permissions::from_mode(0o600)).unwrap();
        put(
            &self.path("site/base-status"),
            status(&["mount", "util-linux"]).as_bytes(),
        );
    }

    /// Adds something to the recipe.
    pub fn add(&self, after: &str, text: &str) {
        let path = self.path("site/recipe.yaml");
        let recipe = fs::read_to_string(&path).unwrap();
        assert!(recipe.contains(after), "{recipe}");
        put(
            &path,
            recipe
                .replacen(after, &format!("{after}{text}"), 1)
                .as_bytes(),
        );
    }
}

fn image(name: &str, tag: &str) -> Content {
    let mut all = Content::default();
    let config = json!({"os": "linux", "architecture": "amd64", "config": {}}).to_string();
    let config = all.blob(
        "application/vnd.oci.image.config.v1+json",
        config.as_bytes(),
    );
    let layer = all.blob("application/vnd.oci.image.layer.v1.tar", name.as_bytes());
    let manifest =
        json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [layer]});
    let mut descriptor = all.manifest(name, OCI_MANIFEST, &manifest);
    descriptor["platform"] = json!({"os": "linux", "architecture": "amd64"});
    let index = all.index(name, OCI_INDEX, &[descriptor]);
    all.tag(name, tag, &index);
    all
}

fn program(path: &Path) {
    let name = path.file_name().unwrap().to_string_lossy();
    make_program(path, &format!("#!/bin/sh\necho {name}\n"));
}
