//! A host that will leave the cluster.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::document::document;

/// A host that will leave the cluster, and the cluster's losses. Read by `ctl node remove` and
/// `ctl node replace`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeavingHost {
    /// The host.
    pub host: String,
    /// The name of the cluster.
    pub cluster: String,
    /// `true` if it has a key.
    pub enrolled: bool,
    /// `true` if its minion is connected.
    pub connected: bool,
    /// The cluster's losses if the host leaves, one sentence each.
    pub losses: Vec<String>,
    /// The cluster's losses if the host loses a role, by role.
    pub losses_of: BTreeMap<String, String>,
    /// Its node document. Absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<DeclaredNode>,
}

document!(LeavingHost);

/// The part of a node document that a replacement of the host keeps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredNode {
    /// The roles.
    pub roles: Vec<String>,
    /// The address. Absent if the document has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The labels, as in the document.
    #[serde(default)]
    pub labels: Value,
    /// The taints, as in the document.
    #[serde(default)]
    pub taints: Value,
    /// The site's own values, as in the document.
    #[serde(default)]
    pub custom: Map<String, Value>,
}
