//! Reports of scheduled work on a host, for `ctl status`.
//!
//! Each scheduled unit has a name and up to three files in one directory of its host: `NAME.since`
//! is created when it is scheduled, `NAME.json` contains the outcome of its last run, and
//! `NAME.failed` is touched when systemd sees it fail, which may be before it could write a report.
//! The minion reports these files as a grain.

use serde::{Deserialize, Serialize};

/// The directory on a host. Root alone writes there.
pub const DIRECTORY: &str = "/var/lib/halite/reports";

/// The grain: each file by its name, with the content of `NAME.json` and, for any other file, the
/// time of its last change in milliseconds since 1970.
pub const GRAIN: &str = "reports";

/// The name of the site registry's backup.
pub const REGISTRY_BACKUP: &str = "registry-backup";

/// The name of the verification of the newest backup.
pub const REGISTRY_VERIFY: &str = "registry-verify";

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The time of its end, in milliseconds since 1970.
    pub ended: i64,
    /// The directory of the backups.
    pub directory: String,
    /// The reason of a failure, without a full stop.
    pub failure: Option<String>,
    /// The newest good result, of this run or an earlier one.
    pub good: Option<Good>,
}

/// A good result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Good {
    /// The name of the result.
    pub name: String,
    /// The time at which it was made, in milliseconds since 1970.
    pub time: i64,
}
