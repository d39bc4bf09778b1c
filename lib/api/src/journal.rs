//! The journal of a host.

use halite_proto::ids::MinionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::document;

/// Lines of a host's journal (`ctl logs`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostJournal {
    /// The host.
    #[schemars(with = "String")]
    pub host: MinionId,
    /// The unit of systemd. Absent for the whole journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The lines, the oldest first.
    pub lines: Vec<String>,
}

document!(HostJournal);
