//! The master and its standbys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::document::document;
use crate::word::words;

/// The master's host, its epoch and its standbys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Masters {
    /// The host of the master. Absent if no node document names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The epoch of the master, which increases when another host takes over.
    pub epoch: u64,
    /// The declared standbys.
    pub standbys: Vec<StandbyHost>,
    /// The time since which no standby follows. Absent while one does, and without a standby.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone_since: Option<Time>,
    /// The reason why the master begins nothing. Absent if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolated: Option<String>,
    /// The last hand-over from this host, if it failed within a day and can be tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hand_over: Option<FailedHandOver>,
}

words! {
    /// The state of a standby.
    StandbyState {
        /// It takes a copy, or what it missed.
        Copying = "copying",
        /// It has everything that the master has answered.
        Following = "following",
        /// It was connected, and is not.
        Gone = "gone",
        /// It has not connected since the master started.
        Missing = "missing",
    }
}

/// A standby of the master.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StandbyHost {
    /// Its host.
    pub name: String,
    /// The state: `copying`, `following`, `gone` or `missing`.
    pub state: StandbyState,
    /// The time since which it has this state. Absent while it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The bytes that are on their way to it. Absent while it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// The reason why it is gone. Absent or empty otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A hand-over of the master that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedHandOver {
    /// The host that has the master.
    pub from: String,
    /// The standby that was to take it.
    pub to: String,
    /// Whether the host was to leave the cluster afterwards.
    pub leaves: bool,
    /// The time at which it began.
    pub since: Time,
    /// The reason of the failure.
    pub reason: String,
}

/// The master and its standbys (`ctl master list`). On a standby without a master it has what is known there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MasterList {
    /// The addresses of the master, HOST:PORT.
    pub master: Vec<String>,
    /// The epoch of the master. Absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The standbys.
    pub standbys: Vec<StandbyHost>,
    /// What is wrong, one sentence each.
    pub problems: Vec<String>,
}

document!(MasterList);
