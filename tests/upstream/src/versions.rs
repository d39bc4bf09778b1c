//! Versions of the software of the lab's site: every module with its exact version, and the name of
//! its image.

use halite_lab::base::Debian;
use halite_lab::build::Programs;
use halite_lab::cluster::CLUSTER;

use super::chart::Chart;

/// The parts of a bundle that only some clusters need: addons, charts, and the site registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// None of them. The demonstration and the usual tests need none, and without them three fewer
    /// Go modules, and no Helm, are built.
    Light,
    /// All of them, with these charts.
    Full(&'static [Chart]),
}

impl Contents {
    /// Returns whether it has all of them.
    #[must_use]
    pub fn is_full(self) -> bool {
        matches!(self, Self::Full(_))
    }

    /// The charts.
    #[must_use]
    pub fn charts(self) -> &'static [Chart] {
        match self {
            Self::Light => &[],
            Self::Full(charts) => charts,
        }
    }
}

/// The programs that run containers, and connect them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runtime {
    /// The version of containerd's module.
    pub containerd: &'static str,
    /// The version of runc's module; if `None`, runc is Debian's package.
    pub runc: Option<&'static str>,
    /// The version of the reference CNI plugins' module.
    pub cni_plugins: &'static str,
}

/// A Kubernetes release, and the tags of the images that its kubeadm names
/// (`cmd/kubeadm/app/constants`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// The module's version.
    pub kubernetes: &'static str,
    /// Suffix of its bundle's version, after the version of Halite.
    pub suffix: &'static str,
    /// Seconds since 1970 at which its bundle counts as resolved; if `None`, the actual time.
    pub resolved: Option<u64>,
    /// Halite's own programs in its bundle.
    pub programs: Programs,
    /// The contents of its bundle.
    pub contents: Contents,
    /// The tag of etcd's image.
    pub etcd: &'static str,
    /// The version of etcd's module.
    pub etcd_module: &'static str,
    /// The tag of CoreDNS' image, which is also the version of its module.
    pub coredns: &'static str,
    /// The pause image, and the version that the program in it reports.
    pub pause: &'static str,
    /// The container runtime.
    pub runtime: Runtime,
    /// Debian releases of hosts in addition to Debian 12.
    pub debian: &'static [Debian],
}

/// The release that the lab's clusters run by default.
pub const NEWEST: Release = Release {
    kubernetes: KUBERNETES,
    suffix: "",
    resolved: None,
    programs: Programs::Dev,
    contents: Contents::Light,
    etcd: "3.6.8-0",
    etcd_module: ETCD,
    coredns: COREDNS,
    pause: "3.10.2",
    runtime: RUNTIME,
    debian: &[],
};

/// The same with everything that a cluster can choose, for `--full` and the bench. The chart is a
/// pod network that replaces Halite's; another chart comes with the second bundle of the suite of
/// the bundles.
pub const FULL: Release = Release {
    contents: Contents::Full(&[Chart::Podnet]),
    ..NEWEST
};

/// The same with the programs as shipped, for measurements.
pub const SHIPPED: Release = Release {
    programs: Programs::Shipped,
    ..FULL
};

/// The previous minor version, with its own etcd and CoreDNS, for sites that have both and for the
/// upgrade from one to the other. Its bundle dates from the day of the release: it is the older
/// one, whichever is built first. Its cluster has every option enabled, including a chart, and runs
/// the shipped programs.
pub const OLDER: Release = Release {
    kubernetes: "v1.35.4",
    suffix: "-k1.35",
    resolved: Some(1_776_276_082),
    programs: Programs::Shipped,
    contents: Contents::Full(&[Chart::Hello]),
    etcd: "3.6.6-0",
    etcd_module: "v3.6.6",
    coredns: "v1.13.1",
    pause: "3.10.1",
    runtime: RUNTIME,
    debian: &[],
};

/// The release that a cluster with addons and a chart is upgraded from: [`OLDER`], with programs
/// that are quick to build.
pub const UPGRADE_FROM: Release = Release {
    programs: Programs::Dev,
    ..OLDER
};

