//! The Go programs, and the build of each.

use super::versions;
use super::versions::Release;

/// Source of the module in which a program is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum ProgramSource {
    /// An own module with one requirement.
    Required,
    /// The same, and each staging module of Kubernetes replaced by its published twin (`k8s.io/X
    /// v0.36.3`).
    Kubernetes,
    /// A copy of the module itself, without some folders and their imports, and without
    /// requirements that no module proxy has. For flannel: its back end for one cloud, whose
    /// library is unavailable, and its oldest one (packets through user space), the only one that
    /// would need a C compiler.
    Without {
        /// The folders; each is also the end of an import path.
        folders: &'static [&'static str],
        /// Prefix of the requirements to drop.
        requirements: &'static str,
    },
    /// An own module with one requirement that has C code; the program is linked statically.
    C {
        /// Build tags.
        tags: &'static str,
        /// Debian's package with the header files and the static library.
        package: &'static str,
        /// The library's name for the linker.
        library: &'static str,
    },
}

/// The programs of one module.
#[derive(Debug, Clone, Copy)]
pub struct Module {
    /// Its path.
    pub path: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its source.
    pub source: ProgramSource,
    /// Variables that the linker sets, as `package.variable=value`; `{version}`, `{major}`,
    /// `{minor}`, `{commit}` and `{date}` stand for the values of the module's own release.
    pub stamps: &'static [&'static str],
    /// Name and package of each program.
    pub programs: &'static [(&'static str, &'static str)],
}

/// The registry for a site's own images; registry clients are tested with it too.
pub const REGISTRY: Module = Module {
    path: "github.com/distribution/distribution/v3",
    version: versions::REGISTRY,
    source: ProgramSource::Required,
    stamps: &["github.com/distribution/distribution/v3/version.version={version}"],
    programs: &[(
        "registry",
        "github.com/distribution/distribution/v3/cmd/registry",
    )],
};

/// Helm, for the tests of chart rendering; it is part of no bundle.
pub const HELM: Module = Module {
    path: "helm.sh/helm/v3",
    version: versions::HELM,
    source: ProgramSource::Required,
    stamps: &["helm.sh/helm/v3/internal/version.version={version}"],
    programs: &[("helm", "helm.sh/helm/v3/cmd/helm")],
};

/// Prometheus and its checker of rules, for the tests of metrics; they are part of no bundle.
pub const PROMETHEUS: Module = Module {
    path: "github.com/prometheus/prometheus",
    version: versions::PROMETHEUS,
    source: ProgramSource::Required,
    stamps: &["github.com/prometheus/common/version.Version={version}"],
    programs: &[
        (
            "prometheus",
            "github.com/prometheus/prometheus/cmd/prometheus",
        ),
        ("promtool", "github.com/prometheus/prometheus/cmd/promtool"),
    ],
};

/// The checks of the CIS Kubernetes Benchmark, for the tests of a hardened cluster; they are part
/// of no bundle.
pub const KUBE_BENCH: Module = Module {
    path: "github.com/aquasecurity/kube-bench",
    version: versions::KUBE_BENCH,
    source: ProgramSource::Required,
    stamps: &["github.com/aquasecurity/kube-bench/cmd.KubeBenchVersion={version}"],
    programs: &[("kube-bench", "github.com/aquasecurity/kube-bench")],
};

/// etcd, also for the unit tests.
pub const ETCD: Module = etcd(versions::ETCD);

/// The program that restores snapshots of etcd, also for the unit tests.
pub const ETCDUTL: Module = etcdutl(versions::ETCD);

const ETCD_STAMPS: &[&str] = &["go.etcd.io/etcd/api/v3/version.GitSHA={commit}"];

const fn etcd(version: &'static str) -> Module {
    Module {
        path: "go.etcd.io/etcd/server/v3",
        version,
        source: ProgramSource::Required,
        stamps: ETCD_STAMPS,
        programs: &[("etcd", "go.etcd.io/etcd/server/v3")],
    }
}

const fn etcdctl(version: &'static str) -> Module {
    Module {
        path: "go.etcd.io/etcd/etcdctl/v3",
        version,
        source: ProgramSource::Required,
        stamps: ETCD_STAMPS,
        programs: &[("etcdctl", "go.etcd.io/etcd/etcdctl/v3")],
    }
}

const fn etcdutl(version: &'static str) -> Module {
    Module {
        path: "go.etcd.io/etcd/etcdutl/v3",
        version,
        source: ProgramSource::Required,
        stamps: ETCD_STAMPS,
        programs: &[("etcdutl", "go.etcd.io/etcd/etcdutl/v3")],
    }
}

const fn coredns(version: &'static str) -> Module {
    Module {
        path: "github.com/coredns/coredns",
        version,
        source: ProgramSource::Required,
        stamps: &["github.com/coredns/coredns/coremain.GitCommit={commit}"],
        programs: &[("coredns", "github.com/coredns/coredns")],
    }
}

