//! The bundle from which the cluster was made.

/// Its version.
pub(super) const FIRST: &str = env!("CARGO_PKG_VERSION");
