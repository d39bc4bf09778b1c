//! `ctl` itself: its version and its contexts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::document;

/// The versions of `ctl` and of the master (`ctl version`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// The version of `ctl`.
    pub ctl: String,
    /// The version of the master. Absent with `--client`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
}

document!(Versions);

/// The contexts of a user (`ctl context`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContextList {
    /// The file with the contexts. Absent for a user without a home directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The name of the current context. Absent if none was selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The contexts, by name.
    pub contexts: BTreeMap<String, ClusterContext>,
}

document!(ContextList);

/// Access to a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterContext {
    /// The addresses of the masters, HOST:PORT.
    pub masters: Vec<String>,
    /// The file of the operator's identity. Absent if the context names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
}
