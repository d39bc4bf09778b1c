//! Commands of `ctl` that are interrupted at their numbered boundaries. A boundary is the record
//! that a step of the command has ended; the next step starts at this moment.

mod repeated;
mod running;
mod series;
mod steps;

use anyhow::Result;
use halite_lab::host::Host;

pub(crate) use repeated::Repeated;
pub(crate) use running::Running;
pub(crate) use series::{in_series, one_run};
pub(crate) use steps::of as steps;

/// Kills `ctl`, if it still runs: it may have ended by itself after the last step.
pub(crate) fn kill_ctl(host: &Host) -> Result<()> {
    host.sh("pkill -KILL -x ctl || true").map(drop)
}
