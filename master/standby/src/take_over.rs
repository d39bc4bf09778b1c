//! The order of a master to one of its standbys to take its place, on the standby's host.
//!
//! It is on disk before the standby acknowledges it. The next start of the daemon carries it out
//! ([`super::promote::Promotion::take_over`]), and the order becomes a record of the master's
//! previous host, with which `ctl master retire` continues.

use std::path::{Path, PathBuf};

use halite_core::config::Config;
use halite_proto::v1::TakeOver;
use halite_store::Millis;
use serde::{Deserialize, Serialize};

use super::directory;
use super::disk::{CopyError, read_json, remove, write_json};

/// The order, or its record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The epoch of the master on this host.
    pub epoch: u64,
    /// The host that had the master.
    pub from: String,
    /// `true` if that host leaves the cluster next.
    pub leaves: bool,
    /// The time at which this host took over; 0 before that.
    #[serde(default)]
    pub taken: Millis,
}

fn order(root: &Path) -> PathBuf {
    root.join("take-over.json")
}

fn record(config: &Config) -> PathBuf {
    config.state_dir.join("taken-over.json")
}

/// Stores the order beside the copy in `root`; it is on disk when this returns.
pub(super) fn write_order(root: &Path, wire: &TakeOver) -> Result<(), CopyError> {
    let wanted = Order {
        epoch: wire.epoch,
        from: wire.from.clone(),
        leaves: wire.leaves,
        taken: 0,
    };
    write_json(&order(root), &wanted)
}

/// The order that was not carried out yet.
///
/// # Errors
/// The order cannot be read.
pub fn waiting(config: &Config) -> Result<Option<Order>, CopyError> {
    read_json(&order(&directory(config)))
}

/// Records that this host has taken over.
pub(super) fn write_record(config: &Config, taken: &Order) -> Result<(), CopyError> {
    write_json(&record(config), taken)
}

/// The record of the master's last hand-over to this host.
///
/// # Errors
/// The record cannot be read.
pub fn taken(config: &Config) -> Result<Option<Order>, CopyError> {
    read_json(&record(config))
}

/// Removes the record of the hand-over from this host: it has left, or is declared again.
///
/// # Errors
/// The record cannot be read or removed.
pub fn forget(config: &Config, from: &str) -> Result<(), CopyError> {
    match taken(config)? {
        Some(found) if found.from == from => remove(&record(config)),
        _ => Ok(()),
    }
}