/// An earlier patch release of the newest minor version, for the upgrade to the newest one with the
/// programs of both. Its bundle dates from the day of the release. Only the suite `minor` builds
/// it.
pub const OLDER_PATCH: Release = Release {
    kubernetes: "v1.36.1",
    suffix: "-k1.36.1",
    resolved: Some(1_778_579_493),
    ..UPGRADE_TO
};

/// The newest Kubernetes for hosts with Debian 12 and 13.
pub const MIXED: Release = Release {
    suffix: "-debian",
    debian: &[Debian::Trixie],
    ..NEWEST
};

/// The newest Kubernetes with an earlier Halite, for a site that is upgraded to the present one.
/// Its bundle is older than any that is built now.
pub const EARLIER: Release = Release {
    suffix: "-earlier",
    resolved: Some(1_776_276_082),
    programs: Programs::Earlier,
    ..NEWEST
};

/// The newest Kubernetes on an older container runtime, and the same on a newer one, for the
/// upgrade from one to the other. Their bundles have dates of their own: the first is the older
/// one, whichever is built first.
pub const RUNTIMES: [Release; 2] = [
    Release {
        suffix: "-runtime-1",
        resolved: Some(1_776_276_082),
        runtime: Runtime {
            containerd: "v2.3.6",
            runc: Some("v1.2.8"),
            cni_plugins: "v1.9.0",
        },
        ..NEWEST
    },
    Release {
        suffix: "-runtime-2",
        resolved: Some(1_776_362_482),
        runtime: Runtime {
            runc: Some("v1.3.3"),
            ..RUNTIME
        },
        ..NEWEST
    },
];

/// The release that it is upgraded to: the newest one, with the same chart.
pub const UPGRADE_TO: Release = Release {
    contents: OLDER.contents,
    ..NEWEST
};

/// The release of each minor version, by which [`Release::find`] chooses. The others are variants
/// of these, or an earlier patch release.
pub const RELEASES: [Release; 2] = [NEWEST, OLDER];

impl Release {
    /// The version of its bundle: `0.1.0`, `0.1.0-k1.35`.
    #[must_use]
    pub fn bundle(&self) -> String {
        format!("{}{}", env!("CARGO_PKG_VERSION"), self.suffix)
    }

    /// The release of a minor version: `1.35`.
    #[must_use]
    pub fn find(minor: &str) -> Option<Self> {
        RELEASES
            .into_iter()
            .find(|release| release.minor() == minor.trim_start_matches('v'))
    }

    /// The cluster document of the lab for this release.
    #[must_use]
    pub fn document(&self) -> String {
        let version = |release: &Self| format!("version: \"{}\"", release.minor());
        CLUSTER.replace(&version(&NEWEST), &version(self))
    }

    /// Its minor version: `1.35`.
    #[must_use]
    pub fn minor(&self) -> &'static str {
        let bare = self.kubernetes.trim_start_matches('v');
        bare.rsplit_once('.').map_or(bare, |(minor, _)| minor)
    }
}

/// Kubernetes of the newest release.
pub const KUBERNETES: &str = "v1.36.3";

/// The registry for a site's own images (`distribution`).
pub const REGISTRY: &str = "v3.1.2";

/// Helm, which renders charts in tests.
pub const HELM: &str = "v3.19.0";

/// Prometheus, with which tests scrape the master's metrics.
pub const PROMETHEUS: &str = "v0.313.5";

/// kube-bench, which checks a hardened cluster against the CIS Kubernetes Benchmark.
pub const KUBE_BENCH: &str = "v0.15.6";

/// etcd's module version of the newest release.
pub const ETCD: &str = "v3.6.8";

/// The container runtime of almost all releases.
const RUNTIME: Runtime = Runtime {
    containerd: "v2.3.7",
    runc: None,
    cni_plugins: "v1.9.1",
};

