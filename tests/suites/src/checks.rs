//! Checks that several suites make.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};
use halite_lab::host::Host;
use halite_lab::wait;

use crate::repair::highstate;

/// Limit until the hosts have nothing to do: a kubelet may renew its certificate first, and waits
/// for up to five minutes before it restarts a program that lost its lease.
pub(crate) const QUIET: Duration = Duration::from_secs(420);

/// Limit for the master to notice the end of a minion.
const AWAY: Duration = Duration::from_secs(180);

/// Runs a command that must fail with a message that contains all of the given texts.
pub(super) fn refused<S: AsRef<str>>(host: &Host, command: &[S], parts: &[&str]) -> Result<()> {
    let command: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
    let output = host.output(&command)?;
    let said = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    ensure!(
        output.status.code() == Some(1) && parts.iter().all(|part| said.contains(part)),
        "{} ended with {}, should have printed {parts:?} and printed: {said}",
        command.join(" "),
        output.status
    );
    Ok(())
}

/// Runs a highstate that changes only the files that nginx serves, and their copies on an
/// additional serving host.
pub(super) fn only_served(cluster: &Cluster) -> Result<()> {
    let node = cluster
        .bootstrap
        .file(&format!("/etc/halite/nodes/{WORKER}.yaml"));
    let roles = fs::read_to_string(node).unwrap_or_default();
    let copies = roles
        .lines()
        .any(|line| line.starts_with("roles:") && line.contains("registry"));
    let changed = highstate(cluster, &[])?.changed;
    let others: Vec<_> = changed
        .iter()
        .filter(|tag| {
            // nginx keeps answering with its old configuration for a moment after a reload.
            let of_nginx = tag.contains("nginx") || tag.contains("bundle-server-answers");
            let of_copies = tag.ends_with("[/var/lib/halite/bundles]") || tag.contains("[bundle-");
            let first = tag.starts_with(&format!("{BOOTSTRAP}: ")) && of_nginx;
            let further =
                tag.starts_with(&format!("{WORKER}: ")) && copies && (of_nginx || of_copies);
            !first && !further
        })
        .collect();
    ensure!(
        others.is_empty(),
        "another bundle on the site changed {others:?}"
    );
    Ok(())
}

/// Waits until the master has noticed that the worker's minion has stopped.
pub(super) fn wait_until_worker_is_away(cluster: &Cluster) -> Result<()> {
    wait::until("the worker's minion to be away", AWAY, || {
        let ping = cluster.bootstrap.output(&[CTL, "ping", WORKER])?;
        ensure!(!ping.status.success(), "it answers");
        Ok(())
    })
}

/// Waits until a highstate of all hosts would change nothing.
pub(super) fn nothing_to_do(first: &Host) -> Result<()> {
    wait::until("a highstate with nothing to do", QUIET, || {
        let planned = first.output(&[CTL, "highstate", "--test", "--exit-code"])?;
        ensure!(
            planned.status.success(),
            "{}",
            String::from_utf8_lossy(&planned.stdout)
        );
        Ok(())
    })
}
