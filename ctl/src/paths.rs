//! Paths and modes of the operator's files.

/// The directory of the declaration: cluster document, node documents, trusted keys.
pub const CONFIG: &str = "/etc/halite";

/// The directory of a master or a standby.
pub const STATE_DIR: &str = "/var/lib/halite/master";

/// The mode of the cluster document, which may contain secrets.
pub const CLUSTER_DOCUMENT_MODE: u32 = 0o600;

/// The mode of a node document.
pub const NODE_DOCUMENT_MODE: u32 = 0o644;