/// The release of the reference plugins that still contains flannel's own; its newer home publishes
/// no Go module.
pub const FLANNEL_PLUGIN: &str = "v0.9.1";

/// The tag of the image that installs flannel's plugin on a host.
pub const FLANNEL_PLUGIN_IMAGE: &str = "v1.9.1-flannel1";

/// flanneld.
pub const FLANNEL: &str = "v0.28.4";

/// CoreDNS of the newest release.
pub const COREDNS: &str = "v1.14.2";

/// metrics-server.
pub const METRICS_SERVER: &str = "v0.9.0";

/// The local-path provisioner; later releases publish no Go module.
pub const LOCAL_PATH: &str = "v0.0.30";

/// The tag of the image in which local-path makes and removes directories: the version of Debian's
/// busybox.
pub const BUSYBOX: &str = "1.35.0";

/// The Debian packages that every host of the site may need; the bundle contains them with the
/// dependencies that a minimal installation lacks.
pub const HOST_PACKAGES: &[&str] = &[
    "chrony",
    "conntrack",
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

/// Packages that only tests install, in the bundle with all contents.
pub const TEST_PACKAGES: &[&str] = &["openssh-server"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_found_by_its_minor_version() {
        for release in RELEASES {
            assert_eq!(Release::find(release.minor()), Some(release));
            assert!(
                release.bundle().starts_with(env!("CARGO_PKG_VERSION")),
                "{release:?}"
            );
        }
        assert_eq!(Release::find("v1.35"), Some(OLDER));
        assert_eq!(Release::find("1.3"), None);
    }

    /// The lab's program does not use the library, which would take minutes to build before the
    /// first command.
    #[test]
    fn recipes_that_ctl_writes_ask_for_the_same_images() {
        for release in RELEASES.into_iter().chain([OLDER_PATCH]) {
            let written = halite_builder::Release::of(release.kubernetes).unwrap();
            let tags = (written.etcd, written.coredns, written.pause);
            assert_eq!((release.etcd, release.coredns, release.pause), tags);
        }
    }

    #[test]
    fn the_document_of_a_release_has_its_minor_version() {
        assert_eq!(NEWEST.document(), CLUSTER);
        let older = OLDER.document();
        assert!(
            older.contains("kubernetes:\n  version: \"1.35\"\n"),
            "{older}"
        );
    }

    #[test]
    fn bundles_of_different_releases_have_different_versions() {
        let others = [&EARLIER, &MIXED, &OLDER_PATCH];
        let all = RELEASES.iter().chain(&RUNTIMES).chain(others);
        let versions: std::collections::BTreeSet<String> = all.map(Release::bundle).collect();
        let number = RELEASES.len() + RUNTIMES.len() + others.len();
        assert_eq!(versions.len(), number);
    }

    #[test]
    fn the_older_patch_release_differs_in_kubernetes_alone() {
        assert_eq!(OLDER_PATCH.minor(), NEWEST.minor());
        assert_ne!(OLDER_PATCH.kubernetes, NEWEST.kubernetes);
        let with_the_newest = Release {
            kubernetes: NEWEST.kubernetes,
            suffix: NEWEST.suffix,
            resolved: NEWEST.resolved,
            ..OLDER_PATCH
        };
        assert_eq!(with_the_newest, UPGRADE_TO);
        // No bundle that is older than the one in use is taken by an upgrade.
        let dates = [OLDER, OLDER_PATCH].map(|release| release.resolved);
        assert!(dates[0] < dates[1], "{dates:?}");
    }

    #[test]
    fn the_newer_runtime_is_newer_in_each_part() {
        let [older, newer] = RUNTIMES;
        let parts = |release: Release| {
            let Runtime {
                containerd,
                runc,
                cni_plugins,
            } = release.runtime;
            [containerd, runc.unwrap(), cni_plugins]
        };
        for (older, newer) in parts(older).into_iter().zip(parts(newer)) {
            assert!(older < newer, "{older} {newer}");
        }
        assert!(older.resolved < newer.resolved);
    }
}
