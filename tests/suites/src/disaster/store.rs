//! The master's store is damaged: the master stops and reports it, and the commands of the guide
//! restore its daily copy.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};
use halite_lab::host::Host;
use halite_lab::wait;

use crate::checks::{nothing_to_do, refused};
use crate::guide;
use crate::kills::{master_answers, once};
use crate::test::Counts;

const HEADING: &str = "## The master's store is damaged";
const STORE: &str = "/var/lib/halite/master/store.db";
/// Limit for the master to have made its copy, or to have reported the damage.
const SAID: Duration = Duration::from_secs(60);

/// The file is no longer a database. Everything in the copy is there afterwards: the keys of both
/// hosts, which call the master again, and its data about them.
pub(super) fn comes_back(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let commands = guide::block("disaster.md", HEADING, "cp -p")?;
    copied_now(host)?;
    // Its log could hold intact pages. It is written into the file when the master stops.
    host.sh(&format!(
        "systemctl stop halite-master && rm -f {STORE}-wal {STORE}-shm && printf 'this was a database once' > {STORE} && \
         systemctl start --no-block halite-master"
    ))?;
    wait::until("the master to report the damage", SAID, || {
        let log = host.run(&[
            "journalctl",
            "-u",
            "halite-master",
            "-n",
            "50",
            "--no-pager",
            "-o",
            "cat",
        ])?;
        let said = |line: &str| log.contains(line);
        ensure!(said(&format!("{STORE} is damaged")), "{log}");
        let other = commands.lines().find(|line| !said(line));
        ensure!(other.is_none(), "it does not report {other:?}: {log}");
        Ok(())
    })?;
    refused(host, &[CTL, "key", "list"], &[])?;
    host.sh(&commands)?;
    master_answers(host)?;
    once(host, &[BOOTSTRAP, WORKER])?;
    host.run(&["rm", "-r", &format!("{STORE}.damaged")])?;
    nothing_to_do(host)?;
    Ok(Counts::ONE)
}

/// Waits until the copy next to the store is current: a master makes one when it starts.
fn copied_now(host: &Host) -> Result<()> {
    let copy = host.file(&format!("{STORE}.backup"));
    let before = fs::metadata(&copy)?.modified()?;
    host.run(&["systemctl", "restart", "halite-master"])?;
    wait::until("the master to copy its store", SAID, || {
        let now = fs::metadata(&copy)?.modified()?;
        ensure!(now != before, "the copy is still the previous one");
        Ok(())
    })
}
