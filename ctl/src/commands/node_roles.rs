//! `ctl node roles`.

use anyhow::bail;
use halite_pillar::role::Role;
use halite_proto::v1;
use halite_states::shipped;
use serde_json::{Map, Value, json};

use crate::again::CommandLine;
use crate::cli::{Global, NodeRoles};
use crate::commands::node_remove;
use crate::orchestration_watch::{print_outcome, run_orchestration, success_of};
use crate::output::Screen;

/// Runs `ctl node roles`.
///
/// # Errors
/// The master does not answer or refuses, or this host would lose its own access to the master.
pub async fn roles(global: &Global, args: &NodeRoles, screen: &mut Screen) -> anyhow::Result<u8> {
    let name = args.name.as_str();
    let roles = args.roles.join(",");
    let keeps = |role: Role| args.roles.iter().any(|own| own == role.as_str());
    if !keeps(Role::ControlPlane) && node_remove::is_root_of(global, name) {
        bail!(
            "cannot take the control plane from {name} with the identity of root on {name}, which ends with it; run the same \
             command on another control plane"
        );
    }
    if args.force {
        // Losses are shown before they happen.
        let facts = node_remove::facts(global, name).await?;
        let parts = [Role::Etcd, Role::ControlPlane];
        let gone = parts.into_iter().filter(|role| !keeps(*role));
        node_remove::show_losses_of(&facts, gone, screen);
    }
    let request = v1::OrchestrateRequest {
        sls: shipped::ADD_NODE.to_owned(),
        pillar_json: pillar(args).to_string(),
        test: args.test,
        request_id: String::new(),
    };
    let done = run_orchestration(global, request, name, screen).await?;
    let success = format!("{name} has the roles {roles}");
    let success = success_of(&success, args.test);
    print_outcome(&done, success, &again(args).text(), screen)
}

/// The pillar of the orchestration.
fn pillar(args: &NodeRoles) -> Value {
    let mut pillar = Map::from_iter([
        ("node".to_owned(), json!(args.name)),
        ("roles".to_owned(), json!(args.roles)),
    ]);
    if args.force {
        pillar.insert("force".to_owned(), json!(true));
        pillar.insert("cluster".to_owned(), json!(args.cluster));
    }
    if !args.ignore_preflight.is_empty() {
        let ignored = json!(args.ignore_preflight);
        pillar.insert("ignore_preflight".to_owned(), ignored);
    }
    Value::Object(pillar)
}

/// The command with the same words.
fn again(args: &NodeRoles) -> CommandLine {
    let roles = args.roles.join(",");
    CommandLine::new(format!("ctl node roles {} {roles}", args.name))
        .flag(args.force, "force")
        .option("cluster", args.force.then_some(&args.cluster))
        .list("ignore-preflight", &args.ignore_preflight)
        .flag(args.test, "test")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, Node};

    #[test]
    fn all_roles_are_named_and_the_words_to_repeat_are_the_same() {
        for words in [
            "a worker",
            "a worker,control-plane,etcd --ignore-preflight mtu",
            "a worker --force --cluster prod --test",
        ] {
            let line = format!("ctl node roles {words}");
            let cli = <Cli as clap::Parser>::try_parse_from(line.split(' ')).unwrap();
            let Command::Node(Node::Roles(args)) = cli.command else {
                panic!("another command");
            };
            assert_eq!(again(&args).text(), line);
            let wanted: Vec<&str> = words.split(' ').nth(1).unwrap().split(',').collect();
            let text = pillar(&args).to_string();
            let roles = format!("\"roles\":{}", json!(wanted));
            assert!(text.contains(&roles), "{text}");
            assert_eq!(text.contains("\"cluster\":\"prod\""), args.force, "{text}");
        }
    }
}
