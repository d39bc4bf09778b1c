//! `ctl node add`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::{fs, io};

use anyhow::{Context as _, bail};
use halite_api::{NewNode, NewNodes, to_value};
use halite_pillar::host_list::ListedHost;
use halite_pillar::load::Text;
use halite_pillar::load_hosts::load_hosts;
use halite_proto::v1;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::again::CommandLine;
use crate::cli::{Global, NodeAdd};
use crate::client;
use crate::client::refused;
use crate::commands::node_ssh;
use crate::commands::node_ssh::SshHost;
use crate::orchestration_watch::{
    print_outcome, print_outcomes, run_on, run_orchestration, run_orchestrations,
};
use crate::output::{Screen, path_text};
use crate::ssh::Ssh;

/// The orchestration that makes an enrolled host a Kubernetes node.
const ADD_NODE: &str = halite_states::shipped::ADD_NODE;

/// Runs `ctl node add`.
///
/// # Errors
/// The file of `--from` is invalid, the master does not answer or refuses, or there is no `ssh`.
pub async fn add(global: &Global, args: &NodeAdd, screen: &mut Screen) -> anyhow::Result<u8> {
    let ignored = args.ignore_preflight.as_slice();
    let (request, again) = match &args.from {
        Some(path) => {
            let again = CommandLine::new("ctl node add").option("from", Some(path_text(path)));
            (listed(path)?, again.list("ignore-preflight", ignored))
        }
        None => {
            let request = named(args)?;
            let again = CommandLine::new(same_words(&request, ignored));
            (request, again)
        }
    };
    let again = again.option("ssh", args.ssh.as_ref()).text();
    if let Some(user) = &args.ssh {
        let ssh = Ssh::new(user.clone());
        return join_over_ssh(global, request, &again, ignored, &ssh, screen).await;
    }
    let nodes = declare_and_print(global, request, args.no_wait, screen).await?;
    match nodes.as_slice() {
        [] => Ok(0),
        [node] if args.from.is_none() => {
            wait_until_ready(global, node, &again, ignored, screen).await
        }
        nodes => {
            let runs = (nodes.iter())
                .map(|name| (name.clone(), run(name, ignored)))
                .collect();
            let done = run_orchestrations(global, runs, screen).await;
            print_outcomes(&done, "is Ready", &again, screen)
        }
    }
}

/// Declares a node, unless it is already declared like this, prints the command to run on its host,
/// and waits until it is Ready. The preflight continues in spite of findings of the ignored checks;
/// `again` is the command that repeats this.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn join(
    global: &Global,
    request: v1::AddNodeRequest,
    again: &str,
    ignored: &[String],
    no_wait: bool,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let nodes = declare_and_print(global, request, no_wait, screen).await?;
    match nodes.first() {
        Some(node) => wait_until_ready(global, node, again, ignored, screen).await,
        None => Ok(0),
    }
}

/// Waits until a declared node is Ready.
async fn wait_until_ready(
    global: &Global,
    name: &str,
    again: &str,
    ignored: &[String],
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let done = run_orchestration(global, run(name, ignored), name, screen).await?;
    print_outcome(&done, &format!("{name} is Ready"), again, screen)
}

/// Declares nodes and prints the command to run on each. Returns their names; with `no_wait`, it
/// prints them as the answer, and returns none.
async fn declare_and_print(
    global: &Global,
    request: v1::AddNodeRequest,
    no_wait: bool,
    screen: &mut Screen,
) -> anyhow::Result<Vec<String>> {
    let nodes = declare(global, request, screen).await?;
    let to_run: String = (nodes.iter())
        .map(|node| {
            format!(
                "Run this on {}, as root:\n\n{}\n\n",
                node.name, node.command
            )
        })
        .collect();
    let to_run = to_run.strip_suffix('\n').unwrap_or_default();
    if no_wait {
        screen.answer(&to_value(&declared(nodes)), |_| to_run.to_owned())?;
        return Ok(Vec::new());
    }
    // In the other formats, standard output contains only the document.
    if screen.is_for_people() {
        screen.line(to_run);
    } else {
        screen.note(to_run);
    }
    Ok(nodes.into_iter().map(|node| node.name).collect())
}

