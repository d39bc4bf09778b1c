//! A planned move of the master.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::document;

/// A planned move of the master to a standby: what is in its way, or how far it is. `ctl master retire`
/// reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MasterMove {
    /// The host that the master leaves.
    pub from: String,
    /// The address of the master that answers. Absent if the master has moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<String>,
    /// The standby that takes the master. Absent if none can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Whether the master has moved.
    pub moved: bool,
    /// Whether the host has left the cluster.
    pub left: bool,
    /// Whether the hosts were brought to the next master.
    pub followed: bool,
    /// Whether the move has begun with this call.
    pub begun: bool,
    /// The address of the next master. Absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The epoch of the next master.
    pub epoch: u64,
    /// The name of the cluster.
    pub cluster: String,
    /// What is in the way, one sentence each.
    pub problems: Vec<String>,
    /// The runs and jobs whose end the move waits for.
    pub waits: Vec<String>,
    /// What the cluster loses with the host, one sentence each.
    pub losses: Vec<String>,
}

document!(MasterMove);
