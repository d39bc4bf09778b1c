//! Two of three members of etcd do not run: their hosts are repaired in parallel.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::wait;

use super::losses::{kill, wait_for_one_holder};
use super::standbys::STANDBYS;
use super::{BACK, is_complete, same_content};
use crate::interrupted::Running;
use crate::test::Counts;

/// Limit for a highstate to succeed: a kubelet may wait for minutes before it restarts an API
/// server, which is longer than the wait of a state.
const REPAIRED: Duration = Duration::from_secs(900);

/// Two kubelets are stopped and their members killed. One after the other, each host would wait for
/// an API server that needs the members of the hosts after it; a highstate repairs them in
/// parallel, says so, and the cluster serves afterwards.
pub(super) fn repaired_in_parallel(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    for name in STANDBYS {
        let host = cluster.host(name)?;
        host.run(&["systemctl", "stop", "kubelet"])?;
        kill(host, "etcd")?;
    }
    let (mut succeeded, said) = highstate(cluster)?;
    let line = said
        .lines()
        .find(|line| line.contains("repaired in parallel"));
    let line = line.with_context(|| format!("hosts were repaired one by one: {said}"))?;
    println!("  {line}");
    for part in [
        "etcd has no quorum and is repaired without waiting",
        "cp-1",
        "cp-2",
        "cp-3",
    ] {
        ensure!(line.contains(part), "{part} is not in: {line}");
    }
    wait::until("a highstate to succeed", REPAIRED, || {
        if !succeeded {
            let (ended, said) = highstate(cluster)?;
            ensure!(ended, "{said}");
            succeeded = true;
        }
        is_complete(cluster)
    })?;
    wait_for_one_holder(cluster)?;
    same_content(cluster)?;
    // With a quorum etcd is checked again, and nothing is left to do.
    wait::until("a highstate with nothing to do", BACK, || {
        let planned = first.output(&["ctl", "highstate", "--test", "--exit-code"])?;
        ensure!(
            planned.status.success(),
            "{}",
            String::from_utf8_lossy(&planned.stdout)
        );
        Ok(())
    })?;
    Ok(Counts::ONE)
}

/// Runs a highstate of all hosts; returns whether it succeeded, and its output.
fn highstate(cluster: &Cluster) -> Result<(bool, String)> {
    let running = Running::start(&cluster.bootstrap, &["ctl", "highstate"])?;
    let (status, said) = running.ended(|| Ok(()))?;
    println!("  the highstate ended with {status}");
    Ok((status.success(), said))
}
