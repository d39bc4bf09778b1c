//! `ctl node remove` and `ctl node replace`.

use anyhow::Context as _;
use halite_api::{DeclaredNode, LeavingHost, RunOutcome, to_value};
use halite_pillar::role::Role;
use halite_proto::identity::root_of;
use halite_proto::pki::Inspected;
use halite_proto::v1;
use halite_states::shipped;
use serde_json::{Value, json};

use crate::again::CommandLine;
use crate::cli::{Global, NodeRemove, NodeReplace};
use crate::commands::{destroy, node_drain, nodes, promotion};
use crate::confirm::confirmed;
use crate::orchestration_watch::{FinishedRun, print_outcome, run_orchestration, success_of};
use crate::output::Screen;
use crate::{FAILED, client, identity};

/// Runs `ctl node remove`.
///
/// # Errors
/// The master does not answer or refuses, or the removal cannot be confirmed.
pub async fn remove(global: &Global, args: &NodeRemove, screen: &mut Screen) -> anyhow::Result<u8> {
    let name = args.name.as_str();
    if args.dead && args.force {
        promotion::in_place_of(global, name, &args.cluster, args.test, screen).await?;
    }
    let facts = facts(global, name).await?;
    show_losses(&facts, screen);
    if !confirmed(
        &question(&facts),
        args.yes || args.force || args.test,
        screen,
    )? {
        return Ok(FAILED);
    }
    let success = format!("{name} has left the cluster {}", facts.cluster);
    match carry_out(global, args, &facts, screen).await? {
        Some(done) => {
            let success = success_of(&success, args.test);
            print_outcome(&done, success, &again(args).text(), screen)
        }
        None => own_has_left(&success, screen),
    }
}

/// Removes a host after the operator's confirmation. `None` if it is this host, whose access to the
/// master has ended with the last step.
///
/// # Errors
/// The master does not answer or refuses, or this host is not bare in time.
pub async fn take_out(
    global: &Global,
    args: &NodeRemove,
    screen: &mut Screen,
) -> anyhow::Result<Option<FinishedRun>> {
    let facts = facts(global, &args.name).await?;
    carry_out(global, args, &facts, screen).await
}

async fn carry_out(
    global: &Global,
    args: &NodeRemove,
    facts: &LeavingHost,
    screen: &mut Screen,
) -> anyhow::Result<Option<FinishedRun>> {
    let is_own = is_root_of(global, &args.name);
    let done = run(global, &args.name, &pillar(args, facts), args.test, screen).await;
    if done.is_err() && is_own && !global.access()?.identity.exists() {
        destroy::wait_until_bare(screen).await?;
        return Ok(None);
    }
    done.map(Some)
}

/// Answers that a host has left, and returns the exit code.
///
/// # Errors
/// The answer cannot be written.
pub fn has_left(note: String, screen: &mut Screen) -> anyhow::Result<u8> {
    let text = format!("{note}\n");
    let outcome = RunOutcome {
        notes: vec![note],
        ..RunOutcome::default()
    };
    screen.answer(&to_value(&outcome), |_| text)?;
    Ok(0)
}

/// Prints that this host has left, and returns the exit code.
///
/// # Errors
/// The answer cannot be written.
pub fn own_has_left(success: &str, screen: &mut Screen) -> anyhow::Result<u8> {
    has_left(
        format!("{success}. The access of this host to the master has ended with it."),
        screen,
    )
}

/// Returns whether the identity is root's on this control plane, which ends with its host.
pub fn is_root_of(global: &Global, name: &str) -> bool {
    let access = global.access();
    let Ok(own) = access.and_then(|access| identity::read(&access.identity)) else {
        return false;
    };
    let own = Inspected::from_pem(&own.client.certificate_pem).and_then(|own| own.identity());
    own.is_ok_and(|own| own.id() == root_of(name))
}

