//! Reports that scheduled work leaves on a host, and the host's knowledge of its etcd member, the
//! update of its minion, its addresses and certificates, and its pod network, for `ctl status`.
//!
//! Each kind of work has a name and up to three files in one directory of its host: `NAME.since`
//! was created when the work was scheduled, `NAME.json` contains the [`Report`] of its last run,
//! and `NAME.failed` was touched when systemd last saw a run fail, perhaps before that run could
//! write a report. The minion sends these files to the master as a grain.
//!
//! The crate only describes the files. It neither reads nor writes them, so that the minion can use
//! it at no cost.

pub mod etcd;
pub mod etcd_log;
pub mod health;
pub mod pod_network;
pub mod update;

use serde::{Deserialize, Serialize};

/// The directory of the reports on a host. Only root writes to it.
pub const DIRECTORY: &str = "/var/lib/halite/reports";

/// The grain with the reports: a mapping from file name to value. The value of `NAME.json` is its
/// content; that of any other file is its modification time, in milliseconds since 1970.
pub const GRAIN: &str = "reports";

/// The name of the work that backs up the site registry.
pub const REGISTRY_BACKUP: &str = "registry-backup";

/// The name of the work that verifies the newest of these backups.
pub const REGISTRY_VERIFY: &str = "registry-verify";

/// The name of the work that backs up the cluster.
pub const BACKUP: &str = "backup";

/// The name of the work that verifies the newest of these backups.
pub const BACKUP_VERIFY: &str = "backup-verify";

/// The outcome of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunReport {
    /// The time at which it ended, in milliseconds since 1970.
    pub ended: i64,
    /// The directory that the run worked on.
    pub directory: String,
    /// The reason for a failure, as a sentence without its full stop.
    pub failure: Option<String>,
    /// The newest good result, of this run or an earlier one.
    pub good: Option<Good>,
    /// `true` if there was nothing for the run to work on yet, which is its failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nothing: bool,
}

/// A good result of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Good {
    /// Its name.
    pub name: String,
    /// The time of its creation, in milliseconds since 1970.
    pub time: i64,
    /// The number of keys in an etcd that was started from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
}
