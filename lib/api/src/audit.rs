//! The audit log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::document::document;

/// Lines of the audit log, the newest first (`ctl audit`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditLog {
    /// The lines.
    pub audit: Vec<AuditLine>,
}

document!(AuditLog);

/// A call to the master, and its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditLine {
    /// The time of the call.
    pub time: Time,
    /// The caller: `operator:NAME`, `minion:NAME`, or the address of a caller without an identity.
    pub who: String,
    /// Service and method, for example `Operator/Run`; `handshake`, `summary` or `upkeep` for lines
    /// that do not belong to a call.
    pub action: String,
    /// A summary of the request, without secrets.
    pub what: String,
    /// `ok`, or the reason why it was refused.
    pub outcome: String,
}
