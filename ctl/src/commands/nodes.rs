//! `ctl node add`.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use halite_api::{NewNode, NewNodes, to_value};
use halite_proto::v1;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::cli::{Global, NodeAdd};
use crate::client;
use crate::client::refused;
use crate::commands::again::CommandLine;
use crate::orchestration_watch::{
    print_outcome, print_outcomes, run_orchestration, run_orchestrations,
};
use crate::output::Screen;

/// The orchestration that makes an enrolled host a Kubernetes node.
const ADD_NODE: &str = halite_states::shipped::ADD_NODE;

/// Runs `ctl node add`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn add(global: &Global, args: &NodeAdd, screen: &mut Screen) -> anyhow::Result<u8> {
    let document_json = match labels(&args.labels)? {
        labels if labels.is_empty() => String::new(),
        labels => json!({"labels": labels}).to_string(),
    };
    let request = v1::AddNodeRequest {
        nodes: new_nodes(args)?,
        roles: args.roles.clone(),
        document_json,
    };
    join(
        global,
        request,
        &args.ignore_preflight,
        args.no_wait,
        screen,
    )
    .await
}

/// Declares nodes, unless they are already declared like this, prints the command to run on each,
/// and waits until they are Ready. The preflight continues in spite of findings of the ignored
/// checks.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn join(
    global: &Global,
    request: v1::AddNodeRequest,
    ignored: &[String],
    no_wait: bool,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let again = same_words(&request, ignored);
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
    let to_run: String = (reply.nodes.iter())
        .map(|node| {
            format!(
                "Run this on {}, as root:\n\n{}\n\n",
                node.name, node.command
            )
        })
        .collect();
    let to_run = to_run.strip_suffix('\n').unwrap_or_default();
    if no_wait {
        screen.answer(&to_value(&declared(reply.nodes)), |_| to_run.to_owned())?;
        return Ok(0);
    }
    // In the other formats, standard output contains only the document.
    if screen.is_for_people() {
        screen.line(to_run);
    } else {
        screen.note(to_run);
    }
    let run = |node: &v1::AddedNode| v1::OrchestrateRequest {
        sls: ADD_NODE.to_owned(),
        pillar_json: run_pillar(&node.name, ignored).to_string(),
        ..v1::OrchestrateRequest::default()
    };
    if let [node] = reply.nodes.as_slice() {
        let done = run_orchestration(global, run(node), &node.name, screen).await?;
        return print_outcome(&done, &format!("{} is Ready", node.name), &again, screen);
    }
    let runs = (reply.nodes.iter())
        .map(|node| (node.name.clone(), run(node)))
        .collect();
    let done = run_orchestrations(global, runs, screen).await;
    print_outcomes(&done, "is Ready", &again, screen)
}

