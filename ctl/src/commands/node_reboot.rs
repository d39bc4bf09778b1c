//! `ctl node reboot`.

use halite_proto::v1;
use halite_states::shipped;
use serde_json::{Value, json};

use crate::FAILED;
use crate::again::CommandLine;
use crate::cli::{Global, NodeReboot};
use crate::commands::node_drain;
use crate::confirm::confirmed;
use crate::orchestration_watch::{print_outcome, run_orchestration, success_of};
use crate::output::Screen;

/// Runs `ctl node reboot`.
///
/// # Errors
/// The master does not answer or refuses, or the reboot cannot be confirmed.
pub async fn reboot(global: &Global, args: &NodeReboot, screen: &mut Screen) -> anyhow::Result<u8> {
    let name = args.name.as_str();
    if !confirmed(&question(args), args.yes || args.test, screen)? {
        return Ok(FAILED);
    }
    let request = v1::OrchestrateRequest {
        sls: shipped::REBOOT_NODE.to_owned(),
        pillar_json: pillar(args).to_string(),
        test: args.test,
        request_id: String::new(),
    };
    let done = run_orchestration(global, request, name, screen).await?;
    let success = format!("{name} has rebooted");
    let success = success_of(&success, args.test);
    print_outcome(&done, success, &again(args).text(), screen)
}

fn question(args: &NodeReboot) -> String {
    let pods = if args.no_drain {
        "Its pods stop with it"
    } else {
        "Its pods are evicted"
    };
    format!("Reboot {}? {pods}.", args.name)
}

/// The pillar of the orchestration.
fn pillar(args: &NodeReboot) -> Value {
    let drain = (!args.no_drain).then(|| node_drain::options(&args.pods, args.force));
    match drain {
        Some(drain) => json!({"node": args.name, "drain": drain}),
        None => json!({"node": args.name}),
    }
}

/// The command with the same words.
fn again(args: &NodeReboot) -> CommandLine {
    CommandLine::new(format!("ctl node reboot {}", args.name))
        .flag(args.yes, "yes")
        .flag(args.test, "test")
        .flag(args.no_drain, "no-drain")
        .flag(args.force, "force")
        .pods(&args.pods)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, Node};

    fn arguments(words: &str) -> NodeReboot {
        let line = format!("ctl node reboot {words}");
        let cli = <Cli as clap::Parser>::try_parse_from(line.split(' ')).unwrap();
        match cli.command {
            Command::Node(Node::Reboot(args)) => args,
            _ => panic!("another command"),
        }
    }

    #[test]
    fn a_reboot_drains_unless_it_is_not_to() {
        let plain = pillar(&arguments("a"));
        assert_eq!(
            plain,
            json!({"node": "a", "drain": {"delete_emptydir_data": false, "force": false, "timeout": 900}})
        );
        assert_eq!(pillar(&arguments("a --no-drain")), json!({"node": "a"}));
        for words in [
            "a",
            "a --yes --force --delete-emptydir-data --grace-period 5s --timeout 1m",
            "a --test --no-drain",
        ] {
            let again = again(&arguments(words)).text();
            assert_eq!(again, format!("ctl node reboot {words}"));
        }
        let question = question(&arguments("a --no-drain"));
        assert_eq!(question, "Reboot a? Its pods stop with it.");
    }
}
