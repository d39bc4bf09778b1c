//! etcd has reached its quota: the master makes space by itself, and the API accepts writes again.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_api::{AuditLine, AuditLog, EtcdStatus};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, DOCUMENT};
use halite_lab::wait;

use super::large_object;
use crate::ctl_answer;
use crate::test::Counts;
use crate::{etcd, guide, health};

/// The heading of the guide's section.
const HEADING: &str = "## etcd has reached its quota";
/// The space above the database that a writer fills.
const ROOM: u64 = 16 << 20;
/// Limit until the API accepts writes again. The master checks every ten seconds.
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
    restored.context("with the previous quota")?;
    health::is_well(cluster)?;
    Ok(Counts::ONE)
}

/// The size of the database. For a silent member the status has none.
fn database(cluster: &Cluster) -> Result<u64> {
    let host = &cluster.bootstrap;
    wait::until("the size of the database", etcd::ANSWER, || {
        let (_, status): (_, EtcdStatus) = ctl_answer::in_any_case(host, &["etcd", "status"])?;
        let size = status.members.first().and_then(|member| member.db_size);
        size.with_context(|| format!("no size: {status:?}"))
    })
}

/// The number of successful attempts to make space.
fn trials(cluster: &Cluster) -> Result<usize> {
    let words = ["audit", "--action", "upkeep", "--limit", "200"];
    let log: AuditLog = ctl_answer::of(&cluster.bootstrap, &words)?;
    let good = |line: &&AuditLine| line.what == "room in etcd" && line.outcome == "ok";
    Ok(log.audit.iter().filter(good).count())
}

fn reached(cluster: &Cluster, before: usize) -> Result<()> {
    large_object::until_refused(cluster, "database space exceeded")?;
    large_object::until_taken(cluster, BACK)?;
    wait::until("the audit log to have it", BACK, || {
        let now = trials(cluster)?;
        ensure!(now > before, "still {now} trials");
        Ok(())
    })?;
    let said = guide::run(&cluster.bootstrap, HEADING, "ctl audit")?;
    ensure!(said.contains("room in etcd"), "{said}");
    let said = guide::run(&cluster.bootstrap, HEADING, "ctl etcd status")?;
    ensure!(said.contains("QUOTA"), "{said}");
    large_object::remove(cluster)
}
