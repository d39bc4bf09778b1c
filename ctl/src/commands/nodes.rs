//! `ctl node add` and `ctl orchestrate`.

use anyhow::{Context as _, bail};
use halite_proto::v1;
use serde_json::{Map, Value, json};

use crate::cli::{Global, Node, NodeAdd, Orchestrate};
use crate::client;
use crate::client::refused;
use crate::orchestration_watch::{print_outcome, run_orchestration};
use crate::output::Screen;

/// The orchestration that makes an enrolled host a Kubernetes node.
const ADD_NODE: &str = halite_states::shipped::ADD_NODE;

/// Runs `ctl node`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn run(global: &Global, command: Node, screen: &mut Screen) -> anyhow::Result<u8> {
    let Node::Add(args) = command;
    add(global, args, screen).await
}

async fn add(global: &Global, args: NodeAdd, screen: &mut Screen) -> anyhow::Result<u8> {
    let document_json = match labels(&args.labels)? {
        labels if labels.is_empty() => String::new(),
        labels => json!({"labels": labels}).to_string(),
    };
    let request = v1::AddNodeRequest {
        name: args.name.to_string(),
        address: args.address,
        roles: args.roles,
        document_json,
    };
    let mut operator = client::operator(global).await?;
    let reply = operator
        .add_node(request)
        .await
        .map_err(|status| refused(&status))?
        .into_inner();
    if args.no_wait {
        let document = json!({"node": args.name, "token": reply.token, "command": reply.command});
        screen.answer(&document, |_| {
            format!("Run this on {}, as root:\n\n{}\n", args.name, reply.command)
        })?;
        return Ok(0);
    }
    // In the other formats, standard output contains only the document.
    if screen.is_for_people() {
        screen.line(format!(
            "Run this on {}, as root:\n\n{}\n",
            args.name, reply.command
        ));
    } else {
        screen.note(format!(
            "Run this on {}, as root:\n\n{}\n",
            args.name, reply.command
        ));
    }
    let request = v1::OrchestrateRequest {
        sls: ADD_NODE.to_owned(),
        pillar_json: json!({"node": args.name}).to_string(),
        ..v1::OrchestrateRequest::default()
    };
    let done = run_orchestration(global, request, &args.name, screen).await?;
    let again = format!("ctl node add {}", args.name);
    print_outcome(&done, &format!("{} is Ready", args.name), &again, screen)
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

/// Runs `ctl orchestrate`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn orchestrate(
    global: &Global,
    args: &Orchestrate,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let request = v1::OrchestrateRequest {
        sls: args.sls.clone(),
        pillar_json: pillar(&args.pillar)?.to_string(),
        test: args.test,
        request_id: String::new(),
    };
    let done = run_orchestration(global, request, &args.sls, screen).await?;
    print_outcome(
        &done,
        "done",
        &format!("ctl orchestrate {}", args.sls),
        screen,
    )
}

/// Merges texts `KEY=VALUE`, with a YAML value, and JSON mappings. Later ones replace earlier ones.
fn pillar(texts: &[String]) -> anyhow::Result<Value> {
    let mut out = Map::new();
    for text in texts {
        if text.trim_start().starts_with('{') {
            let map: Map<String, Value> =
                serde_json::from_str(text).with_context(|| format!("--pillar {text}"))?;
            out.extend(map);
            continue;
        }
        let Some((key, value)) = text.split_once('=') else {
            bail!("--pillar {text}: write KEY=VALUE or a JSON mapping");
        };
        let value = halite_secrets::yaml::parse("--pillar", value)
            .map_err(|problem| anyhow::anyhow!("{problem}"))?;
        out.insert(key.to_owned(), value.to_json());
    }
    Ok(Value::Object(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pillar_values_keep_their_type() {
        let texts = ["node=worker-1", "n=3", r#"{"a": [1]}"#, "on=true"].map(str::to_owned);
        assert_eq!(
            pillar(&texts).unwrap(),
            json!({"node": "worker-1", "n": 3, "a": [1], "on": true})
        );
        assert!(pillar(&["node".to_owned()]).is_err());
    }

    #[test]
    fn labels_are_pairs() {
        assert_eq!(
            labels(&["disk=ssd".to_owned(), "e=".to_owned()]).unwrap()["disk"],
            "ssd"
        );
        assert!(labels(&["disk".to_owned()]).is_err());
    }
}
