//! The receivers of notifications.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::document;
use crate::word::words;
use crate::{CheckState, Time};

words! {
    /// The news about a finding.
    FindingNews {
        /// The sink did not know it yet.
        New = "new",
        /// It was sent before, and is still there.
        Persists = "persists",
        /// It is over.
        Resolved = "resolved",
    }
}

/// The body of a notification to a sink of the form `plain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Notification {
    /// The findings as text, one on each line.
    pub text: String,
    /// The name of the cluster.
    pub cluster: String,
    /// The findings.
    pub findings: Vec<NotifiedFinding>,
}

document!(Notification);

/// A finding in a notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotifiedFinding {
    /// The news: `new`, `persists` or `resolved`.
    pub news: FindingNews,
    /// The name of the check.
    pub check: String,
    /// The severity: `warning` or `failure`.
    pub severity: CheckState,
    /// The host. Absent if the finding is about the cluster, or its message names the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The finding, in one sentence.
    pub message: String,
    /// The operator's next step. Absent if the message names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The time at which the checks found it first.
    pub since: Time,
    /// The time at which it was resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
    /// The identity of the finding: the same in all notifications about it.
    pub fingerprint: String,
}

/// The receivers of notifications (`ctl notify list`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SinkList {
    /// The sinks, by name.
    pub sinks: Vec<NotificationSink>,
}

document!(SinkList);

/// A receiver of notifications.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotificationSink {
    /// The name in the cluster document.
    pub name: String,
    /// The form of the requests: `alertmanager`, `webhook` or `plain`.
    pub form: String,
    /// Scheme, host and port of its address, without the path, which may be a key.
    pub origin: String,
    /// The least severity of the findings that it gets.
    pub severity: CheckState,
    /// The number of the present findings of this severity.
    pub findings: usize,
    /// The time of the last request that succeeded. Absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_success: Option<Time>,
    /// The attempts since then. Absent if none has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailedAttempts>,
    /// The findings that it refuses for their content. Each is sent again alone, and delays no
    /// other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedFinding>,
}

/// A finding that a receiver of notifications refuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedFinding {
    /// The name of the check.
    pub check: String,
    /// The host. Absent if the finding is about the cluster, or its message names the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The finding, in one sentence.
    pub message: String,
    /// The time of the last attempt.
    pub last: Time,
    /// The reason of the last attempt.
    pub error: String,
}

/// Attempts that failed, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedAttempts {
    /// The time of the first one.
    pub since: Time,
    /// Their number.
    pub attempts: u32,
    /// The time of the last one.
    pub last: Time,
    /// The time of the next one.
    pub next: Time,
    /// The reason of the last one.
    pub error: String,
}

/// The results of test notifications (`ctl notify test`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SinkTests {
    /// The results, by the name of the sink.
    pub sinks: Vec<SinkTest>,
}

document!(SinkTests);

/// The result of a test notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SinkTest {
    /// The name of the sink.
    pub name: String,
    /// `true` if the sink has taken it.
    pub delivered: bool,
    /// The reason why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
