//! The promised times, which the bench asserts.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use halite_lab::command::this_program;
use halite_lab::progress::Board;
use halite_upstream::prepare;
use halite_upstream::versions::{OLDER, SHIPPED};

use crate::test::{Counts, Test};

/// Tests of `--full`, on their own lab, while no other hosts run.
pub(super) const FULL: &[Test<()>] = &[Test {
    name: "bench: losses, joins and departures of hosts take no longer than promised",
    run: of_hosts,
}];

fn of_hosts((): &()) -> Result<Counts> {
    // Built here, where the watchdog knows a build from a test.
    for release in [&SHIPPED, &OLDER] {
        prepare::iso_directory_of(release, &Board::plain())?;
    }
    // The bench uses the suites, so the suites start it as a program.
    let status = Command::new(this_program())
        .args(["bench", "ha"])
        .status()
        .context("cannot start cargo lab bench ha")?;
    ensure!(status.success(), "cargo lab bench ha ended with {status}");
    Ok(Counts::ONE)
}
