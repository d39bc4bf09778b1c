//! The declared standbys of the master.

use serde::{Deserialize, Serialize};

/// The hosts that have a full copy of the master's data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Standbys {
    /// The choice of Halite.
    Chosen(Auto),
    /// These nodes; the one that has the master does not count.
    Named(Vec<String>),
}

/// The word for a choice of Halite: control planes, by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auto {
    /// The only word.
    #[default]
    Auto,
}

impl Default for Standbys {
    fn default() -> Self {
        Self::Chosen(Auto::Auto)
    }
}