/// Runs `ctl node replace`: removes the remains of a lost host, and waits for a new one of that
/// name.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn replace(
    global: &Global,
    args: &NodeReplace,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let name = args.name.as_str();
    promotion::in_place_of(global, name, &args.cluster, args.test, screen).await?;
    let facts = facts(global, name).await?;
    let declared = declared(name, facts.declared.as_ref())?;
    show_losses(&facts, screen);
    let pillar = json!({
        "node": name, "dead": true, "keep": true, "force": args.force, "cluster": args.cluster,
    });
    let done = run(global, name, &pillar, args.test, screen).await?;
    if done.retcode != 0 || args.test {
        let success = success_of("", args.test);
        return print_outcome(&done, success, &replaced_again(args).text(), screen);
    }
    for note in &done.notes {
        screen.note(note.as_str());
    }
    let ignored = &args.ignore_preflight;
    let again = nodes::same_words(&declared, ignored);
    nodes::join(global, declared, &again, ignored, args.no_wait, screen).await
}

/// The master's facts about the host.
///
/// # Errors
/// The master does not answer or refuses.
pub async fn facts(global: &Global, name: &str) -> anyhow::Result<LeavingHost> {
    client::show(global, "leaving", name, Vec::new()).await
}

async fn run(
    global: &Global,
    name: &str,
    pillar: &Value,
    test: bool,
    screen: &mut Screen,
) -> anyhow::Result<FinishedRun> {
    let request = v1::OrchestrateRequest {
        sls: shipped::REMOVE_NODE.to_owned(),
        pillar_json: pillar.to_string(),
        test,
        request_id: String::new(),
    };
    run_orchestration(global, request, name, screen).await
}

/// Prints the cluster's losses if the host leaves.
fn show_losses(facts: &LeavingHost, screen: &mut Screen) {
    show(facts, facts.losses.iter(), screen);
}

/// Prints the cluster's losses if a host that stays loses these roles.
pub fn show_losses_of(
    facts: &LeavingHost,
    roles: impl IntoIterator<Item = Role>,
    screen: &mut Screen,
) {
    let losses = roles.into_iter();
    let losses = losses.filter_map(|role| facts.losses_of.get(role.as_str()));
    show(facts, losses, screen);
}

fn show<'a>(facts: &LeavingHost, losses: impl Iterator<Item = &'a String>, screen: &mut Screen) {
    for loss in losses {
        screen.note(format!("{} takes with it: {loss}", facts.host));
    }
}

fn question(facts: &LeavingHost) -> String {
    format!(
        "Remove {} from the cluster {}? Its pods are evicted, and Halite's files on it are removed.",
        facts.host, facts.cluster
    )
}

/// The pillar of the orchestration. A host that has never enrolled is not contacted.
fn pillar(args: &NodeRemove, facts: &LeavingHost) -> Value {
    let never_enrolled = !facts.enrolled && facts.declared.is_some();
    let mut drain = node_drain::options(&args.pods, args.force);
    drain.delete_emptydir_data |= args.force;
    json!({
        "node": args.name,
        "dead": args.dead || never_enrolled,
        "force": args.force,
        "cluster": args.cluster,
        "packages": args.packages,
        "wipe_data": args.wipe_data,
        "drain": drain,
    })
}

/// The command with the same words.
fn again(args: &NodeRemove) -> CommandLine {
    CommandLine::new(format!("ctl node remove {}", args.name))
        .flag(args.yes, "yes")
        .flag(args.test, "test")
        .flag(args.dead, "dead")
        .departure(args)
}

/// The replacement with the same words.
fn replaced_again(args: &NodeReplace) -> CommandLine {
    CommandLine::new(format!("ctl node replace {}", args.name))
        .flag(args.force, "force")
        .option("cluster", Some(&args.cluster))
        .list("ignore-preflight", &args.ignore_preflight)
        .flag(args.no_wait, "no-wait")
        .flag(args.test, "test")
}

