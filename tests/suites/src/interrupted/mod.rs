//! Commands of `ctl` that are interrupted at their numbered boundaries. A boundary is the record
//! that a step of the command has ended; the next step starts at this moment.

mod running;
mod steps;

use anyhow::Result;
use halite_lab::host::Host;

pub(crate) use running::Running;
pub(crate) use steps::of as steps;

/// Kills `ctl`, if it still runs: it may have ended by itself after the last step.
pub(crate) fn kill_ctl(host: &Host) -> Result<()> {
    host.sh("pkill -KILL -x ctl || true").map(drop)
}
