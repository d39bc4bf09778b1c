//! The bundle that the cluster was made from.

/// Its version.
pub(super) const FIRST: &str = env!("CARGO_PKG_VERSION");
