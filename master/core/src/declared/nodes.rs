//! Writes node documents for new nodes, and the addresses that are chosen for a node.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use halite_document::Problem;
use halite_errors::chain;
use halite_names::NodeName;
use halite_pillar::host_facts::HostFacts;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::node::{Node, ResolvedMember};
use halite_pillar::resolve;
use halite_pillar::resolve::Evidence;
use halite_pillar::role::Role;
use halite_pillar::validate::Context;
use halite_proto::v1;
use serde_json::{Map, Value};

use super::slow::in_background;
use super::{Declarations, Snapshot};
use crate::ca::files;
use crate::refusal::Refusal;

/// The mode of node documents; they contain no secret.
const MODE: u32 = 0o644;
/// The fields of a request in addition to name, address and roles.
const FURTHER: [&str; 3] = ["labels", "taints", "custom"];

/// The request to declare a node.
#[derive(Debug, Clone)]
pub struct NodeRequest {
    /// The name of the node.
    pub name: NodeName,
    /// The address in a control-plane network; if empty, it is chosen when the minion first
    /// connects.
    pub address: String,
    /// The roles; if empty, worker.
    pub roles: Vec<String>,
    /// JSON mapping with `labels`, `taints` and `custom`; may be empty.
    pub further: String,
}

/// The nodes that an operator's request names, each once.
///
/// # Errors
/// A name is invalid or given twice, or there is no name.
pub fn requested(request: &v1::AddNodeRequest) -> Result<Vec<NodeRequest>, Refusal> {
    let mut nodes: Vec<NodeRequest> = Vec::new();
    for node in &request.nodes {
        let name: NodeName = node.name.parse()?;
        if nodes.iter().any(|other| other.name == name) {
            return Err(Refusal::invalid(format!(
                "the node {name} is named twice; name each host once"
            )));
        }
        nodes.push(NodeRequest {
            name,
            address: node.address.clone(),
            roles: node_roles(request, node),
            further: match node.document_json.as_str() {
                "" => request.document_json.clone(),
                own => own.to_owned(),
            },
        });
    }
    if nodes.is_empty() {
        return Err(Refusal::invalid(
            "no node is named; name the new hosts, for example worker-1=10.0.0.12",
        ));
    }
    Ok(nodes)
}

/// The roles of a node in a request: its own, or those of the request.
#[must_use]
pub fn node_roles(request: &v1::AddNodeRequest, node: &v1::NewNode) -> Vec<String> {
    let roles = if node.roles.is_empty() {
        &request.roles
    } else {
        &node.roles
    };
    roles.clone()
}

impl Declarations {
    /// Declares nodes: validates the whole declaration with all of them, then writes their
    /// documents. The same request may be repeated, also after an interruption between two
    /// documents; a different request for a declared name is refused.
    ///
    /// # Errors
    /// All problems of the request, in which case nothing is written; or a file that cannot be
    /// written.
    pub async fn add_nodes(&self, requests: &[NodeRequest]) -> Result<(), Refusal> {
        let _one_at_a_time = self.writing.lock().await;
        let snapshot = self.load().await?;
        // Without a bundle no host can become a node, even a declared one.
        snapshot.bundle()?;
        let (mut new, mut refused) = (Vec::new(), Vec::new());
        for request in requests {
            let node = document(request)?;
            let Some(there) = snapshot.declaration().nodes.get(&request.name) else {
                new.push((request.name.clone(), node));
                continue;
            };
            let mut declared = there.value.clone();
            declared.resolved = None;
            if declared != node {
                refused.push(format!(
                    "{} already declares the node {}, with different values; edit that file, or choose another name",
                    there.source.file, request.name
                ));
            }
        }
        if !refused.is_empty() {
            return Err(Refusal::conflict(refused.join("\n")));
        }
        if new.is_empty() {
            return Ok(());
        }
        let config_dir = self.config_dir().to_owned();
        in_background(move || declare(&snapshot, &config_dir, &new)).await
    }

    /// Chooses the addresses of a node from the grains of its host and records them in its
    /// document, with its priority if it competes for the virtual address. `peer` is the address
    /// from which the host's connection comes. Does nothing for a node that already has all of
    /// this, or that is not declared.
    ///
    /// The host reports its addresses itself, so the whole declaration is validated with them
    /// before anything is written: one host must not make it unreadable for all.
    ///
    /// # Errors
    /// The host has no suitable address, the address does not fit the declaration, or the document
    /// cannot be written.
    pub async fn record_addresses(
        &self,
        name: &str,
        grains: &Value,
        peer: Option<IpAddr>,
    ) -> Result<(), Refusal> {
        // A recorded node stays recorded, so most hosts connect without any file being read.
        let newest = self.reader.newest();
        if newest.is_some_and(|newest| is_recorded(&newest, name) == Some(true)) {
            return Ok(());
        }
        if is_recorded(&*self.load().await?, name) != Some(false) {
            return Ok(());
        }
        let _one_at_a_time = self.writing.lock().await;
        let snapshot = self.load().await?;
        if is_recorded(&snapshot, name) != Some(false) {
            return Ok(());
        }
        let (config_dir, name) = (self.config_dir().to_owned(), name.to_owned());
        let host = HostFacts::from_grains(&name, grains);
        in_background(move || resolve_node(&snapshot, &config_dir, &name, &host, peer)).await
    }