/// Kubernetes' own build (`hack/lib/version.sh`) stamps these two packages; kubeadm takes its
/// default versions, and a kubelet the version that its node reports, from there.
const KUBERNETES_STAMPS: &[&str] = &[
    "k8s.io/component-base/version.gitVersion={version}",
    "k8s.io/component-base/version.gitMajor={major}",
    "k8s.io/component-base/version.gitMinor={minor}",
    "k8s.io/component-base/version.gitTreeState=clean",
    "k8s.io/component-base/version.gitCommit={commit}",
    "k8s.io/component-base/version.buildDate={date}",
    "k8s.io/client-go/pkg/version.gitVersion={version}",
    "k8s.io/client-go/pkg/version.gitMajor={major}",
    "k8s.io/client-go/pkg/version.gitMinor={minor}",
    "k8s.io/client-go/pkg/version.gitTreeState=clean",
    "k8s.io/client-go/pkg/version.gitCommit={commit}",
    "k8s.io/client-go/pkg/version.buildDate={date}",
];

const CNI_STAMPS: &[&str] =
    &["github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion={version}"];

/// The modules of everything in a bundle of the release.
pub fn modules(release: &Release) -> Vec<Module> {
    let optional = if release.contents.is_full() {
        OPTIONAL
    } else {
        &[]
    };
    let own = [
        kubernetes(release),
        etcd(release.etcd_module),
        etcdctl(release.etcd_module),
        etcdutl(release.etcd_module),
        coredns(release.coredns),
        containerd(release.runtime.containerd),
        cni_plugins(release.runtime.cni_plugins),
    ];
    let runc: Vec<Module> = release.runtime.runc.map(runc).into_iter().collect();
    [&own, &runc[..], MODULES, optional].concat()
}

