//! What a host knows of its minion's program and of the last update of it: a new program that did not
//! reach the master, and was replaced by the one before.

use serde::{Deserialize, Serialize};

/// The grain with the [`Reverted`] of a host; absent where the last update went well.
pub const GRAIN: &str = "minion_update";

/// The grain with the SHA-256 (hex) of the program that the minion runs, whatever file is in its place
/// now.
pub const PROGRAM: &str = "minion_program";

/// The record's path.
pub const RECORD: &str = "/var/lib/halite/minion-update.json";

/// An update that was taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reverted {
    /// The time, in seconds since 1970.
    pub time: i64,
    /// SHA-256 (hex) of the program that did not reach the master.
    pub program: String,
    /// The time that it had, in seconds.
    pub seconds: u64,
    /// State of its unit at the end of that time, as systemd has it: `activating`, `failed`, …
    pub unit: String,
}
