//! The update of this minion that was rolled back, if the last one was.

use std::path::Path;

use halite_host_reports::update::{RECORD, Reverted};
use serde_json::Value;

use crate::host::linux::files;

/// The record below a root.
pub(super) fn read(root: &Path) -> Option<Value> {
    let record = root.join(RECORD.trim_start_matches('/'));
    let text = files::read(&record).ok().flatten()?;
    let reverted: Reverted = serde_json::from_slice(&text).ok()?;
    serde_json::to_value(reverted).ok()
}
