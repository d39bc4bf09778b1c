//! The master's store is damaged: the master stops, says so, and the commands of the guide bring its daily copy back.

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
/// Limit for the master to have made its copy, or to have said what is damaged.
const SAID: Duration = Duration::from_secs(60);

/// The file is no database any more. What was in the copy is there afterwards: the keys of both hosts, which call the
/// master again, and what it knows of them.
pub(super) fn comes_back(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let commands = guide::block("disaster.md", HEADING, "cp -p")?;
    copied_now(host)?;
    // Its log could hold pages that are whole. It is written into the file when the master ends.
    host.sh(&format!(
        "systemctl stop halite-master && rm -f {STORE}-wal {STORE}-shm && printf 'this was a database once' > {STORE} && \
         systemctl start --no-block halite-master"
    ))?;
    wait::until("the master to say what is damaged", SAID, || {
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
        ensure!(other.is_none(), "it does not say {other:?}: {log}");
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

/// Waits until the copy beside the store is of now: a master that starts makes one.
fn copied_now(host: &Host) -> Result<()> {
    let copy = host.file(&format!("{STORE}.backup"));
    let before = fs::metadata(&copy)?.modified()?;
    host.run(&["systemctl", "restart", "halite-master"])?;
    wait::until("the master to copy its store", SAID, || {
        let now = fs::metadata(&copy)?.modified()?;
        ensure!(now != before, "the copy is that of before");
        Ok(())
    })
}
