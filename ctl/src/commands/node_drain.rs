//! `ctl node cordon`, `drain` and `uncordon`.

use halite_proto::v1;
use halite_states::shipped;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{DrainedPods, Global, NodeDrain, OneNode};
use crate::commands::again::Again;
use crate::orchestration_watch::{print_outcome, run_orchestration};
use crate::output::Screen;

/// Runs `ctl node cordon`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn cordon(global: &Global, node: &OneNode, screen: &mut Screen) -> anyhow::Result<u8> {
    let pillar = json!({"node": node.name});
    let words = words("cordon", node.name.as_str());
    run(
        global,
        node.name.as_str(),
        "cordon",
        words,
        shipped::CORDON_NODE,
        &pillar,
        screen,
    )
    .await
}

/// Runs `ctl node uncordon`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn uncordon(global: &Global, node: &OneNode, screen: &mut Screen) -> anyhow::Result<u8> {
    let pillar = json!({"node": node.name});
    let words = words("uncordon", node.name.as_str());
    run(
        global,
        node.name.as_str(),
        "uncordon",
        words,
        shipped::UNCORDON_NODE,
        &pillar,
        screen,
    )
    .await
}

/// Runs `ctl node drain`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn drain(global: &Global, args: &NodeDrain, screen: &mut Screen) -> anyhow::Result<u8> {
    let pillar = json!({"node": args.name, "drain": options(&args.pods, args.force)});
    run(
        global,
        args.name.as_str(),
        "drain",
        again(args),
        shipped::DRAIN_NODE,
        &pillar,
        screen,
    )
    .await
}

/// The options of a drain as the orchestrations take them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DrainOptions {
    /// Pods with data in an `emptyDir` are evicted, too.
    pub delete_emptydir_data: bool,
    /// Pods without a controller are evicted, too.
    pub force: bool,
    /// The time for the eviction, in seconds.
    pub timeout: u64,
    /// The time for a pod to end, in seconds; none: its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<u32>,
}

/// The options of a drain.
pub fn options(pods: &DrainedPods, force: bool) -> DrainOptions {
    DrainOptions {
        delete_emptydir_data: pods.delete_emptydir_data,
        force,
        timeout: pods.timeout.as_secs(),
        grace_period: pods.grace_period,
    }
}

/// `ctl node VERB NAME`.
fn words(verb: &str, name: &str) -> Again {
    Again::new(format!("ctl node {verb} {name}"))
}

/// The drain with the same words.
fn again(args: &NodeDrain) -> Again {
    words("drain", args.name.as_str())
        .flag(args.force, "force")
        .pods(&args.pods)
}

async fn run(
    global: &Global,
    name: &str,
    verb: &str,
    again: Again,
    sls: &str,
    pillar: &Value,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let request = v1::OrchestrateRequest {
        sls: sls.to_owned(),
        pillar_json: pillar.to_string(),
        ..v1::OrchestrateRequest::default()
    };
    let done = run_orchestration(global, request, name, screen).await?;
    let success = format!("node/{name} {verb}ed");
    print_outcome(&done, &success, &again.text(), screen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, Node};

    #[test]
    fn the_command_to_repeat_drains_the_same_pods() {
        for line in [
            "ctl node drain a",
            "ctl node drain a --force --delete-emptydir-data --grace-period 5 --timeout 90s",
        ] {
            let cli = <Cli as clap::Parser>::try_parse_from(line.split(' ')).unwrap();
            let Command::Node(Node::Drain(args)) = cli.command else {
                panic!("another command");
            };
            assert_eq!(again(&args).text(), line);
        }
    }
}
