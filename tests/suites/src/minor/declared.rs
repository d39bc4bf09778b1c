//! The declarations of an operator before the upgrade: a hardened API server, an addon, a chart of
//! the bundle, and own states.

use std::fs;

use anyhow::{Result, ensure};
use halite_lab::cluster::Cluster;
use halite_upstream::chart;
use halite_upstream::versions::Release;

use crate::bundles::chart as running_chart;
use crate::checks::nothing_to_do;
use crate::declare::declare;
use crate::encrypted::{SECRET, is_encrypted_with, make_secret, writer};
use crate::hardened::{is_audited, refuses_privileged_pods};
use crate::repair::highstate;
use crate::{addons, guide};

/// The file of the own states, and its content.
const FILE: &str = "/etc/halite-upgraded";
const CONTENT: &str = "kept through the upgrade";

/// The section of the API server, with an audit log, encryption and a standard for pods. The
/// chart's pods meet this one.
const API_SERVER: &str = "apiServer:
  audit: {}
  encryption: {}
  admission: {podSecurity: {enforce: baseline}}
";

/// A ConfigMap that is made after the upgrade.
const LATER: &str = "audited-later";

/// The cluster document of a release.
pub(super) fn document(release: &Release) -> String {
    release.document().replacen("apiServer:\n", API_SERVER, 1)
}

/// Declares the others, applies them on all hosts, and makes a Secret.
///
/// # Errors
/// One does not work.
pub(super) fn install(cluster: &Cluster) -> Result<()> {
    declare(cluster, "addons", "{metricsServer: true}")?;
    declare(cluster, "charts", &format!("[{}]", chart::NAME))?;
    declare(cluster, "custom", &format!("{{text: {CONTENT}}}"))?;
    let sls = format!("{FILE}:\n  file.managed:\n    - contents: '{{{{ pillar.custom.text }}}}'\n");
    guide::own_states(cluster, &sls)?;
    highstate(cluster, &[])?;
    works(cluster)?;
    make_secret(cluster)?;
    nothing_to_do(&cluster.bootstrap)
}

/// Removes the file of the own states on the worker, for the upgrade to make it again. Returns its
/// path.
///
/// # Errors
/// It does not exist.
pub(super) fn lose_own_file(cluster: &Cluster) -> Result<&'static str> {
    fs::remove_file(cluster.worker.file(FILE))?;
    Ok(FILE)
}

/// Checks that nodes and pods have metrics, that the chart's pods answer with the declared value,
/// and that each host has the file of the own states.
///
/// # Errors
/// The first that does not work.
pub(super) fn works(cluster: &Cluster) -> Result<()> {
    addons::measured(cluster)?;
    running_chart::answers(cluster)?;
    for host in cluster.hosts() {
        let text = host.run(&["cat", FILE])?;
        ensure!(text.trim() == CONTENT, "{}: {text:?}", host.spec.name);
    }
    Ok(())
}

/// Checks that the Secret is ciphertext in etcd, that the audit log has writes from before and
/// after the upgrade, and that a privileged pod is refused.
///
/// # Errors
/// The first of this that does not hold.
pub(super) fn is_hardened(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    is_encrypted_with(cluster, &writer(host)?)?;
    is_audited(host, "secrets", SECRET)?;
    cluster.kubectl(&["create", "configmap", LATER, "--from-literal=x=y"])?;
    is_audited(host, "configmaps", LATER)?;
    refuses_privileged_pods(cluster, "baseline")
}

#[cfg(test)]
mod tests {
    use halite_lab::layout::TWO;
    use halite_upstream::versions::UPGRADE_FROM;

    use super::*;
    use crate::shipped_tree::declaration;

    #[test]
    fn the_document_is_valid_and_encrypts() {
        let declared = declaration(&document(&UPGRADE_FROM), &TWO).unwrap();
        assert!(declared.cluster.encryption().is_some() && declared.cluster.audit().is_some());
    }
}
