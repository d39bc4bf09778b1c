//! A host's knowledge of its minion's program and of its last update: a new program that did not
//! reach the master and was replaced by the previous one.

use serde::{Deserialize, Serialize};

/// The grain with the [`Reverted`] of a host; absent if the last update succeeded.
pub const GRAIN: &str = "minion_update";

/// The grain with the SHA-256 (hex) of the program that the minion runs, even if its file has since
/// been replaced.
pub const PROGRAM: &str = "minion_program";

/// The record's path.
pub const RECORD: &str = "/var/lib/halite/minion-update.json";

/// An update that was reverted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reverted {
    /// The time, in seconds since 1970.
    pub time: i64,
    /// SHA-256 (hex) of the program that did not reach the master.
    pub program: String,
    /// The timeout within which it had to reach the master, in seconds.
    pub seconds: u64,
    /// The state of its unit after that time, in systemd's words: `activating`, `failed`, …
    pub unit: String,
}
