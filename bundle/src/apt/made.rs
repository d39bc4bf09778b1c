//! Packages that the build makes: Kubernetes' own programs, at the paths and with the units of upstream's packages, so
//! that kubeadm and everything written for it finds what it expects. Unlike upstream's, none starts or enables anything
//! when it is installed: states decide that.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use super::program;
use crate::{error::Error, files, iso::portable};

/// A package to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Its name: one of those that [`definition`] knows.
    pub package: String,
    /// Its version with the revision of the packaging: `1.36.3-1`.
    pub version: String,
    /// The programs that go in, by name.
    pub programs: BTreeMap<String, PathBuf>,
}

impl Made {
    /// The version without the revision of the packaging.
    #[must_use]
    pub fn upstream_version(&self) -> &str {
        self.version.rsplit_once('-').map_or(&self.version, |(upstream, _)| upstream)
    }
}

/// What is the same in every version of a package.
struct Definition {
    summary: &'static str,
    homepage: &'static str,
    depends: &'static str,
    recommends: &'static str,
    /// Where its programs go.
    programs_in: &'static str,
    /// Programs without which it is no such package; empty where any set is one.
    programs: &'static [&'static str],
    /// Path, content.
    files: &'static [(&'static str, &'static str)],
    /// Directories that may be empty.
    directories: &'static [&'static str],
    /// Files that an operator may change and an upgrade keeps.
    conffiles: &'static [&'static str],
}

/// kubeadm reads and writes this unit's state; the drop-in of the package kubeadm gives it its arguments.
const KUBELET_UNIT: &str = "[Unit]
Description=kubelet: The Kubernetes Node Agent
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
";

/// `kubeadm init` and `join` write the files that are named here.
const KUBEADM_DROP_IN: &str = r#"# kubeadm writes config.yaml and kubeadm-flags.env; /etc/default/kubelet is the operator's last resort.
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"#;

/// As containerd's own, with the program where packages put it.
const CONTAINERD_UNIT: &str = "[Unit]
Description=containerd container runtime
Documentation=https://containerd.io
After=network.target dbus.service

[Service]
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/bin/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
";

const KUBERNETES: &str = "https://kubernetes.io";

/// Names of the packages that can be made.
pub const NAMES: &[&str] = &["containerd", "kubeadm", "kubectl", "kubelet", "kubernetes-cni"];

fn definition(package: &str) -> Option<Definition> {
    let plain = Definition {
        summary: "",
        homepage: KUBERNETES,
        depends: "",
        recommends: "",
        programs_in: "usr/bin",
        programs: &[],
        files: &[],
        directories: &[],
        conffiles: &[],
    };
    Some(match package {
        "kubelet" => Definition {
            summary: "node agent for Kubernetes clusters",
            depends: "kubernetes-cni (>= 1.2.0), mount, util-linux",
            recommends: "iptables (>= 1.8.4)",
            programs: &["kubelet"],
            files: &[
                ("usr/lib/systemd/system/kubelet.service", KUBELET_UNIT),
                ("etc/default/kubelet", "KUBELET_EXTRA_ARGS=\n"),
            ],
            directories: &["etc/kubernetes/manifests", "var/lib/kubelet"],
            conffiles: &["/etc/default/kubelet"],
            ..plain
        },
        "kubeadm" => Definition {
            summary: "command-line utility for administering a Kubernetes cluster",
            programs: &["kubeadm"],
            files: &[("usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", KUBEADM_DROP_IN)],
            ..plain
        },
        "kubectl" => Definition {
            summary: "command-line utility for interacting with a Kubernetes cluster",
            programs: &["kubectl"],
            ..plain
        },
        "kubernetes-cni" => Definition {
            summary: "binaries required to provision Kubernetes container networking",
            programs_in: "opt/cni/bin",
            programs: &["bridge", "host-local", "loopback", "portmap"],
            directories: &["etc/cni/net.d"],
            ..plain
        },
        "containerd" => Definition {
            summary: "container runtime",
            homepage: "https://containerd.io",
            depends: "runc",
            programs: &["containerd", "containerd-shim-runc-v2", "ctr"],
            files: &[("usr/lib/systemd/system/containerd.service", CONTAINERD_UNIT)],
            ..plain
        },
        _ => return None,
    })
}

