//! The record of a standby's stream from the master, on the disk of the standby.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Time;

/// The state of a standby's stream. The standby writes it; a promotion, a backup of the standby and
/// `ctl master list` read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamReport {
    /// The address of the master.
    pub master: String,
    /// The time at which the stream started or ended.
    pub since: Time,
    /// `true` if the master's commits wait for this standby.
    pub following: bool,
    /// The last mark that the daemon runs; `None` from an earlier version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alive: Option<Time>,
    /// The reason why the master may have answered requests since that this host lacks; `None`
    /// while it follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<StreamGap>,
}

impl StreamReport {
    /// The name of the file in the directory of the copy.
    pub const FILE: &str = "report.json";

    /// The time until which this standby is known to have everything.
    #[must_use]
    pub fn until(&self) -> Time {
        self.alive.filter(|_| self.following).unwrap_or(self.since)
    }
}

/// The reason why a copy may lack data that the master has answered. Writer and readers are from
/// the same bundle, so a reader knows all reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StreamGap {
    /// The daemon did not run on this host.
    Off {
        /// Its last mark.
        from: Time,
        /// Its start, or now.
        to: Time,
    },
    /// A master has answered, but not all of its data arrived.
    Answered {
        /// The time of its answer.
        at: Time,
    },
}

impl fmt::Display for StreamGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off { from, to } => {
                write!(
                    f,
                    "halite-master did not run on this host from {from} to {to}"
                )
            }
            Self::Answered { at } => {
                write!(
                    f,
                    "the master answered at {at}, and this host has not taken all of it"
                )
            }
        }
    }
}
