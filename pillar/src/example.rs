//! The example document.

/// A commented cluster document that is valid as it is.
pub const CLUSTER: &str = include_str!("example.yaml");
