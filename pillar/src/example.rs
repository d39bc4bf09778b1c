//! The example document.

/// A commented cluster document that is valid without changes.
pub const CLUSTER: &str = include_str!("example.yaml");
