//! Control planes that are lost in the middle of a command about them, while a client writes: after
//! each step of their addition and of their removal. The command waits for the host, says so, and
//! is cancelled; another one continues without the host.

use std::iter;
use std::process::ExitStatus;

use anyhow::{Result, ensure};
use halite_api::{RunStatus, RunSummary};
use halite_lab::cluster::Cluster;
use halite_lab::layout::HA;
use halite_lab::wait;
use halite_states::shipped::{ADD_NODE, REMOVE_NODE, UPGRADE};
use serde_json::{Value, json};

use super::cancelled::runs;
use super::fewer::as_before;
use super::leaving::{enrolled_again, wait_until_lost};
use super::losses::{GAP, at_the_vip};
use super::stalls::{end, end_the_wait};
use super::standbys::STANDBYS;
use super::{BACK, is_complete};
use crate::interrupted::{Running, steps};
use crate::test::{Case, Counts};
use crate::{etcd, guide};

/// The roles of an additional control plane.
const ROLES: &str = "control-plane,etcd";
/// The page and the heading of the commands that remove a control plane.
const LEAVES: [&str; 2] = ["high-availability.md", "## A control plane leaves"];
/// The heading of the page about disasters with the command that replaces it.
const LOST: &str = "## A control plane is lost";

/// A command about a control plane, which dies after one of its steps.
#[derive(Debug)]
struct Command {
    /// The action of the command, in the names of the tests.
    doing: &'static str,
    /// Its orchestration.
    sls: &'static str,
    /// Its pillar, as far as the steps depend on it.
    pillar: fn() -> Value,
    /// The steps after which the loss of the host has the same effect as after another step.
    left_out: &'static [&'static str],
    /// Loses the host after a step, and restores the previous state.
    run: fn(&Cluster, &str) -> Result<Counts>,
}

const COMMANDS: &[Command] = &[
    Command {
        doing: "adding",
        sls: ADD_NODE,
        pillar: || json!({"node": STANDBYS[1]}),
        left_out: &[
            // `peers` is a step of the other hosts: as after `peers`, the preflight gets no answer.
            "enrolled",
            // The master takes a lock and makes a learner of a host that it need not contact: as
            // after `learner`.
            "late-peers",
            "turn",
            // Steps of the master and of the other hosts, up to `masters`: as after `registered`.
            "turn-ends",
            "api-clients",
            "node",
            // A step of the other hosts: as after `ready`.
            "other-masters",
            // The last one: the command has succeeded, and the lost host is one of three control
            // planes.
            "pod-network",
        ],
        run: while_added,
    },
    Command {
        doing: "removing",
        sls: REMOVE_NODE,
        pillar: || json!({"node": STANDBYS[0], "drain": {}}),
        left_out: &[
            // `allowed` has ended before the master can notice the loss: as after `allowed`.
            "turn",
            // A step of the API, without the host: as after `host`.
            "node",
            // The host has left: no step waits for it any more.
            "minion",
            "undeclared",
            "peers",
            "names",
            "masters",
            "key",
        ],
        run: while_removed,
    },
];

/// Waits whose line does not name the disconnected host, and which are too long for a test: the
/// guide cancels the run.
const LONG: [&str; 4] = ["promoted", "drained", "ready", "dns"];
/// The steps of an upgrade with such waits end with their names.
const LONG_OF_AN_UPGRADE: [&str; 3] = ["may-restart", "drained", "ready"];

/// The steps after which a host dies, command by command. They are read from the tree: a new step
/// is included at once.
fn all() -> Result<Vec<(&'static Command, String)>> {
    let mut all = Vec::new();
    for command in COMMANDS {
        let mut own = steps(command.sls, &(command.pillar)(), &HA)?;
        own.retain(|step| !command.left_out.contains(&step.as_str()));
        all.extend(own.into_iter().map(|step| (command, step)));
    }
    Ok(all)
}

/// A test for each of them.
///
/// # Errors
/// An orchestration does not compile.
pub(super) fn numbered() -> Result<Vec<Case<Cluster>>> {
    let all = all()?;
    let count = all.len();
    let numbered = (1..=count).zip(all);
    Ok(numbered
        .map(|(number, (command, step))| {
            let doing = command.doing;
            let name = format!("ha: dies {number} of {count}, {doing}, after {step}");
            Case::new(name, move |cluster| (command.run)(cluster, &step))
        })
        .collect())
}

/// A new control plane dies when a step of its addition has ended. It is replaced.
fn while_added(cluster: &Cluster, step: &str) -> Result<Counts> {
    let first = &cluster.bootstrap;
    let name = STANDBYS[1];
    let add = enrolled_again(cluster, name, ROLES)?;
    let measured = at_the_vip(cluster, first, "dies-added", || {
        let running = Running::start(first, &add)?;
        dies(cluster, running, step, name)?;
        guide::replace(cluster, first, LOST, name)?;
        wait::until("three control planes", BACK, || is_complete(cluster))
    })?;
    measured.check("a control plane dies while it is added", GAP)?;
    as_before(cluster)
}

