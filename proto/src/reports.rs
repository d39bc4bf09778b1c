//! What scheduled work on a host leaves behind for `ctl status`.
//!
//! Each work has a name and up to three files in one directory of its host: `NAME.since` was made
//! when it was scheduled, `NAME.json` says how its last run ended, and `NAME.failed` was touched
//! when systemd last saw it fail, which may have been before it could write anything. The minion
//! passes on what is there as a grain.

use serde::{Deserialize, Serialize};

/// The directory on a host. Root alone writes there.
pub const DIRECTORY: &str = "/var/lib/halite/reports";

/// The grain: each file by its name. Of `NAME.json` it has the content, of any other the time of
/// the last change, in milliseconds since 1970.
pub const GRAIN: &str = "reports";

/// The name of the backup of the site's own registry.
pub const REGISTRY_BACKUP: &str = "registry-backup";

/// The name of the work that reads the newest of these backups.
pub const REGISTRY_VERIFY: &str = "registry-verify";

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// When, in milliseconds since 1970.
    pub ended: i64,
    /// The directory that it worked with.
    pub directory: String,
    /// Why it was no success, in a sentence without its end.
    pub failure: Option<String>,
    /// The newest good result, of this run or of one before.
    pub good: Option<Good>,
}

/// A result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Good {
    /// What it is called.
    pub name: String,
    /// When it was made, in milliseconds since 1970.
    pub time: i64,
}
