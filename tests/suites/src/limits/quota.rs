//! etcd has reached its quota: the master makes room by itself, and the API takes writes again.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, DOCUMENT};
use halite_lab::wait;
use serde_json::Value;

use super::large_object;
use crate::test::Counts;
use crate::{etcd, guide, health};

/// The heading of the guide's section.
const HEADING: &str = "## etcd has reached its quota";
/// The room above the database that a writer fills.
const ROOM: u64 = 16 << 20;
/// Limit for the API to take writes again. The master looks every ten seconds.
const BACK: Duration = Duration::from_secs(180);

pub(super) fn resolved(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let document = fs::read_to_string(host.file(DOCUMENT))?;
    ensure!(!document.contains("\netcd:"), "the document has `etcd:`");
    let before = trials(cluster)?;
    let quota = database(cluster)? + ROOM;
    let small = format!("{document}\netcd:\n  extraArgs:\n    quota-backend-bytes: \"{quota}\"\n");
    fs::write(host.file(DOCUMENT), small)?;
    let outcome = host
        .run(&[CTL, "highstate", BOOTSTRAP])
        .and_then(|_| reached(cluster, before));
    fs::write(host.file(DOCUMENT), &document)?;
    let restored = host.run(&[CTL, "highstate", BOOTSTRAP]);
    outcome?;
    restored.context("with the quota of before")?;
    health::is_well(cluster)?;
    Ok(Counts::ONE)
}

/// The size of the database. A member that is silent has none in the status.
fn database(cluster: &Cluster) -> Result<u64> {
    let host = &cluster.bootstrap;
    wait::until("the size of the database", etcd::ANSWER, || {
        let status: Value =
            serde_json::from_str(&host.run(&[CTL, "etcd", "status", "-o", "json"])?)?;
        let size = status["members"][0]["dbSize"].as_u64();
        size.with_context(|| format!("no size: {status}"))
    })
}

/// The number of trials to make room that ended well.
fn trials(cluster: &Cluster) -> Result<usize> {
    let audit = [
        CTL, "audit", "--action", "upkeep", "--limit", "200", "-o", "json",
    ];
    let audit: Value = serde_json::from_str(&cluster.bootstrap.run(&audit)?)?;
    let lines = audit["audit"].as_array().context("no lines")?;
    let good = |line: &&Value| line["what"] == "room in etcd" && line["outcome"] == "ok";
    Ok(lines.iter().filter(good).count())
}

fn reached(cluster: &Cluster, before: usize) -> Result<()> {
    large_object::until_refused(cluster, "database space exceeded")?;
    large_object::until_taken(cluster, BACK)?;
    wait::until("the audit log to have it", BACK, || {
        let now = trials(cluster)?;
        ensure!(now > before, "{now} trials, as before");
        Ok(())
    })?;
    let said = guide::run(&cluster.bootstrap, HEADING, "ctl audit")?;
    ensure!(said.contains("room in etcd"), "{said}");
    let said = guide::run(&cluster.bootstrap, HEADING, "ctl etcd status")?;
    ensure!(said.contains("QUOTA"), "{said}");
    large_object::remove(cluster)
}
