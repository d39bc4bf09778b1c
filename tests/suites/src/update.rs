//! The minion's update of itself: a new program that does not reach the master is rolled back.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use halite_lab::cluster::{CTL, Cluster, WORKER};
use halite_lab::wait;

use super::repair;
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[Test {
    name: "update: a minion that does not reach the master is rolled back",
    run: taken_back,
}];

/// Declares another program as the minion's. Everything else is as in the tree.
const STATE: &str = "\
include:
  - halite.services.minion

extend:
  /usr/local/bin/halite-minion:
    file.managed:
      - source: salt://custom/other-minion
";

/// A program that runs, and reaches no master.
const PROGRAM: &str = "#!/bin/sh\nexec sleep 86398\n";

const RECORD: &str = "/var/lib/halite/minion-update.json";

/// Limit for the new program, which has a minute, and for the previous one to be back.
const LIMIT: Duration = Duration::from_secs(120);

fn taken_back(cluster: &Cluster) -> Result<Counts> {
    let custom = cluster.bootstrap.root().join("etc/halite/custom");
    ensure!(!custom.exists(), "{} already exists", custom.display());
    fs::create_dir_all(&custom)?;
    fs::write(custom.join("update.sls"), STATE)?;
    fs::write(custom.join("other-minion"), PROGRAM)?;
    let result = updated(cluster);
    fs::remove_dir_all(&custom)?;
    result?;
    // The record is removed by the next highstate.
    repair::highstate(cluster, &[WORKER])?;
    ensure!(!cluster.worker.file(RECORD).exists(), "{RECORD} is left");
    repair::quiet(cluster)?;
    Ok(Counts::ONE)
}

fn updated(cluster: &Cluster) -> Result<()> {
    let host = &cluster.worker;
    let program = "sha256sum < /usr/local/bin/halite-minion";
    let before = host.sh(program)?;
    let apply = [CTL, "apply", WORKER, "custom.update"];
    cluster.bootstrap.run(&apply)?;
    wait::until("the other program to run", LIMIT, || {
        host.run(&["pgrep", "-f", "sleep 86398"]).map(drop)
    })?;
    wait::until("the previous minion", LIMIT, || {
        cluster.bootstrap.run(&[CTL, "ping", WORKER]).map(drop)
    })?;
    ensure!(
        host.sh(program)? == before,
        "the program is not the previous one"
    );
    wait::until("the status to name it", LIMIT, || {
        let status = cluster.bootstrap.output(&[CTL, "status"])?;
        let status = String::from_utf8_lossy(&status.stdout).into_owned();
        ensure!(
            status.contains(&format!("halite-minion on {WORKER} was rolled back")),
            "{status}"
        );
        Ok(())
    })
}