const fn containerd(version: &'static str) -> Module {
    Module {
        path: "github.com/containerd/containerd/v2",
        version,
        source: ProgramSource::Required,
        stamps: &[
            "github.com/containerd/containerd/v2/version.Version={version}",
            "github.com/containerd/containerd/v2/version.Revision={commit}",
        ],
        programs: &[
            (
                "containerd",
                "github.com/containerd/containerd/v2/cmd/containerd",
            ),
            (
                "containerd-shim-runc-v2",
                "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            ),
            ("ctr", "github.com/containerd/containerd/v2/cmd/ctr"),
        ],
    }
}

const fn cni_plugins(version: &'static str) -> Module {
    Module {
        path: "github.com/containernetworking/plugins",
        version,
        source: ProgramSource::Required,
        stamps: CNI_STAMPS,
        programs: CNI_PROGRAMS,
    }
}

/// With seccomp, as upstream builds it: kubeadm's static pods have a profile.
fn runc(version: &'static str) -> Module {
    Module {
        path: "github.com/opencontainers/runc",
        version,
        source: ProgramSource::C {
            tags: "seccomp netgo osusergo",
            package: "libseccomp-dev",
            library: "seccomp",
        },
        // Since 1.3 the program has its version from a file.
        stamps: if version.starts_with("v1.2.") {
            &["main.gitCommit={commit}", "main.version={number}"]
        } else {
            &["main.gitCommit={commit}"]
        },
        programs: &[("runc", "github.com/opencontainers/runc")],
    }
}

/// The programs of a Kubernetes release that its nodes and its control plane run.
const fn kubernetes(release: &Release) -> Module {
    Module {
        path: "k8s.io/kubernetes",
        version: release.kubernetes,
        source: ProgramSource::Kubernetes,
        stamps: KUBERNETES_STAMPS,
        programs: &[
            ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
            ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            (
                "kube-controller-manager",
                "k8s.io/kubernetes/cmd/kube-controller-manager",
            ),
            ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
            ("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
            ("kubeadm", "k8s.io/kubernetes/cmd/kubeadm"),
            ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
            (
                "kube-log-runner",
                "k8s.io/component-base/logs/kube-log-runner",
            ),
        ],
    }
}

/// Every other program that each cluster needs, the same for every release.
const MODULES: &[Module] = &[
    Module {
        path: "github.com/containernetworking/plugins",
        version: versions::FLANNEL_PLUGIN,
        source: ProgramSource::Required,
        stamps: CNI_STAMPS,
        programs: &[(
            "cni-flannel",
            "github.com/containernetworking/plugins/plugins/meta/flannel",
        )],
    },
    Module {
        path: "github.com/flannel-io/flannel",
        version: versions::FLANNEL,
        source: ProgramSource::Without {
            folders: &["pkg/backend/tencentvpc", "pkg/backend/udp"],
            requirements: "github.com/tencentcloud/",
        },
        stamps: &["github.com/flannel-io/flannel/pkg/version.Version={version}"],
        programs: &[("flanneld", "github.com/flannel-io/flannel")],
    },
];

/// The additional programs of a full bundle.
const OPTIONAL: &[Module] = &[
    Module {
        path: "sigs.k8s.io/metrics-server",
        version: versions::METRICS_SERVER,
        source: ProgramSource::Required,
        stamps: &[
            "k8s.io/component-base/version.gitVersion={version}",
            "k8s.io/component-base/version.gitCommit={commit}",
            "k8s.io/component-base/version.buildDate={date}",
        ],
        programs: &[(
            "metrics-server",
            "sigs.k8s.io/metrics-server/cmd/metrics-server",
        )],
    },
    Module {
        path: "github.com/rancher/local-path-provisioner",
        version: versions::LOCAL_PATH,
        source: ProgramSource::Required,
        stamps: &["main.VERSION={version}"],
        programs: &[(
            "local-path-provisioner",
            "github.com/rancher/local-path-provisioner",
        )],
    },
    REGISTRY,
];

/// Prefix of programs of the package `kubernetes-cni` in the directory of all programs.
pub const CNI_PREFIX: &str = "cni-";

/// The plugins of upstream's `kubernetes-cni` package.
pub const CNI_PROGRAMS: &[(&str, &str)] = &[
    (
        "cni-bandwidth",
        "github.com/containernetworking/plugins/plugins/meta/bandwidth",
    ),
    (
        "cni-bridge",
        "github.com/containernetworking/plugins/plugins/main/bridge",
    ),
    (
        "cni-dhcp",
        "github.com/containernetworking/plugins/plugins/ipam/dhcp",
    ),
    (
        "cni-dummy",
        "github.com/containernetworking/plugins/plugins/main/dummy",
    ),
    (
        "cni-firewall",
        "github.com/containernetworking/plugins/plugins/meta/firewall",
    ),
    (
        "cni-host-device",
        "github.com/containernetworking/plugins/plugins/main/host-device",
    ),
    (
        "cni-host-local",
        "github.com/containernetworking/plugins/plugins/ipam/host-local",
    ),
    (
        "cni-ipvlan",
        "github.com/containernetworking/plugins/plugins/main/ipvlan",
    ),
    (
        "cni-loopback",
        "github.com/containernetworking/plugins/plugins/main/loopback",
    ),
    (
        "cni-macvlan",
        "github.com/containernetworking/plugins/plugins/main/macvlan",
    ),
    (
        "cni-portmap",
        "github.com/containernetworking/plugins/plugins/meta/portmap",
    ),
    (
        "cni-ptp",
        "github.com/containernetworking/plugins/plugins/main/ptp",
    ),
    (
        "cni-sbr",
        "github.com/containernetworking/plugins/plugins/meta/sbr",
    ),
    (
        "cni-static",
        "github.com/containernetworking/plugins/plugins/ipam/static",
    ),
    (
        "cni-tap",
        "github.com/containernetworking/plugins/plugins/main/tap",
    ),
    (
        "cni-tuning",
        "github.com/containernetworking/plugins/plugins/meta/tuning",
    ),
    (
        "cni-vlan",
        "github.com/containernetworking/plugins/plugins/main/vlan",
    ),
    (
        "cni-vrf",
        "github.com/containernetworking/plugins/plugins/meta/vrf",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::versions::{FULL, NEWEST, OLDER, RUNTIMES};
    use super::*;

    #[test]
    fn each_release_has_its_own_etcd_and_coredns() {
        for release in [NEWEST, OLDER] {
            let versions = |path: &str| -> BTreeSet<&str> {
                let all = modules(&release).into_iter();
                let own = all.filter(|module| module.path.starts_with(path));
                own.map(|module| module.version).collect()
            };
            let tag = release.etcd_module.trim_start_matches('v');
            assert_eq!(release.etcd, format!("{tag}-0"));
            assert_eq!(versions("go.etcd.io/"), [release.etcd_module].into());
            assert_eq!(versions("github.com/coredns/"), [release.coredns].into());
        }
    }

    #[test]
    fn only_a_release_with_a_runc_of_its_own_builds_it() {
        let built = |release| {
            let modules = modules(&release);
            modules.iter().any(|module| module.path.ends_with("/runc"))
        };
        assert!(RUNTIMES.into_iter().all(built));
        assert!(!built(NEWEST) && !built(FULL) && !built(OLDER));
    }

    #[test]
    fn only_a_full_bundle_has_the_programs_of_addons_and_of_the_site_registry() {
        let names = |release| -> BTreeSet<&str> {
            let modules = modules(release);
            let programs = modules.iter().flat_map(|module| module.programs);
            programs.map(|(name, _)| *name).collect()
        };
        let (light, full) = (names(&NEWEST), names(&FULL));
        assert!(light.is_subset(&full));
        let more: Vec<&str> = full.difference(&light).copied().collect();
        assert_eq!(
            more,
            ["local-path-provisioner", "metrics-server", "registry"]
        );
    }
}
