//! The upgrade of a cluster with the profile.

use anyhow::{Context as _, Result, ensure};
use halite_api::{RunOutcome, UpgradeCheck};
use halite_lab::cluster::Cluster;
use halite_lab::wait;
use halite_upstream::versions::FULL;

use super::{
    NAMESPACE, PROFILE, are_protected, declared, is_audited, issuer, page, refuses_privileged_pods,
    settled,
};
use crate::checks::nothing_to_do;
use crate::cluster::PODS;
use crate::ctl_answer;
use crate::encrypted::{ENCRYPTED, SECRET, STORED, is_encrypted_with, stored};
use crate::ha::{add_release, has_release, while_written};
use crate::test::Counts;

/// The version of the bundle.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-hardened");
/// A ConfigMap that is made after the upgrade.
const LATER: &str = "audited-later";

/// After an upgrade to the next patch release, whose API server is another container, Secrets are
/// the same ciphertext, the audit log continues, and all that the profile promises holds.
///
/// # Errors
/// The first that has changed.
pub(super) fn keeps_all(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    // No controller would make its pods again after a drain.
    cluster.kubectl(&["delete", "namespace", NAMESPACE])?;
    let before = stored(cluster, STORED)?;
    let key = before
        .strip_prefix(ENCRYPTED)
        .and_then(|rest| rest.split(':').next());
    let key = key.with_context(|| format!("{STORED} begins with {before:.40}"))?;
    is_encrypted_with(cluster, key)?;
    page::shows_ciphertext(host)?;

    let kubernetes = add_release(cluster, &FULL, VERSION, 1)?;
    let plan = shown(cluster)?;
    let upgrade = ["ctl", "upgrade", "--plan", plan.as_str(), "--yes"];
    let written = while_written(cluster, host, "hardened", || host.run(&upgrade).map(drop))?;
    println!("  {}", written.summary());
    cluster.wait_for_pods(PODS)?;
    for host in cluster.hosts() {
        // The API shows the pod of a new manifest some time after the host runs it.
        wait::until("the release on a host", PODS, || {
            has_release(cluster, host, &kubernetes)
        })?;
    }

    ensure!(
        stored(cluster, STORED)? == before,
        "the upgrade has written {STORED} again"
    );
    is_encrypted_with(cluster, key)?;
    page::shows_ciphertext(host)?;
    is_audited(host, "secrets", SECRET)?;
    cluster.kubectl(&["create", "configmap", LATER, "--from-literal=x=y"])?;
    is_audited(host, "configmaps", LATER)?;
    declared(cluster)?;
    issuer::accepts(host)?;
    are_protected(cluster)?;
    refuses_privileged_pods(cluster, PROFILE)?;
    nothing_to_do(host)?;
    settled(cluster)
}

/// Shows the plan of the upgrade and returns its id. A request of `kubectl` for a deprecated API is
/// one of its findings.
fn shown(cluster: &Cluster) -> Result<String> {
    cluster.kubectl(&["get", "endpoints", "--all-namespaces"])?;
    let tested: RunOutcome = ctl_answer::of(&cluster.bootstrap, &["upgrade", VERSION, "--test"])?;
    let plan = tested.plan.context("no plan")?;
    let names_it = plan.findings.iter().any(|finding| {
        finding.check == UpgradeCheck::DeprecatedApis && finding.message.contains(" endpoints ")
    });
    ensure!(names_it, "no finding about endpoints: {:?}", plan.findings);
    Ok(plan.id)
}