/// A control plane dies when a step of its removal has ended. It is removed as a dead one, unless
/// the command has finished without it, and added again.
fn while_removed(cluster: &Cluster, step: &str) -> Result<Counts> {
    let first = &cluster.bootstrap;
    let name = STANDBYS[0];
    let [page, heading] = LEAVES;
    // The host in the guide has the same name.
    let command = |with: &str| {
        let begin = format!("ctl node remove {name} {with}");
        guide::command(page, heading, &begin)
    };
    let (alive, dead) = (command("--force")?, command("--dead")?);
    let measured = at_the_vip(cluster, first, "dies-removed", || {
        let running = Running::start(first, &alive)?;
        let (status, _) = ends_without(cluster, running, step, name)?;
        if !status.success() {
            wait_until_lost(cluster, name)?;
            let said = first.run(&dead)?;
            println!("  {}", said.trim().replace('\n', "\n  "));
        }
        etcd::status(first, "2 members, none may fail")?;
        wait::until("the host to be forgotten", BACK, || {
            let nodes = cluster.kubectl(&["get", "nodes", "-o", "name"])?;
            ensure!(!nodes.contains(name), "{nodes}");
            let keys = first.run(&["ctl", "key", "list"])?;
            ensure!(!keys.contains(name), "{keys}");
            Ok(())
        })?;
        cluster.lab.power_on(&[name.to_owned()])?;
        cluster.join(&[name])?;
        wait::until("three control planes", BACK, || is_complete(cluster))
    })?;
    measured.check("a control plane dies while it is removed", GAP)?;
    as_before(cluster)
}

/// Destroys a host when a step of a command has ended. The command waits for the host until it is
/// cancelled as its line suggests, or ends by itself, and has failed.
fn dies(cluster: &Cluster, running: Running, step: &str, name: &str) -> Result<()> {
    let (status, said) = ends_without(cluster, running, step, name)?;
    ensure!(
        !status.success(),
        "the command succeeded without its host: {said}"
    );
    // A host that was there a moment ago may not be treated as dead.
    wait_until_lost(cluster, name)
}

/// Destroys a host when a step of a command has ended, and cancels each wait for the host. Returns
/// the command's exit status and output.
pub(super) fn ends_without(
    cluster: &Cluster,
    mut running: Running,
    step: &str,
    name: &str,
) -> Result<(ExitStatus, String)> {
    let first = &cluster.bootstrap;
    running.wait_for(step, || Ok(()))?;
    let before = running.line_count();
    cluster.lab.power_off(&[name.to_owned()], true)?;
    let away = format!("{name} is not connected, and may still work on the job ");
    let long = LONG.iter().map(|step| format!("  {step}: waiting for "));
    let of_an_upgrade = LONG_OF_AN_UPGRADE.iter();
    let of_an_upgrade = of_an_upgrade.map(|step| format!("-{step}: waiting for "));
    let parts: Vec<String> = iter::once(away.clone())
        .chain(long)
        .chain(of_an_upgrade)
        .collect();
    let is_wait = |line: &str| parts.iter().any(|part| line.contains(part.as_str()));
    // Earlier steps may have waited, too.
    let mut seen = before;
    // A step that no other one requires leaves a further one, which waits for the same host.
    while let Some((lines, line)) = running.next_line(seen, is_wait)? {
        seen = lines;
        println!("  {}", line.trim());
        if line.contains(&away) {
            end_the_wait(first, &line)?;
        } else {
            end_the_run(cluster, name)?;
        }
    }
    let (status, said) = running.ended(|| Ok(()))?;
    println!("  without {name} it ended with {status}");
    Ok((status, said))
}

/// Cancels the run about a host that the master knows to be lost, unless it has ended by itself.
fn end_the_run(cluster: &Cluster, name: &str) -> Result<()> {
    wait_until_lost(cluster, name)?;
    let first = &cluster.bootstrap;
    let runs = runs(first)?;
    // An upgrade is about all hosts.
    let is_own = |run: &RunSummary| run.on.as_deref() == Some(name) || run.sls == UPGRADE;
    let mut own = runs
        .iter()
        .filter(|run| is_own(run) && run.status == RunStatus::Running);
    own.try_for_each(|run| end(first, &["ctl", "orchestrate", "cancel", &run.run]))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn after(doing: &str) -> Vec<String> {
        let all = all().unwrap().into_iter();
        let own = all.filter(|(command, _)| command.doing == doing);
        own.map(|(_, step)| step).collect()
    }

    #[test]
    fn a_host_dies_after_each_step_with_an_effect_of_its_own() {
        assert_eq!(
            after("adding"),
            [
                "peers",
                "preflight",
                "host",
                "containerd",
                "kubelet",
                "learner",
                "earlier-member",
                "etcd",
                "promoted",
                "control-plane",
                "registered",
                "masters",
                "components",
                "ready",
                "dns",
                "custom",
            ]
        );
        assert_eq!(
            after("removing"),
            [
                "allowed",
                "mounts",
                "vip",
                "address",
                "drained",
                "control-plane",
                "member",
                "host",
            ]
        );
    }

    #[test]
    fn left_out_steps_and_long_waits_exist() {
        let mut known = BTreeSet::new();
        for command in COMMANDS {
            let own = steps(command.sls, &(command.pillar)(), &HA).unwrap();
            for step in command.left_out {
                assert!(own.iter().any(|own| own == step), "{step}: {own:?}");
            }
            known.extend(own);
        }
        for step in LONG {
            assert!(known.contains(step), "{step}: {known:?}");
        }
        let pillar = json!({"bundle": "0.0.0-next", "drain": {}});
        let of_an_upgrade = steps(UPGRADE, &pillar, &HA).unwrap();
        for end in LONG_OF_AN_UPGRADE.map(|step| format!("-{step}")) {
            let mut ends = of_an_upgrade.iter().filter(|step| step.ends_with(&end));
            assert!(ends.next().is_some(), "{end}: {of_an_upgrade:?}");
        }
    }

    #[test]
    fn each_loss_is_a_test_with_its_number_and_its_step() {
        let names: Vec<String> = numbered()
            .unwrap()
            .into_iter()
            .map(|one| one.name)
            .collect();
        let last = names.len();
        assert_eq!(
            names[0],
            format!("ha: dies 1 of {last}, adding, after peers")
        );
        assert_eq!(
            names[last - 1],
            format!("ha: dies {last} of {last}, removing, after host")
        );
    }
}
