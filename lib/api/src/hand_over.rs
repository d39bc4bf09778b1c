//! A planned move of the master.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::document;

/// A planned move of the master to a standby: the obstacles, or the progress. `ctl master retire`
/// reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MasterMove {
    /// The host that the master leaves.
    pub from: String,
    /// The address of the current master. Absent if the master has moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<String>,
    /// The standby that takes the master. Absent if none can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// `true` if the master has moved.
    pub moved: bool,
    /// `true` if the host has left the cluster.
    pub left: bool,
    /// `true` if the hosts have been directed to the next master.
    pub followed: bool,
    /// `true` if this call started the move.
    pub begun: bool,
    /// The address of the next master. Absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The epoch of the next master.
    pub epoch: u64,
    /// The name of the cluster.
    pub cluster: String,
    /// The obstacles, one sentence each.
    pub problems: Vec<String>,
    /// The runs and jobs that the move waits for.
    pub waits: Vec<String>,
    /// The cluster's losses if the host leaves, one sentence each.
    pub losses: Vec<String>,
}

document!(MasterMove);
