//! `ctl node list` and `ctl node show`.

use anyhow::{Context as _, bail};
use halite_proto::v1;
use serde::Deserialize;
use serde_json::{Value, json};

use super::inspect;
use crate::cli::{Global, ShowNode};
use crate::client;
use crate::client::document;
use crate::output::Screen;

/// The part of the master's answer about the cluster that has its hosts.
#[derive(Deserialize)]
struct Hosts {
    nodes: Vec<Value>,
}

/// The name of a host.
#[derive(Deserialize)]
struct Named {
    name: String,
}

/// Runs `ctl node list`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn list(global: &Global, screen: &mut Screen) -> anyhow::Result<u8> {
    let nodes = nodes(global).await?;
    screen.answer(&json!({"nodes": nodes}), |_| inspect::node_table(&nodes))?;
    Ok(0)
}

/// Runs `ctl node show`.
///
/// # Errors
/// The master does not answer or refuses, or does not know the host.
pub async fn show(global: &Global, args: &ShowNode, screen: &mut Screen) -> anyhow::Result<u8> {
    let nodes = nodes(global).await?;
    let node = find(&nodes, args.name.as_str())?;
    screen.document(node)?;
    Ok(0)
}

async fn nodes(global: &Global) -> anyhow::Result<Vec<Value>> {
    let mut operator = client::operator(global).await?;
    let status = document(operator.status(v1::StatusRequest {}).await)?;
    let hosts: Hosts =
        serde_json::from_value(status).context("cannot read the hosts in the master's answer")?;
    Ok(hosts.nodes)
}

fn find<'a>(nodes: &'a [Value], name: &str) -> anyhow::Result<&'a Value> {
    let mut names = Vec::new();
    for node in nodes {
        let Named { name: own } = Named::deserialize(node)?;
        if own == name {
            return Ok(node);
        }
        names.push(own);
    }
    bail!(
        "cannot find the host {name}; the hosts are {}",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_found_by_its_name() {
        let nodes = [
            json!({"name": "cp-1", "key": "accepted"}),
            json!({"name": "worker-1"}),
        ];
        assert_eq!(find(&nodes, "cp-1").unwrap(), &nodes[0]);
        let error = find(&nodes, "cp-2").unwrap_err().to_string();
        assert!(error.contains("cp-1, worker-1"), "{error}");
    }
}