/// Declares the nodes whose hosts let the operator in over SSH, runs the command there, and waits
/// until they are Ready.
async fn join_over_ssh(
    global: &Global,
    request: v1::AddNodeRequest,
    again: &str,
    ignored: &[String],
    ssh: &Ssh,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let present = client::status(global).await?.nodes;
    let hosts = request.nodes.iter().map(|node| SshHost {
        name: node.name.clone(),
        destination: match node.address.as_str() {
            "" => node.name.clone(),
            address => address.to_owned(),
        },
        is_connected: (present.iter())
            .any(|host| host.name == node.name.as_str() && host.connected),
    });
    let hosts: Vec<SshHost> = hosts.collect();
    let declare = async |reached: &BTreeSet<&str>, screen: &mut Screen| {
        let mut request = request.clone();
        request
            .nodes
            .retain(|node| reached.contains(node.name.as_str()));
        declare(global, request, screen).await
    };
    let follow = async |name: &str, screen: &RefCell<&mut Screen>| {
        run_on(global, run(name, ignored), name, screen).await
    };
    let can_ask = io::stdin().is_terminal();
    let done = node_ssh::add_hosts(ssh, &hosts, can_ask, declare, follow, screen).await?;
    print_outcomes(&done, "is Ready", again, screen)
}

/// Declares nodes and prints warnings about the declaration; returns their tokens and commands.
async fn declare(
    global: &Global,
    request: v1::AddNodeRequest,
    screen: &mut Screen,
) -> anyhow::Result<Vec<v1::AddedNode>> {
    let mut operator = client::operator(global).await?;
    let reply = operator
        .add_node(request)
        .await
        .map_err(|status| refused(&status))?
        .into_inner();
    for warning in &reply.warnings {
        let mark = screen.paint().notable("!");
        screen.note(format!("{mark} {warning}"));
    }
    Ok(reply.nodes)
}

/// The run that makes an enrolled host a node.
fn run(name: &str, ignored: &[String]) -> v1::OrchestrateRequest {
    v1::OrchestrateRequest {
        sls: ADD_NODE.to_owned(),
        pillar_json: run_pillar(name, ignored).to_string(),
        ..v1::OrchestrateRequest::default()
    }
}

/// The request with the hosts of the command line.
fn named(args: &NodeAdd) -> anyhow::Result<v1::AddNodeRequest> {
    let document_json = match labels(&args.labels)? {
        labels if labels.is_empty() => String::new(),
        labels => json!({"labels": labels}).to_string(),
    };
    Ok(v1::AddNodeRequest {
        nodes: new_nodes(args)?,
        roles: args.roles.clone(),
        document_json,
    })
}

/// The request with the hosts of a file.
///
/// # Errors
/// All problems of the file.
fn listed(path: &Path) -> anyhow::Result<v1::AddNodeRequest> {
    let file = path_text(path);
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {file}"))?;
    let hosts = load_hosts(&Text { file, text });
    let hosts = hosts.map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow::Error::msg(format!("no host was added\n{}", lines.join("\n")))
    })?;
    Ok(v1::AddNodeRequest {
        nodes: hosts.iter().map(listed_node).collect(),
        ..v1::AddNodeRequest::default()
    })
}

/// A host of a file in a request.
fn listed_node(host: &ListedHost) -> v1::NewNode {
    let mut further = Map::new();
    let mut add = |field: &str, value: Value| further.insert(field.to_owned(), value);
    if !host.labels.is_empty() {
        add("labels", json!(host.labels));
    }
    if let Some(taints) = &host.taints {
        add("taints", json!(taints));
    }
    if !host.custom.is_empty() {
        add("custom", json!(host.custom));
    }
    v1::NewNode {
        name: host.name.clone(),
        address: (host.address.as_ref()).map_or_else(String::new, ToString::to_string),
        roles: host.roles.iter().map(ToString::to_string).collect(),
        document_json: Value::Object(further).to_string(),
    }
}

