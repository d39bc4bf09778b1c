//! `ctl node cordon`, `drain` and `uncordon`.

use halite_proto::v1;
use halite_states::shipped;
use serde_json::{Value, json};

use crate::cli::{DrainedPods, Global, NodeDrain, OneNode};
use crate::orchestration_watch::{print_outcome, run_orchestration};
use crate::output::Screen;

/// Runs `ctl node cordon`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn cordon(global: &Global, node: &OneNode, screen: &mut Screen) -> anyhow::Result<u8> {
    let pillar = json!({"node": node.name});
    run(global, "cordon", shipped::CORDON_NODE, &pillar, screen).await
}

/// Runs `ctl node uncordon`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn uncordon(global: &Global, node: &OneNode, screen: &mut Screen) -> anyhow::Result<u8> {
    let pillar = json!({"node": node.name});
    run(global, "uncordon", shipped::UNCORDON_NODE, &pillar, screen).await
}

/// Runs `ctl node drain`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn drain(global: &Global, args: &NodeDrain, screen: &mut Screen) -> anyhow::Result<u8> {
    let pillar = json!({"node": args.name, "drain": options(&args.pods, args.force)});
    run(global, "drain", shipped::DRAIN_NODE, &pillar, screen).await
}

/// The options of a drain as the orchestrations take them.
pub fn options(pods: &DrainedPods, force: bool) -> Value {
    let mut options = json!({
        "delete_emptydir_data": pods.delete_emptydir_data,
        "force": force,
        "timeout": pods.timeout.as_secs(),
    });
    if let Some(seconds) = pods.grace_period {
        options["grace_period"] = json!(seconds);
    }
    options
}

async fn run(
    global: &Global,
    verb: &str,
    sls: &str,
    pillar: &Value,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let name = pillar["node"].as_str().unwrap_or_default();
    let request = v1::OrchestrateRequest {
        sls: sls.to_owned(),
        pillar_json: pillar.to_string(),
        ..v1::OrchestrateRequest::default()
    };
    let done = run_orchestration(global, request, name, screen).await?;
    let success = format!("node/{name} {verb}ed");
    let again = format!("ctl node {verb} {name}");
    print_outcome(&done, &success, &again, screen)
}
