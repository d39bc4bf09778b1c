//! Roles of a host that stays in the cluster.

use anyhow::{Result, ensure};
use halite_lab::cluster::Cluster;
use serde_json::Value;

use crate::test::Counts;

const INFRA: &str = "node-role.kubernetes.io/infra";

/// A worker gets a role and loses it again: its label appears and disappears. A part of the control
/// plane is not removed from a host without the cluster's name.
pub(super) fn given_and_taken(cluster: &Cluster) -> Result<Counts> {
    let worker = cluster.worker.spec.name.as_str();
    let give = |host: &str, roles: &str| {
        cluster
            .bootstrap
            .run(&["ctl", "node", "roles", host, roles])
    };
    let has_label = || -> Result<bool> {
        let node = cluster.kubectl(&["get", "node", worker, "-o", "json"])?;
        let node: Value = serde_json::from_str(&node)?;
        Ok(!node["metadata"]["labels"][INFRA].is_null())
    };
    give(worker, "worker,infra")?;
    ensure!(has_label()?, "{worker} has no label of its new role");
    give(worker, "worker")?;
    ensure!(!has_label()?, "{worker} has the label of its former role");
    let refused = give("cp-2", "worker").err().map(|error| error.to_string());
    let text = refused.unwrap_or_default();
    ensure!(
        text.contains("it takes --force --cluster demo"),
        "the roles of cp-2 have changed: {text}"
    );
    Ok(Counts::ONE)
}
