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
    /// The master's host. Absent if no node document names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The epoch of the master, which increases when another host takes over.
    pub epoch: u64,
    /// The declared standbys.
    pub standbys: Vec<StandbyHost>,
    /// The time since which no standby has followed. Absent while one follows, and without a
    /// standby.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone_since: Option<Time>,
    /// The reason why the master starts no jobs or runs. Absent if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolated: Option<String>,
    /// The last hand-over from this host, if it failed within the last day and can be retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hand_over: Option<FailedHandOver>,
}

words! {
    /// The state of a standby.
    StandbyState {
        /// It copies the store, or the changes that it missed.
        Copying = "copying",
        /// It has every change that the master has acknowledged.
        Following = "following",
        /// It was connected and no longer is.
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
    pub host: String,
    /// The state: `copying`, `following`, `gone` or `missing`.
    pub state: StandbyState,
    /// The time since which it has been in this state. Absent while it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The bytes that are still on their way to it. Absent while it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// The reason why it is gone. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A hand-over of the master that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedHandOver {
    /// The host that has the master.
    pub from: String,
    /// The standby that should have taken over.
    pub to: String,
    /// `true` if the host should have left the cluster afterwards.
    pub leaves: bool,
    /// The time at which it started.
    pub since: Time,
    /// The reason for the failure.
    pub reason: String,
}

/// The master and its standbys (`ctl master list`). On a standby without a master, it contains the
/// knowledge of that standby.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MasterList {
    /// The addresses of the master, HOST:PORT.
    pub master: Vec<String>,
    /// The epoch of the master. Absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The standbys.
    pub standbys: Vec<StandbyHost>,
    /// The problems, one sentence each.
    pub problems: Vec<String>,
}

document!(MasterList);