/// Everything that keeps a package from being made.
#[must_use]
pub fn problems(made: &Made) -> Vec<String> {
    let Some(definition) = definition(&made.package) else {
        return vec![format!("the package {:?} cannot be made; {} can", made.package, NAMES.join(", "))];
    };
    let lacking = definition.programs.iter().filter(|name| !made.programs.contains_key(**name));
    let mut found: Vec<String> =
        lacking.map(|name| format!("the package {} needs the program {name:?}", made.package)).collect();
    for name in made.programs.keys().filter(|name| !is_package_name(name)) {
        found.push(format!("{name:?} is no name for a program"));
    }
    let version = |c: char| c.is_ascii_alphanumeric() || ".+~-".contains(c);
    let right = made.version.starts_with(|c: char| c.is_ascii_digit()) && made.version.contains('-');
    if !right || !made.version.chars().all(version) {
        found.push(format!("version {:?} must be like 1.36.3-1", made.version));
    }
    found
}

/// Debian's rule for names (policy 5.6.1), a single letter allowed; that of our programs too.
pub(crate) fn is_package_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+.-".contains(c);
    name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()) && name.chars().all(inner)
}

/// The earliest moment that every tool can represent (FAT begins there): packages hold no time of their own.
const EPOCH: &str = "315532800";

/// Makes a package in a directory and returns its file. The same programs and version make the same bytes.
pub(crate) fn make(made: &Made, out: &Path) -> Result<PathBuf, Error> {
    let Some(definition) = definition(&made.package) else {
        return Err(Error::Recipe(problems(made)));
    };
    let work = tempfile::tempdir_in(out).map_err(Error::file("make a directory in", out))?;
    let root = work.path().join("root");
    let mut size = 0;
    for (name, from) in &made.programs {
        size += files::copy(from, &root.join(definition.programs_in).join(name), 0o755)?.1;
    }
    for (path, content) in definition.files {
        files::write(&root.join(path), 0o644, content.as_bytes())?;
        size += content.len() as u64;
    }
    for path in definition.directories {
        files::make_dir(&root.join(path))?;
    }
    files::write(&root.join("DEBIAN/control"), 0o644, control(made, &definition, size).as_bytes())?;
    if !definition.conffiles.is_empty() {
        let list = format!("{}\n", definition.conffiles.join("\n"));
        files::write(&root.join("DEBIAN/conffiles"), 0o644, list.as_bytes())?;
    }
    if definition.files.iter().any(|(path, _)| path.starts_with("usr/lib/systemd")) {
        for script in ["postinst", "postrm"] {
            files::write(&root.join("DEBIAN").join(script), 0o755, RELOAD.as_bytes())?;
        }
    }
    directories_open(&root)?;
    let archive = out.join(portable::fit(&format!("{}_{}_amd64.deb", made.package, made.version)));
    let mut build = Command::new("dpkg-deb");
    build.env("SOURCE_DATE_EPOCH", EPOCH).args(["--root-owner-group", "-Zzstd", "-z3", "--build"]);
    program::run(build.arg(&root).arg(&archive), &format!("making the package {}", made.package))?;
    Ok(archive)
}

/// systemd has to read units that appear, change or go.
const RELOAD: &str = "#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
";

fn control(made: &Made, definition: &Definition, size: u64) -> String {
    let mut text = format!(
        "Package: {}\nVersion: {}\nArchitecture: amd64\nMaintainer: Halite bundle build <bundle@halite.invalid>\n\
         Installed-Size: {}\n",
        made.package,
        made.version,
        size.div_ceil(1024)
    );
    for (name, value) in [("Depends", definition.depends), ("Recommends", definition.recommends)] {
        if !value.is_empty() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name}: {value}");
        }
    }
    let _ = writeln!(
        text,
        "Section: admin\nPriority: optional\nHomepage: {}\nDescription: {}",
        definition.homepage, definition.summary
    );
    text
}

/// The caller's umask must not end up in packages.
fn directories_open(root: &Path) -> Result<(), Error> {
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).map_err(Error::file("write", &dir))?;
        for entry in fs::read_dir(&dir).map_err(Error::file("list", &dir))?.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            }
        }
    }
    Ok(())
}
