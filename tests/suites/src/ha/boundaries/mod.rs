//! The boundaries of the commands that change the membership of the cluster or move the master, on
//! three control planes: a command is interrupted at one after the other, and ends in the same
//! state as without interruptions.
//!
//! The victim is the master, or the minion of the host in question, or the power of the master's
//! host, of the host in question or of one with a member of etcd. A further command restores the
//! previous state, and a highstate of any host has nothing to do.

mod commands;
mod masters;
mod outcomes;
mod series;

use anyhow::{Result, ensure};
use halite_api::KeyList;
use halite_lab::cluster::Cluster;
use halite_lab::wait;
use serde_json::Value;

use super::taints::lasting;
use super::{BACK, is_complete, same_content};
use crate::checks::nothing_to_do;
use crate::ctl_answer;
use crate::test::Case;

/// A test for each series of boundaries of a command.
///
/// # Errors
/// An orchestration does not compile.
pub(super) fn every() -> Result<Vec<Case<Cluster>>> {
    let series = series::all()?.into_iter().map(|series| {
        let name = format!("ha: {}", series.name());
        Case::new(name, move |cluster: &Cluster| series.run(cluster))
    });
    let moves = masters::all()?.into_iter().map(|(command, boundaries)| {
        let name = format!("ha: boundaries of {}", command.line());
        Case::new(name, move |cluster: &Cluster| {
            masters::run(cluster, command, &boundaries)
        })
    });
    Ok(series.chain(moves).collect())
}

/// The state that must be the same before and after: the keys with their states, the nodes with
/// their labels, taints and annotations, and the declared roles.
fn picture(cluster: &Cluster) -> Result<Value> {
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    let text = cluster.kubectl(&["get", "nodes", "-o", "json"])?;
    let list: Value = serde_json::from_str(&text)?;
    let nodes = list["items"].as_array().into_iter().flatten();
    let nodes: serde_json::Map<String, Value> = nodes
        .map(|node| {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            let seen = serde_json::json!({
                "labels": node["metadata"]["labels"], "taints": lasting(&node["spec"]["taints"]),
                "unschedulable": node["spec"]["unschedulable"],
                "maintenance": node["metadata"]["annotations"]["halite/maintenance"],
            });
            (name.to_owned(), seen)
        })
        .collect();
    let keys: KeyList = ctl_answer::of(&cluster.bootstrap, &["key", "list"])?;
    let keys = keys.keys.iter();
    let mut keys: Vec<String> = keys
        .map(|key| format!("{} {}", key.minion, key.state))
        .collect();
    keys.sort();
    let roles = "grep -H '^roles:' /etc/halite/nodes/*.yaml | sort";
    let roles = cluster.bootstrap.sh(roles)?;
    Ok(serde_json::json!({"nodes": nodes, "keys": keys, "roles": roles}))
}

/// Waits until the cluster has its previous state, and a highstate of any host has nothing to do.
fn is_as_before(cluster: &Cluster, before: &Value) -> Result<()> {
    wait::until("the cluster to be restored", BACK, || {
        let now = picture(cluster)?;
        ensure!(now == *before, "it was {before}, and is {now}");
        Ok(())
    })?;
    same_content(cluster)?;
    nothing_to_do(&cluster.bootstrap)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_series_is_a_test_with_a_name_of_its_own() {
        let all = every().unwrap();
        let names: BTreeSet<&str> = all.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        for name in [
            "ha: boundaries of ctl etcd defrag, 0",
            "ha: boundaries of ctl master promote",
            "ha: boundaries of ctl master retire cp-1 --to cp-2 --keep --yes",
        ] {
            assert!(names.contains(name), "{names:?}");
        }
    }
}