/// The nodes of the command line.
///
/// # Errors
/// `--address` is invalid, or together with several names or with `NAME=ADDRESS`.
fn new_nodes(args: &NodeAdd) -> anyhow::Result<Vec<v1::NewNode>> {
    if !args.address.is_empty() && args.address.parse::<Ipv4Addr>().is_err() {
        bail!("--address: {:?} is not an IPv4 address", args.address);
    }
    match args.nodes.as_slice() {
        [only] if only.address.is_empty() => Ok(vec![v1::NewNode {
            name: only.name.to_string(),
            address: args.address.clone(),
            ..v1::NewNode::default()
        }]),
        _ if !args.address.is_empty() => {
            bail!("--address is for one node; write NAME=ADDRESS for each")
        }
        several => Ok(several
            .iter()
            .map(|node| v1::NewNode {
                name: node.name.to_string(),
                address: node.address.clone(),
                ..v1::NewNode::default()
            })
            .collect()),
    }
}

/// The pillar of the run that adds a host.
fn run_pillar(name: &str, ignored: &[String]) -> Value {
    match ignored {
        [] => json!({"node": name}),
        names => json!({"node": name, "ignore_preflight": names}),
    }
}

/// The command with the same words: with others, the master refuses to declare a node again. A
/// replacement may have fields for which `ctl node add` has no options; for it, the command is only
/// the orchestration.
pub fn same_words(request: &v1::AddNodeRequest, ignored: &[String]) -> String {
    let nodes = request.nodes.iter();
    let hosts = nodes.map(|node| match node.address.as_str() {
        "" => node.name.clone(),
        address => format!("{}={address}", node.name),
    });
    let hosts = hosts.collect::<Vec<_>>().join(" ");
    let again = CommandLine::new(format!("ctl node add {hosts}")).list("roles", &request.roles);
    let further: FurtherFields = serde_json::from_str(&request.document_json).unwrap_or_default();
    if let ([node], true) = (request.nodes.as_slice(), further.has_more_than_labels()) {
        let pillar = run_pillar(&node.name, ignored);
        return CommandLine::new(format!("ctl orchestrate {ADD_NODE}"))
            .option("pillar", Some(pillar))
            .text();
    }
    let again = further.labels.iter().fold(again, |again, (key, value)| {
        again.option("label", Some(format!("{key}={value}")))
    });
    again.list("ignore-preflight", ignored).text()
}

/// Further fields of a node document in a request.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FurtherFields {
    labels: BTreeMap<String, String>,
    taints: Option<Value>,
    custom: Map<String, Value>,
}

impl FurtherFields {
    /// Returns true if there are fields other than labels. An empty list of taints counts: it
    /// removes the usual ones.
    fn has_more_than_labels(&self) -> bool {
        self.taints.is_some() || !self.custom.is_empty()
    }
}

/// The declared hosts as a document.
pub fn declared(nodes: Vec<v1::AddedNode>) -> NewNodes {
    let one = |node: v1::AddedNode| NewNode {
        host: node.name,
        token: node.token,
        command: node.command,
    };
    NewNodes {
        nodes: nodes.into_iter().map(one).collect(),
    }
}

/// Parses `KEY=VALUE` texts to a mapping.
fn labels(texts: &[String]) -> anyhow::Result<Map<String, Value>> {
    let pair = |text: &String| {
        let (key, value) = text
            .split_once('=')
            .with_context(|| format!("--label {text}: write KEY=VALUE"))?;
        Ok((key.to_owned(), json!(value)))
    };
    texts.iter().map(pair).collect()
}

#[cfg(test)]
#[path = "nodes_tests.rs"]
mod tests;
