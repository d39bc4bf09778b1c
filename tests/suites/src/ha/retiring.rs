//! Planned moves of the master to a standby: there and back, and permanently, with its host.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use halite_api::{Job, JobOutcome};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;

use super::losses::{ApiPath, GAP, Measured, VIP, under_writes};
use super::standbys::{answers, keys, nothing_to_do, stands_by, wait_for_followers};
use super::{etcdctl, same_content_of};
use crate::bare::{has_no_data, is_bare, wait_until_bare};
use crate::checks::refused;
use crate::ctl_answer;
use crate::firewall;
use crate::test::Counts;

const RETIRE: [&str; 4] = ["ctl", "master", "retire", "--yes"];
const CONFIRMED: [&str; 3] = ["--force", "--cluster", "demo"];

/// Moves the master, and prints the command's output.
pub(super) fn retire(on: &Host, words: &[&str]) -> Result<String> {
    let said = on.run(&[&RETIRE[..], words].concat())?;
    println!("  {}", said.trim().replace('\n', "\n  "));
    Ok(said)
}

/// The command is killed in the middle, and continues the same move when repeated. All acknowledged
/// data is there, and the host that had the master follows the next one. Then the master moves
/// back, by a command on that host.
pub(super) fn moves_and_returns(cluster: &Cluster) -> Result<Counts> {
    let (first, next) = (&cluster.bootstrap, cluster.host("cp-2")?);
    wait_for_followers(first, &["cp-2", "cp-3"])?;
    let words = ["cmd", "worker-1", "--", "echo", "acknowledged"];
    let done: JobOutcome = ctl_answer::of(first, &words)?;
    let job = done.job.context("no job")?.to_string();
    let before = keys(first)?;
    let there = ["--to", "cp-2", "--keep"];
    let measured = under_writes(cluster, ApiPath::Vip, "moved", |_| {
        let line = [&RETIRE[..], &there].concat().join(" ");
        first.sh(&format!("timeout -s KILL 2 {line} || true"))?;
        retire(first, &there).map(drop)
    })?;
    measured.check("the master moves", GAP)?;
    let masters = wait_for_followers(next, &["cp-1", "cp-3"])?;
    let epoch = masters.epoch.context("no epoch")?;
    let shown: Job = ctl_answer::of(next, &["job", "show", &job])?;
    let shown = halite_api::to_text(&shown);
    ensure!(shown.contains("acknowledged"), "{shown}");
    let now = keys(next)?;
    ensure!(now == before, "{before:?}, then {now:?}");
    // The host that had it stands by, and accepts no order.
    stands_by(first)?;
    let again = ["ctl", "bootstrap", "--yes"];
    refused(
        first,
        &again,
        &["standby of the master", "`ctl highstate` repairs"],
    )?;

    retire(first, &["cp-2", "--to", "cp-1", "--keep"])?;
    let masters = wait_for_followers(first, &["cp-2", "cp-3"])?;
    ensure!(masters.epoch == Some(epoch + 1), "{masters:?}");
    nothing_to_do(first, &["cp-1", "cp-2", "worker-1"])?;
    Ok(Counts::ONE)
}

/// Moves everything off the first host, which leaves permanently, while a client writes.
fn retired(cluster: &Cluster) -> Result<Measured> {
    under_writes(cluster, ApiPath::Vip, "retired", |_| {
        let words = [&["--to", "cp-2", "--wipe-data"][..], &CONFIRMED].concat();
        retire(&cluster.bootstrap, &words).map(drop)
    })
}

/// Moves everything off the first host, which leaves permanently, and waits until the next master
/// manages the others.
///
/// # Errors
/// An acknowledged write is missing, the host is not bare, or another one is not managed.
pub fn first_host_leaves(cluster: &Cluster) -> Result<Measured> {
    let (first, next) = (&cluster.bootstrap, cluster.host("cp-2")?);
    wait_for_followers(first, &["cp-2", "cp-3"])?;
    let measured = retired(cluster)?;
    wait_until_bare(first)?;
    wait_for_followers(next, &["cp-3"])?;
    same_content_of(cluster, &[next, cluster.host("cp-3")?])?;
    answers(cluster, next, &first.spec.name)?;
    Ok(measured)
}

/// The first host hands the master over and leaves permanently, while a client writes. At no moment
/// is a port open that the roles do not open.
pub(super) fn leaves(cluster: &Cluster) -> Result<Counts> {
    let (first, next) = (&cluster.bootstrap, cluster.host("cp-2")?);
    wait_for_followers(first, &["cp-2", "cp-3"])?;
    for (words, parts) in [
        (
            &["--to", "worker-1", "--force", "--cluster", "prod"][..],
            ["worker-1 is not a standby", "which is demo"],
        ),
        (
            &["cp-3", "--to", "cp-2", "--force", "--cluster", "demo"],
            ["cp-3 does not have the master", "cp-1"],
        ),
    ] {
        refused(first, &[&RETIRE[..], words].concat(), &parts)?;
    }
    let measured = firewall::during(cluster, VIP, &["cp-1", "cp-2"], &["cp-1"], || {
        retired(cluster)
    })?;
    measured.check("the first host leaves", GAP)?;
    wait_until_bare(first)?;
    is_bare(first, "cp-[23]|worker-1|api[.]demo")?;
    has_no_data(first)?;

    // Repeated on the next master it has nothing to do, and names no other host.
    let said = retire(next, &[&["cp-1"][..], &CONFIRMED].concat())?;
    ensure!(said.contains("cp-1 has left"), "{said}");
    wait_for_followers(next, &["cp-3"])?;
    let list = etcdctl(cluster, next, &["member", "list"])?;
    let members = list["members"].as_array().context("no list of members")?;
    let members: BTreeSet<&str> = members.iter().filter_map(|m| m["name"].as_str()).collect();
    ensure!(members == BTreeSet::from(["cp-2", "cp-3"]), "{members:?}");
    same_content_of(cluster, &[next, cluster.host("cp-3")?])?;
    let nodes = cluster.kubectl_on("cp-2", &["get", "nodes", "-o", "name"])?;
    ensure!(!nodes.contains("cp-1"), "{nodes}");
    answers(cluster, next, &first.spec.name)?;
    nothing_to_do(next, &["cp-2", "cp-3", "worker-1", "master"])?;
    Ok(Counts::ONE)
}
