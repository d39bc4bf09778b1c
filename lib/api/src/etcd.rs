//! The members of etcd.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::document::document;
use crate::word::words;

/// The members of etcd (`ctl etcd status`; in `ctl status` without `defrag`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdStatus {
    /// The reason why no member answers; then the other fields have no values. Absent if one
    /// answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// `true` if etcd is on hosts outside the cluster, which this cluster does not change.
    pub external: bool,
    /// The state of the quorum, in one sentence. Absent if no member answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quorum: Option<String>,
    /// The number of members that vote.
    pub voters: usize,
    /// The number of voters that serve.
    pub serving: usize,
    /// The members.
    pub members: Vec<EtcdMember>,
    /// The alarms that etcd has raised.
    pub alarms: Vec<Alarm>,
    /// The problems, one sentence each.
    pub problems: Vec<String>,
    /// The defragmentation by the master. Absent in `ctl status`, and if etcd is external.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defrag: Option<DefragSchedule>,
}

document!(EtcdStatus);

words! {
    /// The role of a member.
    EtcdMemberRole {
        /// The leader.
        Leader = "leader",
        /// A voter that follows the leader.
        Follower = "follower",
        /// A member that does not vote yet.
        Learner = "learner",
    }
}

/// A member of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdMember {
    /// Its name, or its peer address before it has started.
    pub name: String,
    /// Its id, as a hexadecimal number.
    pub id: String,
    /// The role: `leader`, `follower` or `learner`.
    pub role: EtcdMemberRole,
    /// Its addresses for other members.
    pub peer: Vec<String>,
    /// Its addresses for clients.
    pub client: Vec<String>,
    /// The version of etcd. Absent if it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The size of its database in bytes. Absent if it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db_size: Option<u64>,
    /// The bytes of its database that are in use. Absent if it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db_in_use: Option<u64>,
    /// The quota of its database in bytes. Absent if it does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub db_quota: Option<u64>,
    /// The log entries that it lacks. Absent if it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// The reason why it does not serve. Absent if it serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

words! {
    /// A kind of alarm.
    AlarmKind {
        /// The database has reached its quota; etcd accepts no writes.
        NoSpace = "NOSPACE",
        /// The data of a member differs from the others'.
        Corrupt = "CORRUPT",
    }
}

/// An alarm of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Alarm {
    /// The name of the member.
    pub member: String,
    /// The alarm: `NOSPACE` or `CORRUPT`.
    pub alarm: AlarmKind,
}

/// The declared defragmentation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefragSchedule {
    /// The time by the clock of the master's host: `Sun 03:30`, `03:30` or `never`.
    pub at: String,
    /// The free part of a member's database above which it is defragmented, for example `45%`.
    pub above: String,
    /// The time of the next defragmentation. Absent with `never`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Time>,
}
