//! Upgrades of three control planes and a worker to the next minor version of Kubernetes, and then
//! to a later patch release. A rotation of their CA follows.

use std::time::Duration;

use anyhow::Result;
use halite_lab::cluster::{Cluster, NEWER};
use halite_lab::layout::HA;
use halite_lab::progress::Board;
use halite_suites::ha::{self, Since};
use halite_upstream::versions::{OLDER, SHIPPED};
use halite_upstream::{ISO, prepare};

use super::{Table, rotation, seconds};

/// The time of an upgrade to the next minor version, and the longest gap of a write loop.
const MINOR: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(1));
/// The same to a patch release.
const PATCH: (Duration, Duration) = (Duration::from_secs(180), Duration::from_millis(500));
/// The version of the bundle with the patch release.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-patch");

/// Makes a cluster of the previous minor version in the lab of that name, upgrades it, and rotates
/// its CA. Leaves nothing running.
pub(super) fn measure(name: &str, table: &mut Table, progress: &mut dyn FnMut(&str)) -> Result<()> {
    progress("three control planes and a worker with the previous minor version");
    let cluster = prepare::cluster_beside(name, &HA, &OLDER, Some(&SHIPPED), &Board::plain())?;
    let first = &cluster.bootstrap;
    first.run(&["ctl", "bundle", "add", &format!("{NEWER}/{ISO}")])?;
    let minors = format!("{} to {}", OLDER.minor(), SHIPPED.minor());
    progress("their upgrade");
    row(
        &cluster,
        &format!("upgrade from {minors}"),
        &SHIPPED.bundle(),
        MINOR,
        table,
    )?;
    progress("their upgrade to a patch release");
    ha::add_release(&cluster, &SHIPPED, VERSION, 1)?;
    row(
        &cluster,
        "upgrade to a patch release",
        VERSION,
        PATCH,
        table,
    )?;
    let since = Since::now(first)?;
    first.run(&["ctl", "upgrade", VERSION, "--yes"])?;
    let touched = since.touched()?;
    let found = format!("{} of {} changed", touched.len(), cluster.hosts().len());
    table.aim(
        "hosts that have the bundle, in the same upgrade again",
        &found,
        "0",
        touched.is_empty(),
    );
    progress("a rotation of their CA of Kubernetes");
    rotation::measure(&cluster, table)?;
    cluster.nothing_tried_to_leave()?;
    cluster.lab.down()
}

fn row(
    cluster: &Cluster,
    what: &str,
    version: &str,
    (most, gap): (Duration, Duration),
    table: &mut Table,
) -> Result<()> {
    let (time, measured) = ha::timed_upgrade(cluster, version)?;
    let aim = format!("≤ {} s", most.as_secs());
    let what = format!("{what}, three control planes and a worker");
    table.aim(&what, &seconds(time), &aim, time <= most);
    table.gap(
        &format!("longest gap of a write loop, {what}"),
        &measured,
        gap,
    );
    Ok(())
}
