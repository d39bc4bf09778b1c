//! An upgrade that takes the workers in batches.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use halite_api::{Job, RunOutcome, Time};
use halite_lab::cluster::Cluster;
use halite_lab::wait;
use halite_upstream::versions::NEWEST;

use super::settled;
use crate::cluster::PODS;
use crate::ctl_answer;
use crate::ha::{add_release, has_release, while_written};
use crate::interrupted::Running;
use crate::kills::jobs;
use crate::test::Counts;

/// The version of the bundle.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-batches");

/// The workers of the first batch.
const BATCH: [&str; 2] = ["worker-1", "worker-2"];

/// The hosts of each turn.
const TURNS: [&[&str]; 4] = [&["cp-1"], &["master"], &BATCH, &["worker-3"]];

/// The workload, of which its disruption budget keeps one replica.
const WORKLOAD: &str = "batches";

/// The upgrade has two of the three workers out at the same time, and never more. One replica of a
/// workload at least is always ready, and a client writes all the time.
///
/// # Errors
/// The upgrade fails, or one of this does not hold.
pub(super) fn of_two(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let kubernetes = add_release(cluster, &NEWEST, VERSION, 1)?;
    let options = ["upgrade", VERSION, "--batch", "2"];
    let tested: RunOutcome = ctl_answer::of(host, &[&options[..], &["--test"]].concat())?;
    let plan = tested.plan.context("no plan")?;
    let turns: Vec<_> = plan.turns.iter().map(|turn| &turn.hosts).collect();
    ensure!(turns == TURNS, "the turns are {turns:?}");

    workload(cluster)?;
    let (mut largest, mut without) = (BTreeSet::new(), 0);
    let words = [&["ctl"], &options[..], &["--yes"]].concat();
    let written = while_written(cluster, host, "batches", || {
        let (status, said) = Running::start(host, &words)?.ended(|| {
            // While the API server restarts, this fails, and is repeated.
            let out = out(cluster)?;
            if out.len() > largest.len() {
                largest = out;
            }
            if ready_replicas(cluster)? == 0 {
                without += 1;
            }
            Ok(())
        })?;
        println!("  {}", said.trim().replace('\n', "\n  "));
        ensure!(status.success(), "the upgrade: {said}");
        Ok(())
    })?;
    println!("  {}", written.summary());
    ensure!(
        largest.iter().eq(BATCH),
        "the most workers that were out at the same time are {largest:?}"
    );
    ensure!(without == 0, "no replica was ready, {without} times");
    at_the_same_time(cluster)?;

    for host in cluster.hosts() {
        // The API shows the pod of a new manifest some time after the host runs it.
        wait::until("the release on a host", PODS, || {
            has_release(cluster, host, &kubernetes)
        })?;
    }
    cluster.kubectl(&["delete", "deployment,poddisruptionbudget", WORKLOAD])?;
    settled(cluster)?;
    Ok(Counts::ONE)
}

/// Two replicas, of which one may be evicted at a time.
fn workload(cluster: &Cluster) -> Result<()> {
    let image = format!("--image=registry.k8s.io/pause:{}", NEWEST.pause);
    cluster.kubectl(&["create", "deployment", WORKLOAD, &image, "--replicas=2"])?;
    let selector = format!("--selector=app={WORKLOAD}");
    let budget = ["create", "poddisruptionbudget", WORKLOAD, &selector];
    cluster.kubectl(&[&budget[..], &["--min-available=1"]].concat())?;
    let rollout = ["rollout", "status", "--timeout=120s", "deployment"];
    cluster.kubectl(&[&rollout[..], &[WORKLOAD]].concat())?;
    Ok(())
}

/// The number of ready replicas of the workload.
fn ready_replicas(cluster: &Cluster) -> Result<u32> {
    let path = "jsonpath={.status.readyReplicas}";
    let ready = cluster.kubectl(&["get", "deployment", WORKLOAD, "-o", path])?;
    match ready.trim() {
        // The field is absent instead of zero.
        "" => Ok(0),
        number => Ok(number.parse()?),
    }
}

/// The workers that take no pods: cordoned, or not Ready.
fn out(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let first = cluster.bootstrap.spec.name.as_str();
    let nodes = cluster.kubectl(&["get", "nodes", "--no-headers"])?;
    let names = nodes.lines().filter_map(|line| {
        let mut cells = line.split_whitespace();
        let (name, status) = (cells.next()?, cells.next()?);
        (name != first && status != "Ready").then(|| name.to_owned())
    });
    Ok(names.collect())
}

/// Fails unless both workers of the batch ran the highstate from the bundle at the same time.
fn at_the_same_time(cluster: &Cluster) -> Result<()> {
    let first = &cluster.bootstrap;
    let is_of_the_batch = |job: &&Job| {
        let minions = job.minions.iter().map(|minion| minion.as_str());
        let is_highstate = job.function == "state.highstate" && !job.test;
        is_highstate
            && job.bundle.as_deref() == Some(VERSION)
            && minions.collect::<BTreeSet<_>>() == BTreeSet::from(BATCH)
    };
    let jobs = jobs::list(first)?;
    let job = jobs.iter().find(is_of_the_batch);
    let job = job.context("no highstate of both workers of the batch")?;
    let parts = jobs::show(first, &job.job)?.returns;
    let parts = parts.context("no returns")?;
    let times = parts.iter().map(|part| part.started.zip(part.ended));
    let times: Option<Vec<(Time, Time)>> = times.collect();
    let times = times.with_context(|| format!("a part has no times: {parts:?}"))?;
    let [(one, one_ended), (other, other_ended)] = times[..] else {
        bail!("the job has not two parts: {parts:?}");
    };
    ensure!(
        one < other_ended && other < one_ended,
        "one worker followed the other: {times:?}"
    );
    Ok(())
}
