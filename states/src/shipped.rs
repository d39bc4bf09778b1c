//! Names in the shipped state tree that programs apply by themselves.

/// The orchestration of `ctl bootstrap`.
pub const BOOTSTRAP: &str = "halite.orchestrate.bootstrap";

/// The orchestration of `ctl node add`.
pub const ADD_NODE: &str = "halite.orchestrate.add_node";

/// The orchestration of `ctl upgrade`.
pub const UPGRADE: &str = "halite.orchestrate.upgrade";

/// The orchestration of `ctl node cordon`.
pub const CORDON_NODE: &str = "halite.orchestrate.cordon_node";

/// The orchestration of `ctl node drain`.
pub const DRAIN_NODE: &str = "halite.orchestrate.drain_node";

/// The orchestration of `ctl node uncordon`.
pub const UNCORDON_NODE: &str = "halite.orchestrate.uncordon_node";

/// The orchestration of `ctl node remove` and `ctl node replace`.
pub const REMOVE_NODE: &str = "halite.orchestrate.remove_node";

/// The orchestration of `ctl node reboot`.
pub const REBOOT_NODE: &str = "halite.orchestrate.reboot_node";

/// The orchestration of `ctl master promote`.
pub const PROMOTED: &str = "halite.orchestrate.promoted";

/// The orchestration of `ctl destroy`.
pub const DESTROY: &str = "halite.orchestrate.destroy";

/// The orchestration of `ctl etcd defrag`.
pub const DEFRAG_ETCD: &str = "halite.orchestrate.defrag_etcd";

/// The orchestration of `ctl etcd recover`.
pub const RECOVER_ETCD: &str = "halite.orchestrate.recover_etcd";

/// The orchestration that rotates the keys of encrypted objects in etcd.
pub const ROTATE_ENCRYPTION: &str = "halite.orchestrate.rotate_encryption";

/// The orchestration that rotates a CA.
pub const ROTATE_CA: &str = "halite.orchestrate.rotate_ca";

/// The orchestrations that `ctl` starts.
pub const ORCHESTRATIONS: [&str; 14] = [
    BOOTSTRAP,
    ADD_NODE,
    CORDON_NODE,
    DRAIN_NODE,
    UNCORDON_NODE,
    REMOVE_NODE,
    REBOOT_NODE,
    UPGRADE,
    PROMOTED,
    DESTROY,
    DEFRAG_ETCD,
    RECOVER_ETCD,
    ROTATE_ENCRYPTION,
    ROTATE_CA,
];

/// The states with which `ctl bootstrap` restarts the master.
pub const RESTART_MASTER: &str = "halite.services.master.restart";

/// The states with which `ctl bootstrap` restarts the minion.
pub const RESTART_MINION: &str = "halite.services.minion.restart";

/// The states with which the step `halite.vip_moved_off` moves the virtual address.
pub const VIP_ASIDE: &str = "halite.host.keepalived.aside";

/// The states with the certificates of a control plane.
pub const CONTROL_PLANE_CERTIFICATES: &str = "halite.base.pki.control_plane";

/// The certificate among them that the API server serves with.
pub const API_SERVER_CERTIFICATE: &str = "/etc/kubernetes/pki/apiserver.crt";
