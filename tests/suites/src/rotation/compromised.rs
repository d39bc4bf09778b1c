//! The CA of Kubernetes is replaced because its key may be known to others: the old one leaves all
//! hosts in the first stage.

use anyhow::{Result, ensure};
use halite_api::CheckResult;
use halite_lab::cluster::Cluster;
use halite_lab::wait;

use super::{old_has_left, old_is_refused, page, under_writes};
use crate::cluster::{PODS, across_nodes, ensure_servers, remove_servers};
use crate::health::health;
use crate::test::Counts;

/// The name prefix of the servers that are made afterwards.
const SERVERS: &str = "compromised";

/// A part of the warning that a rotation without a question prints.
const BREAKS: &str = "all kubeconfigs are refused";

/// The start of the names of checks that have findings here: a lab has neither a reader of its
/// backups nor, at first, a backup.
const OF_BACKUPS: &str = "backup";

pub(super) fn of_kubernetes(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    // Writes may fail, but those that were acknowledged exist.
    let (_, notes) = under_writes(cluster, |host| {
        let said = page::COMPROMISED.run(host)?;
        ensure!(said.contains(BREAKS), "it does not say what breaks: {said}");
        Ok(())
    })?;
    notes.print();
    old_is_refused(host)?;
    old_has_left(cluster)?;
    ensure_servers(cluster, SERVERS)?;
    let reached = across_nodes(cluster, SERVERS);
    // Also after a failure: the tests after this one count pods.
    remove_servers(cluster, SERVERS)?;
    reached?;
    wait::until("a health without a finding", PODS, || {
        let (code, health) = health(cluster)?;
        let mut findings: Vec<CheckResult> = health.checks;
        findings.retain(|check| !check.findings.is_empty() && !check.name.starts_with(OF_BACKUPS));
        ensure!(
            code == Some(0) && findings.is_empty(),
            "exit code {code:?}: {findings:#?}"
        );
        Ok(())
    })?;
    Ok(Counts::ONE)
}
