//! Input of the compiler.

use serde_json::Value;

use crate::tree::Tree;

/// The data from which a low state is compiled.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The state tree.
    pub tree: &'a dyn Tree,
    /// The minion's id.
    pub minion: &'a str,
    /// Its pillar view; secrets are references (see [`halite_secrets::reference`]).
    pub pillar: &'a Value,
    /// Its grains.
    pub grains: &'a Value,
    /// Digest of a file of the bundle, for `bundle://` sources.
    pub bundle: &'a dyn Fn(&str) -> Option<String>,
}
