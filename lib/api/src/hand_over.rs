//! A move of the master: its plan, and the record on the disk of its host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
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

/// The record of a move, on the disk of the host that the master leaves. The master writes it;
/// `ctl` reads it while no master serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HandOver {
    /// The master's current host.
    pub from: String,
    /// The standby.
    pub to: String,
    /// `true` if `from` leaves the cluster afterwards.
    pub leaves: bool,
    /// The epoch of the next master.
    pub epoch: u64,
    /// The addresses of the other masters, starting with the address of `to`.
    pub masters: Vec<String>,
    /// The names of their hosts.
    pub hosts: Vec<String>,
    /// The time at which it started.
    pub since: Time,
    /// Its progress.
    pub phase: HandOverPhase,
    /// The reason of the failure; otherwise empty.
    #[serde(default)]
    pub reason: String,
}

impl HandOver {
    /// The name of the file in the directory of the master's state.
    pub const FILE: &str = "hand-over.json";
}

/// The progress of a move. A master that does not know the phase must not serve, so there is no
/// variant for other words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HandOverPhase {
    /// The standby is being brought up to date.
    Offered,
    /// The standby has everything and is the next master.
    Decided,
    /// The standby did not connect in time, or made no progress: this host still has the master.
    Failed,
}
