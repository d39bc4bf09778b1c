//! The bundles that the hosts of the cluster use, as the master knows them.

use std::collections::BTreeMap;

use halite_proto::v1;
use serde_json::Value;

use crate::cli::Global;
use crate::client;

/// The bundles from which each host got its content.
#[derive(Debug, Default)]
pub struct Hosts {
    /// The bundle of the last successful highstate of each host.
    last: BTreeMap<String, String>,
    /// All bundles from which each host may have content: later highstates may have failed halfway.
    any: BTreeMap<String, Vec<String>>,
    /// Accepted hosts whose bundles the master does not know.
    unknown: Vec<String>,
}

/// Asks the master which bundles the hosts have.
///
/// # Errors
/// The master does not answer.
pub async fn hosts(global: &Global) -> anyhow::Result<Hosts> {
    let mut operator = client::operator(global).await?;
    let status = client::document(operator.status(v1::StatusRequest {}).await)?;
    Ok(from_status(&status))
}

/// Reads the hosts' bundles from the answer to `ctl status`.
pub fn from_status(status: &Value) -> Hosts {
    let nodes = status["nodes"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut hosts = Hosts::default();
    for node in nodes {
        let Some(name) = node["name"].as_str() else {
            continue;
        };
        if let Some(bundle) = node["bundle"].as_str() {
            hosts.last.insert(name.to_owned(), bundle.to_owned());
        }
        match node["bundles"].as_array() {
            Some(any) => {
                let any = any
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect();
                hosts.any.insert(name.to_owned(), any);
            }
            None if node["key"] == "accepted" => hosts.unknown.push(name.to_owned()),
            None => {}
        }
    }
    hosts
}

impl Hosts {
    /// The hosts whose last successful highstate used a bundle.
    pub fn with(&self, version: &str) -> Vec<&str> {
        self.last
            .iter()
            .filter(|(_, bundle)| *bundle == version)
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// The reason not to remove a bundle, if there is one.
    pub fn need(&self, version: &str) -> Option<String> {
        let users = self
            .any
            .iter()
            .filter(|(_, any)| any.iter().any(|bundle| bundle == version));
        let users: Vec<&str> = users.map(|(name, _)| name.as_str()).collect();
        let what = match (users.is_empty(), self.unknown.is_empty()) {
            (false, _) => format!(
                "these hosts still use the bundle {version}, nothing was removed: {}",
                users.join(", ")
            ),
            (true, false) => format!(
                "the bundles of these hosts are not known, nothing was removed: {} (`ctl key delete` \
                 forgets hosts that do not exist any more)",
                self.unknown.join(", ")
            ),
            (true, true) => return None,
        };
        Some(format!(
            "{what}. `ctl highstate` changes them to the bundle in use; --force removes this one in spite of that"
        ))
    }
}