    /// Records the etcd member of a node that joins a running cluster, before the member's first
    /// start.
    ///
    /// # Errors
    /// The node is not declared or has no addresses yet, or its document cannot be written.
    pub async fn record_member(&self, name: &str, member: ResolvedMember) -> Result<(), Refusal> {
        let _one_at_a_time = self.writing.lock().await;
        let (snapshot, name) = (self.load().await?, name.to_owned());
        in_background(move || record_member(&snapshot, &name, &member)).await
    }

    /// Records that the control plane of a node runs, for a node without an etcd member that shows
    /// it; or, for a node without a control plane, that its etcd member has its vote.
    ///
    /// # Errors
    /// The node is not declared or has no addresses yet, or its document cannot be written.
    pub async fn record_joined(&self, name: &str) -> Result<(), Refusal> {
        let _one_at_a_time = self.writing.lock().await;
        let (snapshot, name) = (self.load().await?, name.to_owned());
        in_background(move || {
            let text = resolve::joined(snapshot.declaration(), &name);
            write_record(&snapshot, &name, text)
        })
        .await
    }
}

/// Validates the declaration with these new nodes, and writes their documents.
fn declare(
    snapshot: &Snapshot,
    config_dir: &Path,
    nodes: &[(NodeName, Node)],
) -> Result<(), Refusal> {
    let mut texts =
        Texts::from_dir(config_dir).map_err(|problems| Refusal::from_problems(&problems))?;
    let mut files = Vec::new();
    for (name, node) in nodes {
        let path = node_file(config_dir, name)?;
        let text = node.to_text();
        texts.nodes.push(Text {
            file: path.display().to_string(),
            text: text.clone(),
        });
        files.push((path, text));
    }
    let context = Context {
        bundle: Some(snapshot.bundle()?),
        ..Context::default()
    };
    load(&texts, &context).map_err(|problems| Refusal::from_problems(&problems))?;
    files.iter().try_for_each(|(path, text)| write(path, text))
}

/// Records the etcd member of a node in its document.
fn record_member(snapshot: &Snapshot, name: &str, member: &ResolvedMember) -> Result<(), Refusal> {
    let text = resolve::member(snapshot.declaration(), name, member);
    write_record(snapshot, name, text)?;
    tracing::info!(node = name, initial_cluster = %member.initial_cluster, "etcd member recorded");
    Ok(())
}

/// Writes a node's document with a new record, if it has one.
fn write_record(
    snapshot: &Snapshot,
    name: &str,
    text: Result<Option<String>, Problem>,
) -> Result<(), Refusal> {
    let text = text.map_err(|problem| Refusal::invalid(problem.to_string()))?;
    match (text, snapshot.declaration().nodes.get(name)) {
        (Some(text), Some(node)) => write(Path::new(&node.source.file), &text),
        _ => Ok(()),
    }
}

/// Returns whether a node's addresses are recorded, and its priority if it competes for the virtual
/// address; `None` if the node is not declared.
fn is_recorded(snapshot: &Snapshot, name: &str) -> Option<bool> {
    let declaration = snapshot.declaration();
    let resolved = declaration.nodes.get(name)?.resolved.as_ref();
    let priority = declaration.vrrp_priority(name);
    Some(resolved.is_some_and(|own| priority.is_none() || own.vrrp_priority == priority))
}

