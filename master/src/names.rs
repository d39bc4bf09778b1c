//! Names that have a fixed meaning in every cluster.

/// The id of the pseudo-minion whose host is the Kubernetes API. No node may have it.
pub const MASTER: &str = "master";
