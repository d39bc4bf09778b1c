//! The example document.

/// A commented cluster document that is valid as it stands.
pub const CLUSTER: &str = include_str!("example.yaml");