/// Chooses the addresses of a node and writes them to its document.
fn resolve_node(
    snapshot: &Snapshot,
    config_dir: &Path,
    name: &str,
    host: &HostFacts,
    peer: Option<IpAddr>,
) -> Result<(), Refusal> {
    let mut declaration = snapshot.declaration().clone();
    let peer = peer.and_then(|address| match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    let resolved = resolve::node(&mut declaration, name, host, Evidence::Connection(peer))
        .map_err(|problem| Refusal::invalid(problem.to_string()))?;
    let Some(text) = resolved.node_text else {
        return Ok(());
    };
    let Some(node) = declaration.nodes.get(name) else {
        return Ok(());
    };
    let file = &node.source.file;
    let mut texts =
        Texts::from_dir(config_dir).map_err(|problems| Refusal::from_problems(&problems))?;
    match texts.nodes.iter_mut().find(|text| text.file == *file) {
        Some(document) => document.text.clone_from(&text),
        // The node was removed or renamed a moment ago: the next hello uses the new documents.
        None => return Ok(()),
    }
    load(&texts, &Context::default()).map_err(|problems| Refusal::from_problems(&problems))?;
    tracing::info!(node = name, control_plane = %resolved.addresses.control_plane,
        workload_plane = %resolved.addresses.workload_plane, "addresses chosen");
    write(Path::new(file), &text)
}

fn node_file(config_dir: &Path, name: &NodeName) -> Result<PathBuf, Refusal> {
    let directory = config_dir.join("nodes");
    std::fs::create_dir_all(&directory).map_err(|error| {
        Refusal::internal(format!("cannot create {}: {error}", directory.display()))
    })?;
    Ok(directory.join(format!("{name}.yaml")))
}

/// The node document for a request.
fn document(request: &NodeRequest) -> Result<Node, Refusal> {
    let address = match request.address.as_str() {
        "" => None,
        text => Some(text.parse::<Ipv4Addr>().map_err(|_| {
            Refusal::invalid(format!(
                "{text:?} is not an IPv4 address; give the node's address in a control-plane network"
            ))
        })?),
    };
    let role = |text: &String| {
        Role::named(text).ok_or_else(|| {
            let known: Vec<&str> = Role::ALL.iter().map(|role| role.as_str()).collect();
            Refusal::invalid(format!(
                "unknown role {text:?}; the roles are {}",
                known.join(", ")
            ))
        })
    };
    let named = request
        .roles
        .iter()
        .map(role)
        .collect::<Result<Vec<Role>, Refusal>>()?;
    let mut roles: Vec<Role> = Vec::new();
    for role in named {
        if !roles.contains(&role) {
            roles.push(role);
        }
    }
    if roles.is_empty() {
        roles.push(Role::Worker);
    }
    let node = Node::new(&request.name, address, &roles);
    let further = further(&request.further)?;
    if further.is_empty() {
        return Ok(node);
    }
    let mut value = serde_json::to_value(&node)
        .map_err(|error| Refusal::internal(format!("cannot write the node document: {error}")))?;
    for (key, field) in further {
        value[key] = field;
    }
    serde_json::from_value(value)
        .map_err(|error| Refusal::invalid(format!("cannot read the node document: {error}")))
}

fn further(text: &str) -> Result<Map<String, Value>, Refusal> {
    let value = match text.trim() {
        "" => return Ok(Map::new()),
        text => serde_json::from_str(text),
    };
    let bad = |what: &str| {
        Refusal::invalid(format!(
            "the node's further fields: {what}; the fields are labels, taints and custom"
        ))
    };
    match value {
        Ok(Value::Object(fields)) => {
            match fields.keys().find(|key| !FURTHER.contains(&key.as_str())) {
                Some(key) => Err(bad(&format!("`{key}` is unknown"))),
                None => Ok(fields),
            }
        }
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err(bad("they must be a JSON mapping")),
        Err(error) => Err(bad(&chain(&error))),
    }
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), Refusal> {
    files::write(path, text, MODE).map_err(|error| Refusal::internal(chain(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_becomes_a_document() {
        let node = document(&NodeRequest {
            name: "worker-1".parse().unwrap(),
            address: "10.10.1.12".into(),
            roles: vec!["worker".into()],
            further: r#"{"labels": {"disk": "ssd"}, "custom": {"rack": 4}}"#.into(),
        })
        .unwrap();
        assert_eq!(node.labels["disk"], "ssd");
        assert_eq!(node.custom["rack"], 4);
        assert!(node.to_text().contains("address: 10.10.1.12"));
    }

    #[test]
    fn a_role_named_twice_counts_once() {
        let roles = ["worker", "infra", "worker"].map(str::to_owned).to_vec();
        let node = document(&NodeRequest {
            name: "a".parse().unwrap(),
            address: String::new(),
            roles,
            further: String::new(),
        })
        .unwrap();
        assert_eq!(node.roles, [Role::Worker, Role::Infra]);
    }

    #[test]
    fn a_mistake_in_a_request_is_named() {
        let request = |name: &str, address: &str, role: &str, further: &str| v1::AddNodeRequest {
            nodes: vec![v1::NewNode {
                name: name.into(),
                address: address.into(),
                ..v1::NewNode::default()
            }],
            roles: vec![role.into()],
            document_json: further.into(),
        };
        let mut twice = request("a", "", "worker", "");
        twice.nodes.push(twice.nodes[0].clone());
        for (request, wanted) in [
            (request("master", "", "worker", ""), "master"),
            (request("../x", "", "worker", ""), "name"),
            (request("a", "10.0.0", "worker", ""), "IPv4"),
            (request("a", "", "wroker", ""), "wroker"),
            (request("a", "", "worker", r#"{"roles": []}"#), "roles"),
            (request("a", "", "worker", "[1]"), "mapping"),
            (request("a", "", "worker", "{"), "further"),
            (v1::AddNodeRequest::default(), "no node is named"),
            (twice, "named twice"),
        ] {
            let read = requested(&request);
            let refusal = read.and_then(|read| document(&read[0])).unwrap_err();
            assert!(
                refusal.message.contains(wanted),
                "{request:?}: {}",
                refusal.message
            );
        }
    }
}