/// The nodes of the command line.
///
/// # Errors
/// `--address` together with several names or with `NAME=ADDRESS`.
fn new_nodes(args: &NodeAdd) -> anyhow::Result<Vec<v1::NewNode>> {
    match args.nodes.as_slice() {
        [only] if only.address.is_empty() => Ok(vec![v1::NewNode {
            name: only.name.to_string(),
            address: args.address.clone(),
        }]),
        _ if !args.address.is_empty() => {
            bail!("--address is for one node; write NAME=ADDRESS for each")
        }
        several => Ok(several
            .iter()
            .map(|node| v1::NewNode {
                name: node.name.to_string(),
                address: node.address.clone(),
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
fn same_words(request: &v1::AddNodeRequest, ignored: &[String]) -> String {
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
        return format!("ctl orchestrate {ADD_NODE} --pillar '{pillar}'");
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
fn declared(nodes: Vec<v1::AddedNode>) -> NewNodes {
    let one = |node: v1::AddedNode| NewNode {
        node: node.name,
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
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> anyhow::Result<NodeAdd> {
        let line = ["ctl", "node", "add"].iter().chain(words);
        let cli = <crate::cli::Cli as clap::Parser>::try_parse_from(line)?;
        match cli.command {
            crate::cli::Command::Node(crate::cli::Node::Add(args)) => Ok(args),
            _ => bail!("another command"),
        }
    }

    #[test]
    fn the_command_to_repeat_declares_the_same() {
        let words = [
            "a=10.0.0.1",
            "b",
            "--roles",
            "worker,infra",
            "--label",
            "x=y",
            "--ignore-preflight",
            "etcd-disk,swap",
        ];
        let args = arguments(&words).unwrap();
        let request = v1::AddNodeRequest {
            nodes: new_nodes(&args).unwrap(),
            roles: args.roles.clone(),
            document_json: json!({"labels": labels(&args.labels).unwrap()}).to_string(),
        };
        let again = same_words(&request, &args.ignore_preflight);
        assert_eq!(again, format!("ctl node add {}", words.join(" ")));
    }

    #[test]
    fn a_replacement_with_taints_or_custom_values_goes_on_with_its_orchestration() {
        let again = |taints: Value, custom: Value, ignored: &[String]| {
            let further = json!({"labels": {"a": "b"}, "taints": taints, "custom": custom});
            let request = v1::AddNodeRequest {
                nodes: vec![v1::NewNode {
                    name: "w".to_owned(),
                    address: String::new(),
                }],
                roles: vec!["worker".to_owned()],
                document_json: further.to_string(),
            };
            same_words(&request, ignored)
        };
        assert_eq!(
            again(Value::Null, json!({}), &[]),
            "ctl node add w --roles worker --label a=b"
        );
        assert!(again(json!([]), json!({}), &[]).starts_with("ctl orchestrate "));
        let taints = json!([{"key": "gpu", "effect": "NoSchedule"}]);
        let tainted = again(taints, json!({}), &["swap".to_owned()]);
        let line = format!("ctl orchestrate {ADD_NODE} --pillar ");
        let pillar = tainted.strip_prefix(&line).unwrap().trim_matches('\'');
        let pillar: Value = serde_json::from_str(pillar).unwrap();
        assert_eq!(pillar, run_pillar("w", &["swap".to_owned()]));
        assert!(again(Value::Null, json!({"rack": 7}), &[]).starts_with(&line));
    }

    fn parsed(words: &[&str]) -> anyhow::Result<Vec<(String, String)>> {
        let nodes = new_nodes(&arguments(words)?)?;
        Ok(nodes
            .into_iter()
            .map(|node| (node.name, node.address))
            .collect())
    }

    #[test]
    fn nodes_are_named_with_or_without_an_address() {
        let pair = |name: &str, address: &str| (name.to_owned(), address.to_owned());
        assert_eq!(parsed(&["a"]).unwrap(), [pair("a", "")]);
        assert_eq!(
            parsed(&["a", "--address", "10.0.0.1"]).unwrap(),
            [pair("a", "10.0.0.1")]
        );
        assert_eq!(
            parsed(&["a=10.0.0.1", "b", "--roles", "worker"]).unwrap(),
            [pair("a", "10.0.0.1"), pair("b", "")]
        );
        for bad in [
            &["a=10.0.0.1", "--address", "10.0.0.1"][..],
            &["a", "b", "--address", "10.0.0.1"],
            &["a=", "b"],
            &["a=10.0.0"],
            // A check that only first hosts have, and a name of no check.
            &["a", "--ignore-preflight", "documents"],
            &["a", "--ignore-preflight", "swap,all"],
            &[],
        ] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ignored_checks_are_in_the_pillar_of_the_run() {
        let args = arguments(&["a", "--ignore-preflight", "swap,mtu"]).unwrap();
        let pillar = run_pillar("a", &args.ignore_preflight);
        assert_eq!(
            pillar,
            json!({"node": "a", "ignore_preflight": ["swap", "mtu"]})
        );
        // Without ignored checks, the run equals that of an earlier ctl.
        assert_eq!(run_pillar("a", &[]), json!({"node": "a"}));
    }

    #[test]
    fn labels_are_pairs() {
        assert_eq!(
            labels(&["disk=ssd".to_owned(), "e=".to_owned()])
                .unwrap()
                .get("disk")
                .unwrap(),
            "ssd"
        );
        assert!(labels(&["disk".to_owned()]).is_err());
    }
}
