//! A site of an earlier Halite is upgraded to the present one, as the guide describes: the master
//! first, then the minions. Migrations of the store and new messages lie between. The number of the
//! protocol is the same: hosts with an earlier one are tested in one process only.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, Cluster, NEWER, WORKER, bundle_place};
use halite_lab::host::Host;
use halite_lab::layout::{Layout, TWO};
use halite_lab::progress::Board;
use halite_lab::{earlier, wait};
use halite_upstream::versions::{EARLIER, NEWEST, Release};
use halite_upstream::{ISO, prepare};
use serde_json::{Value, json};

use crate::bundles::runs;
use crate::checks::QUIET;
use crate::cluster::{PODS, nothing_left};
use crate::repair::highstate_by;
use crate::site::Site;
use crate::test::{Counts, Test, cases, sequence};

/// The name of its own lab: other clusters have the present Halite from the start.
const LAB: &str = "older";

const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "older: a site of an earlier Halite makes jobs and a backup",
        run: prepared,
    },
    Test {
        name: "older: the present Halite replaces the earlier one, the master first",
        run: upgraded,
    },
    Test {
        name: "older: the jobs and backups of the earlier Halite are readable",
        run: readable,
    },
    Test {
        name: "older: nothing tried to leave",
        run: nothing_left,
    },
];

/// The file on the first host with the jobs and the backups of the earlier Halite.
const BEFORE: &str = "/root/before-upgrade.json";

/// The directory of backups on the master's host.
const BACKUPS: &str = "/var/lib/halite/backup";

/// Jobs that are compared.
const JOBS: usize = 20;

/// The site of the earlier Halite.
pub(super) fn site() -> Site {
    Site {
        lab: LAB.to_owned(),
        made: "older: bootstrap and node add with an earlier Halite",
        layout: &TWO,
        release: EARLIER,
        make,
        tests: sequence(cases(TESTS)),
    }
}

/// Makes a cluster with the earlier Halite; the present one is carried to the site, too.
fn make(lab: &str, layout: &Layout, release: &Release) -> Result<Cluster> {
    println!("  Halite of the commit {}", earlier::COMMIT);
    prepare::cluster_beside(lab, layout, release, Some(&NEWEST), &Board::plain())
}

/// The document of the installed `ctl`. It is read without types: one of them belongs to another
/// version.
fn answer(host: &Host, words: &[&str]) -> Result<Value> {
    let text = host.run(&[&["ctl", "-o", "json"], words].concat())?;
    serde_json::from_str(&text).with_context(|| format!("ctl {}: {text}", words.join(" ")))
}

/// The texts in a field of each item of a list.
fn each(list: &Value, field: &str) -> Result<Vec<String>> {
    let items = list.as_array().context("no list")?;
    let text = |item: &Value| item[field].as_str().map(str::to_owned);
    let texts: Option<Vec<String>> = items.iter().map(text).collect();
    texts.with_context(|| format!("an item has no {field}: {list}"))
}

/// The parts of a job that both versions show: its function, its target, and its end.
fn summary(host: &Host, job: &str) -> Result<Value> {
    let mut shown = answer(host, &["job", "show", job])?;
    let parts = shown["returns"].take();
    let parts = parts.as_array().into_iter().flatten();
    let ends = parts.map(|part| json!([part["minion"], part["state"], part["retcode"]]));
    Ok(json!({
        "job": shown["job"], "function": shown["function"], "target": shown["target"],
        "operator": shown["operator"], "created": shown["created"], "retcode": shown["retcode"],
        "returns": ends.collect::<Vec<_>>(),
    }))
}

fn prepared(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    all_run(cluster, &EARLIER)?;
    host.run(&["ctl", "ping", WORKER])?;
    host.run(&["ctl", "cmd", WORKER, "--", "echo earlier"])?;
    host.run(&["ctl", "backup", "create"])?;
    let jobs = answer(host, &["job", "list"])?;
    let mut jobs = each(&jobs["jobs"], "job")?;
    jobs.truncate(JOBS);
    ensure!(!jobs.is_empty(), "the site has no job");
    let jobs = jobs.iter().map(|job| summary(host, job));
    let jobs = jobs.collect::<Result<Vec<_>>>()?;
    let backups = each(&answer(host, &["backup", "list"])?["backups"], "backup")?;
    ensure!(!backups.is_empty(), "the site has no backup");
    let record = json!({"jobs": jobs, "backups": backups});
    fs::write(host.file(BEFORE), record.to_string())?;
    Ok(Counts::ONE)
}

fn upgraded(cluster: &Cluster) -> Result<Counts> {
    let (host, to) = (&cluster.bootstrap, NEWEST.bundle());
    host.run(&["ctl", "bundle", "add", &format!("{NEWER}/{ISO}")])?;
    let said = host.run(&["ctl", "bundle", "use", &to])?;
    let bootstrap = format!("{}/bin/ctl bootstrap", bundle_place(&to));
    ensure!(said.contains(&bootstrap), "no {bootstrap:?} in: {said}");
    host.sh(&format!("{bootstrap} --yes 2>&1"))?;
    // The new master, with the worker's earlier minion.
    runs(cluster, host, "halite-master", &to)?;
    runs(cluster, &cluster.worker, "halite-minion", &EARLIER.bundle())?;
    wait::until("the earlier minion to answer the new master", PODS, || {
        host.run(&["ctl", "ping", WORKER]).map(drop)
    })?;
    let changed = highstate_by(cluster, "ctl", &[])?;
    ensure!(
        changed.updated_first.iter().eq([WORKER]),
        "not the worker's minion alone is updated first, but {:?}",
        changed.updated_first
    );
    all_run(cluster, &NEWEST)?;
    cluster.wait_for_pods(PODS)?;
    wait::until("a highstate with nothing to do", QUIET, || {
        let changed = highstate_by(cluster, "ctl", &["--test"])?.changed;
        ensure!(changed.is_empty(), "it would change {changed:?}");
        Ok(())
    })?;
    wait::until("a status without problems", PODS, || {
        host.run(&["ctl", "status"]).map(drop)
    })?;
    Ok(Counts::ONE)
}

/// Checks that both hosts run the programs of a release's bundle.
fn all_run(cluster: &Cluster, release: &Release) -> Result<()> {
    let bundle = release.bundle();
    runs(cluster, cluster.host(BOOTSTRAP)?, "halite-master", &bundle)?;
    let mut hosts = cluster.hosts().into_iter();
    hosts.try_for_each(|host| runs(cluster, host, "halite-minion", &bundle))
}

fn readable(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let before: Value = serde_json::from_slice(&fs::read(host.file(BEFORE))?)?;
    for job in before["jobs"].as_array().context("no jobs")? {
        let id = job["job"].as_str().context("no job")?;
        let now = summary(host, id)?;
        ensure!(now == *job, "the job {id} was {job}, and is {now}");
    }
    let backups = answer(host, &["backup", "list"])?;
    let now = each(&backups["backups"], "backup")?;
    for backup in before["backups"].as_array().context("no backups")? {
        let name = backup.as_str().context("no backup")?;
        ensure!(now.iter().any(|now| now == name), "{name} is gone: {now:?}");
        host.run(&["ctl", "backup", "verify", &format!("{BACKUPS}/{name}")])?;
    }
    // One of the present Halite, which the earlier one's store is in.
    host.run(&["ctl", "backup", "create"])?;
    host.run(&["ctl", "backup", "verify"])?;
    host.run(&["ctl", "bundle", "remove", &EARLIER.bundle(), "--yes"])?;
    Ok(Counts::ONE)
}
