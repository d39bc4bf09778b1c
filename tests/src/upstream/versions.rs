//! What the lab's site runs: every module with its exact version, and the name under which its image is known.

/// Kubernetes.
pub const KUBERNETES: &str = "v1.36.3";

/// The registry of the tests (`distribution`).
pub const REGISTRY: &str = "v3.0.0";

/// etcd's module version.
pub const ETCD: &str = "v3.6.8";

/// The tag of etcd's image, as kubeadm of this Kubernetes names it.
pub const ETCD_IMAGE: &str = "3.6.8-0";

/// containerd.
pub const CONTAINERD: &str = "v2.3.7";

/// The reference CNI plugins.
pub const CNI_PLUGINS: &str = "v1.9.1";

/// The release of the reference plugins that still holds flannel's own; its newer home publishes no Go module.
pub const FLANNEL_PLUGIN: &str = "v0.9.1";

/// The tag of the image that brings flannel's plugin to a host.
pub const FLANNEL_PLUGIN_IMAGE: &str = "v1.9.1-flannel1";

/// flanneld.
pub const FLANNEL: &str = "v0.28.4";

/// CoreDNS.
pub const COREDNS: &str = "v1.14.2";

/// metrics-server.
pub const METRICS_SERVER: &str = "v0.9.0";

/// The local-path provisioner; later releases publish no Go module.
pub const LOCAL_PATH: &str = "v0.0.30";

/// The tag of the image in which local-path makes and removes directories: the version of Debian's busybox.
pub const BUSYBOX: &str = "1.35.0";

/// The tag of the pause image, as kubeadm of this Kubernetes names it.
pub const PAUSE: &str = "3.10.2";

/// The tag of the test image.
pub const AGNHOST: &str = "2.57";

/// The Debian packages that every host of the site may need; the bundle carries them with whatever they need that a
/// minimal installation lacks.
pub const HOST_PACKAGES: &[&str] = &[
    "conntrack",
    "ethtool",
    "firewalld",
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
