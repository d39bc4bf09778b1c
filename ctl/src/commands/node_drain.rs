//! `ctl node cordon`, `drain` and `uncordon`.

use halite_proto::v1;
use halite_states::shipped;
use serde::Serialize;
use serde_json::{Value, json};

use crate::again::CommandLine;
use crate::cli::{DrainedPods, Global, NodeDrain, OneNode};
use crate::orchestration_watch::{print_outcome, run_orchestration, success_of};
use crate::output::Screen;

/// Runs `ctl node cordon`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn cordon(global: &Global, node: &OneNode, screen: &mut Screen) -> anyhow::Result<u8> {
    let run = Run::of("cordon", shipped::CORDON_NODE, node);
    run.carry_out(global, screen).await
}

/// Runs `ctl node uncordon`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn uncordon(global: &Global, node: &OneNode, screen: &mut Screen) -> anyhow::Result<u8> {
    let run = Run::of("uncordon", shipped::UNCORDON_NODE, node);
    run.carry_out(global, screen).await
}

/// Runs `ctl node drain`.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn drain(global: &Global, args: &NodeDrain, screen: &mut Screen) -> anyhow::Result<u8> {
    let run = Run {
        name: args.name.as_str(),
        verb: "drain",
        sls: shipped::DRAIN_NODE,
        pillar: json!({"node": args.name, "drain": options(&args.pods, args.force)}),
        test: args.test,
        again: again(args),
    };
    run.carry_out(global, screen).await
}

/// The options of a drain as the orchestrations take them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DrainOptions {
    /// `true` if pods with data in an `emptyDir` are evicted, too.
    pub delete_emptydir_data: bool,
    /// `true` if pods without a controller are evicted, too.
    pub force: bool,
    /// The time for the eviction, in seconds.
    pub timeout: u64,
    /// The time for a pod to end, in seconds; `None` for its own grace period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<u64>,
}

/// The options of a drain.
pub fn options(pods: &DrainedPods, force: bool) -> DrainOptions {
    DrainOptions {
        delete_emptydir_data: pods.delete_emptydir_data,
        force,
        timeout: pods.timeout.as_secs(),
        grace_period: pods.grace_period.map(|grace| grace.as_secs()),
    }
}

/// `ctl node VERB NAME`.
fn words(verb: &str, name: &str) -> CommandLine {
    CommandLine::new(format!("ctl node {verb} {name}"))
}

/// The drain with the same words.
fn again(args: &NodeDrain) -> CommandLine {
    words("drain", args.name.as_str())
        .flag(args.force, "force")
        .pods(&args.pods)
        .flag(args.test, "test")
}

/// An orchestration of one node.
struct Run<'a> {
    name: &'a str,
    verb: &'static str,
    sls: &'static str,
    pillar: Value,
    test: bool,
    again: CommandLine,
}

impl<'a> Run<'a> {
    fn of(verb: &'static str, sls: &'static str, node: &'a OneNode) -> Self {
        Self {
            name: node.name.as_str(),
            verb,
            sls,
            pillar: json!({"node": node.name}),
            test: node.test,
            again: words(verb, node.name.as_str()).flag(node.test, "test"),
        }
    }

    async fn carry_out(self, global: &Global, screen: &mut Screen) -> anyhow::Result<u8> {
        let name = self.name;
        let request = v1::OrchestrateRequest {
            sls: self.sls.to_owned(),
            pillar_json: self.pillar.to_string(),
            test: self.test,
            request_id: String::new(),
        };
        let done = run_orchestration(global, request, name, screen).await?;
        let success = format!("node/{name} {}ed", self.verb);
        let success = success_of(&success, self.test);
        print_outcome(&done, success, &self.again.text(), screen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, Node};

    #[test]
    fn the_command_to_repeat_drains_the_same_pods() {
        for line in [
            "ctl node drain a",
            "ctl node drain a --force --delete-emptydir-data --grace-period 5s --timeout 90s --test",
        ] {
            let cli = <Cli as clap::Parser>::try_parse_from(line.split(' ')).unwrap();
            let Command::Node(Node::Drain(args)) = cli.command else {
                panic!("another command");
            };
            assert_eq!(again(&args).text(), line);
        }
    }
}
