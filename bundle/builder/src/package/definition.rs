//! The definition of each package, the same in all of its versions: Kubernetes' own programs, with
//! the paths and units of upstream's packages, so that kubeadm and other software written for those
//! packages finds them; and Halite's programs.
//!
//! Unlike upstream's packages, none of them starts or enables a unit when it is installed: states
//! decide that.

use super::{Relations, Scripts};

/// The directory of units.
pub const UNITS: &str = "usr/lib/systemd/system";

/// A kind of package.
pub struct Definition {
    pub summary: &'static str,
    /// One paragraph of text.
    pub description: &'static str,
    pub homepage: &'static str,
    pub holder: &'static str,
    pub needs: Relations,
    pub recommends: Relations,
    /// The directory of its programs.
    pub programs_in: &'static str,
    /// Programs that the package must have; empty if any set is allowed.
    pub programs: &'static [&'static str],
    /// Path and content of each fixed file.
    pub files: &'static [(&'static str, &'static str)],
    /// Units from the state tree, by their path in it. In the state tree, they start programs below
    /// `/usr/local/bin`.
    pub units: &'static [&'static str],
    /// Directories that may be empty.
    pub directories: &'static [(&'static str, u32)],
    /// Files that an operator may change and an upgrade retains.
    pub conffiles: &'static [&'static str],
    pub scripts: Scripts,
}

/// kubeadm reads and writes this unit's state; the drop-in of the package kubeadm sets its
/// arguments.
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

/// `kubeadm init` and `join` write the files that this unit names.
const KUBEADM_DROP_IN: &str = r#"# kubeadm writes config.yaml and kubeadm-flags.env; /etc/default/kubelet is the operator's last resort.
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"#;

/// containerd's own unit, with the program's path in packages.
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
const KUBERNETES_AUTHORS: &str = "The Kubernetes Authors";

/// The homepage of Halite's packages: Halite has none.
const HALITE: &str = "https://halite.invalid";
const HALITE_AUTHORS: &str = "The Halite Authors";

/// Names of the packages that can be made.
pub const NAMES: &[&str] = &[
    "containerd",
    "distribution-registry",
    "halite-builder",
    "halite-ctl",
    "halite-master",
    "halite-minion",
    "kubeadm",
    "kubectl",
    "kubelet",
    "kubernetes-cni",
    "runc",
];

/// Returns the definition of the package with that name.
pub fn definition(package: &str) -> Option<Definition> {
    let plain = Definition {
        summary: "",
        description: "",
        homepage: KUBERNETES,
        holder: KUBERNETES_AUTHORS,
        needs: Relations::default(),
        recommends: Relations::default(),
        programs_in: "usr/bin",
        programs: &[],
        files: &[],
        units: &[],
        directories: &[],
        conffiles: &[],
        scripts: Scripts::default(),
    };
    Some(match package {
        "kubelet" => Definition {
            summary: "node agent for Kubernetes clusters",
            needs: Relations::parse(
                "kubernetes-cni (>= 1.2.0), mount, util-linux",
                "kubernetes-cni (>= 1.2.0), util-linux",
            ),
            recommends: Relations::parse("iptables (>= 1.8.4)", "iptables (>= 1.8.4)"),
            programs: &["kubelet"],
            files: &[
                ("usr/lib/systemd/system/kubelet.service", KUBELET_UNIT),
                ("etc/default/kubelet", "KUBELET_EXTRA_ARGS=\n"),
            ],
            directories: &[
                ("etc/kubernetes/manifests", 0o755),
                ("var/lib/kubelet", 0o755),
            ],
            conffiles: &["etc/default/kubelet"],
            scripts: Scripts::for_units(&[]),
            ..plain
        },
        "kubeadm" => Definition {
            summary: "command-line utility for administering a Kubernetes cluster",
            programs: &["kubeadm"],
            files: &[(
                "usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf",
                KUBEADM_DROP_IN,
            )],
            scripts: Scripts::for_units(&[]),
            ..plain
        },
        "kubectl" => Definition {
            summary: "command-line utility for interacting with a Kubernetes cluster",
            programs: &["kubectl"],
            ..plain
        },
        "kubernetes-cni" => Definition {
            summary: "binaries required to provision Kubernetes container networking",
            homepage: "https://github.com/containernetworking/plugins",
            holder: "The CNI authors",
            programs_in: "opt/cni/bin",
            programs: &["bridge", "host-local", "loopback", "portmap"],
            directories: &[("etc/cni/net.d", 0o755)],
            ..plain
        },
        "containerd" => Definition {
            summary: "container runtime",
            homepage: "https://containerd.io",
            holder: "The containerd Authors",
            needs: Relations::parse("runc", "runc"),
            programs: &["containerd", "containerd-shim-runc-v2", "ctr"],
            files: &[("usr/lib/systemd/system/containerd.service", CONTAINERD_UNIT)],
            scripts: Scripts::for_units(&[]),
            ..plain
        },
        // At the path of Debian's package, which it replaces.
        "runc" => Definition {
            summary: "runtime of containers, of the Open Container Initiative",
            homepage: "https://github.com/opencontainers/runc",
            holder: "The runc Authors",
            programs_in: "usr/sbin",
            programs: &["runc"],
            ..plain
        },
        "distribution-registry" => Definition {
            summary: "registry of container images",
            description: "Stores images that are pushed to it, and serves them to clients: the OCI distribution protocol.",
            homepage: "https://distribution.github.io/distribution/",
            holder: "The CNCF Distribution authors",
            programs: &["registry"],
            ..plain
        },
        name => return halite(name, plain),
    })
}

/// The definitions of Halite's own packages; each is one static program.
fn halite(package: &str, plain: Definition) -> Option<Definition> {
    let plain = Definition {
        homepage: HALITE,
        holder: HALITE_AUTHORS,
        ..plain
    };
    Some(match package {
        "halite-builder" => Definition {
            summary: "builder of Halite's bundles",
            description: "Gathers everything that an offline Kubernetes cluster needs into one signed ISO, with Halite's own \
                          programs and states. The command is ctl bundle.",
            needs: Relations::parse(
                "apt, dpkg, gpg, gpg-agent, gpgconf, gpgv, halite-ctl",
                "halite-ctl",
            ),
            programs: &["halite-builder"],
            ..plain
        },
        "halite-ctl" => Definition {
            summary: "operator's command of Halite",
            description: "Makes, verifies and reads bundles, bootstraps an offline cluster from one, and sends requests to the \
                          master of a cluster.",
            programs: &["ctl"],
            ..plain
        },
        "halite-master" => Definition {
            summary: "master of Halite",
            description: "Holds the declaration of a Kubernetes cluster, compiles it into states, and sends \
                          them to the minions.",
            programs: &["halite-master"],
            units: &["halite/services/master/halite-master.service"],
            directories: &[("etc/halite", 0o755), ("var/lib/halite", 0o755)],
            scripts: Scripts::for_units(&["halite-master.service"]),
            ..plain
        },
        "halite-minion" => Definition {
            summary: "agent of Halite on every host",
            description: "Compares a host with the states that the master sends, shows the differences, and removes \
                          them.",
            programs: &["halite-minion"],
            units: &["halite/services/minion/halite-minion.service"],
            directories: &[("etc/halite", 0o755), ("var/lib/halite", 0o755)],
            scripts: Scripts::for_units(&["halite-minion.service"]),
            ..plain
        },
        _ => return None,
    })
}