/// The request that declares the node again with its declaration: the records of the lost host were
/// removed with it.
fn declared(name: &str, declared: Option<&DeclaredNode>) -> anyhow::Result<v1::AddNodeRequest> {
    let declared =
        declared.with_context(|| format!("there is no node {name}; `ctl node list` shows them"))?;
    // Only the host that founds a cluster has that role, and this one exists.
    let roles = declared.roles.iter();
    let roles = roles
        .filter(|role| *role != Role::Bootstrap.as_str())
        .cloned()
        .collect();
    let further = json!({
        "labels": declared.labels,
        "taints": declared.taints,
        "custom": declared.custom,
    });
    let address = declared.address.clone().unwrap_or_default();
    Ok(v1::AddNodeRequest {
        nodes: vec![v1::NewNode {
            name: name.to_owned(),
            address,
            ..v1::NewNode::default()
        }],
        roles,
        document_json: further.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cli::{Cli, Command, Node};

    fn arguments(words: &str) -> NodeRemove {
        let line = format!("ctl node remove {words}");
        let cli = <Cli as clap::Parser>::try_parse_from(line.split(' ')).unwrap();
        match cli.command {
            Command::Node(Node::Remove(args)) => args,
            _ => panic!("another command"),
        }
    }

    #[test]
    fn force_ends_pods_that_a_drain_alone_would_refuse() {
        let facts = |enrolled: bool, declared: Option<DeclaredNode>| LeavingHost {
            host: "a".to_owned(),
            cluster: "prod".to_owned(),
            enrolled,
            connected: false,
            losses: Vec::new(),
            losses_of: BTreeMap::new(),
            declared,
        };
        let enrolled = facts(true, Some(DeclaredNode::default()));
        let drain = json!({"delete_emptydir_data": false, "force": false, "timeout": 900});
        let expected = json!({
            "node": "a", "dead": false, "force": false, "cluster": "", "packages": false, "wipe_data": false, "drain": drain,
        });
        assert_eq!(pillar(&arguments("a --yes"), &enrolled), expected);
        let drain = json!({"delete_emptydir_data": true, "force": true, "timeout": 900});
        let expected = json!({
            "node": "a", "dead": false, "force": true, "cluster": "prod", "packages": false, "wipe_data": true, "drain": drain,
        });
        let forced = arguments("a --force --cluster prod --wipe-data");
        assert_eq!(pillar(&forced, &enrolled), expected);

        let never = facts(false, Some(DeclaredNode::default()));
        let is_dead = |facts: &LeavingHost| {
            let pillar = pillar(&arguments("a --yes"), facts).to_string();
            pillar.contains("\"dead\":true")
        };
        assert!(is_dead(&never));
        // Its document and its key are gone: there is no host to contact.
        let unknown = facts(false, None);
        assert!(!is_dead(&unknown));
    }

    #[test]
    fn the_command_to_repeat_has_the_same_words() {
        for words in [
            "a",
            "a --yes --packages --delete-emptydir-data",
            "a --dead --force --cluster prod --wipe-data",
            "a --test --grace-period 5s --timeout 1h",
        ] {
            let again = again(&arguments(words)).text();
            assert_eq!(again, format!("ctl node remove {words}"));
        }
    }

    #[test]
    fn a_replacement_is_repeated_with_the_same_words() {
        for line in [
            "ctl node replace a --force --cluster prod",
            "ctl node replace a --force --cluster prod --ignore-preflight etcd-disk,mtu --no-wait --test",
        ] {
            let cli = <Cli as clap::Parser>::try_parse_from(line.split(' ')).unwrap();
            let Command::Node(Node::Replace(args)) = cli.command else {
                panic!("another command");
            };
            assert_eq!(replaced_again(&args).text(), line);
        }
    }

    #[test]
    fn a_replacement_is_declared_as_the_lost_host_was() {
        let node = |roles: &[&str]| DeclaredNode {
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            address: Some("10.0.0.12".to_owned()),
            labels: json!({"a": "b"}),
            ..DeclaredNode::default()
        };
        let request = declared("cp-2", Some(&node(&["control-plane", "etcd"]))).unwrap();
        assert_eq!(request.roles, ["control-plane", "etcd"]);
        assert_eq!(request.nodes[0].address, "10.0.0.12");
        let further: Value = serde_json::from_str(&request.document_json).unwrap();
        assert_eq!(
            further,
            json!({"labels": {"a": "b"}, "taints": null, "custom": {}})
        );
        let first = node(&["bootstrap", "registry", "etcd", "control-plane"]);
        assert_eq!(
            declared("cp-1", Some(&first)).unwrap().roles,
            ["registry", "etcd", "control-plane"]
        );
        let error = declared("cp-2", None).unwrap_err();
        assert!(error.to_string().contains("there is no node cp-2"));
    }
}
