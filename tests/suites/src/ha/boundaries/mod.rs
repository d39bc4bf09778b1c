//! The numbered boundaries of the commands that change the membership of the cluster or move the
//! master, on three control planes: at each the command is interrupted, and ends in the same state
//! when it is run again.
//!
//! The victim is the master together with `ctl`, or the minion of the host in question, or the
//! power of the master's host, of the host in question or of one with a member of etcd. A further
//! command restores the previous state, and a highstate of any host has nothing to do.

mod commands;
mod masters;
mod outcomes;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use commands::{COMMANDS, CtlCommand, Victim};
use halite_api::KeyList;
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::layout::HA;
use halite_lab::wait;
use serde_json::Value;

use super::taints::lasting;
use super::{BACK, is_complete, leader, same_content};
use crate::checks::nothing_to_do;
use crate::ctl_answer;
use crate::interrupted::{Running, kill_ctl, steps};
use crate::kills::{master_answers, moments};
use crate::test::{Case, Counts};

/// Limit for a repeated command to succeed.
const AGAIN: Duration = Duration::from_secs(300);

/// One boundary of a command.
#[derive(Debug, Clone)]
struct Boundary {
    command: &'static CtlCommand,
    /// The step whose recorded end it is.
    step: String,
    victim: Victim,
}

impl Boundary {
    fn name(&self) -> String {
        format!(
            "ctl {} after {}, {:?}",
            self.command.words, self.step, self.victim
        )
    }
}

/// All boundaries, command by command, in the order of the steps. The victims take turns, except if
/// the command names steps after which each of them dies.
fn numbered() -> Result<Vec<Boundary>> {
    let mut all = Vec::new();
    for command in COMMANDS {
        let steps = steps(command.sls, &(command.pillar)(), &HA)
            .with_context(|| format!("ctl {}", command.words))?;
        let chosen = |step: &String| {
            command
                .only
                .is_none_or(|only| only.contains(&step.as_str()))
        };
        let mut possible = command.victims.to_vec();
        for (place, step) in steps.into_iter().filter(chosen).enumerate() {
            if command.minion_leaves == Some(step.as_str()) {
                possible.retain(|victim| *victim != Victim::Minion);
            }
            let victims = match command.each_after.contains(&step.as_str()) {
                true => possible.clone(),
                false => vec![possible[place % possible.len()]],
            };
            all.extend(victims.into_iter().map(|victim| Boundary {
                command,
                step: step.clone(),
                victim,
            }));
        }
    }
    Ok(all)
}

/// A boundary of any command.
#[derive(Debug, Clone)]
enum Numbered {
    /// A change of the cluster's membership.
    Hosts(Boundary),
    /// A move of the master.
    Master(masters::Boundary),
}

impl Numbered {
    fn name(&self) -> String {
        match self {
            Self::Hosts(boundary) => boundary.name(),
            Self::Master(boundary) => boundary.name(),
        }
    }

    fn run(&self, cluster: &Cluster) -> Result<Counts> {
        match self {
            Self::Hosts(boundary) => one(cluster, boundary),
            Self::Master(boundary) => masters::one(cluster, boundary),
        }
    }
}

/// The boundaries of all commands, the master's last.
fn all() -> Result<Vec<Numbered>> {
    let hosts = numbered()?.into_iter().map(Numbered::Hosts);
    let masters = masters::numbered()?.into_iter().map(Numbered::Master);
    Ok(hosts.chain(masters).collect())
}

/// A test for each boundary.
///
/// # Errors
/// An orchestration does not compile.
pub(super) fn every() -> Result<Vec<Case<Cluster>>> {
    let all = all()?.into_iter().enumerate();
    Ok(all
        .map(|(number, boundary)| {
            let name = format!("ha: boundary {number}, {}", boundary.name());
            Case::new(name, move |cluster| boundary.run(cluster))
        })
        .collect())
}

/// Interrupts the command at the boundary, runs it again, and checks the outcome.
fn one(cluster: &Cluster, boundary: &Boundary) -> Result<Counts> {
    let command = boundary.command;
    let first = &cluster.bootstrap;
    let before = picture(cluster)?;
    (command.prepare)(cluster)?;
    let words: Vec<&str> = ["ctl"]
        .into_iter()
        .chain(command.words.split(' '))
        .collect();
    let keep_on = || commands::keep_on(cluster, command);
    let struck = struck(cluster, boundary)?;
    let mut running = Running::start(first, &words)?;
    running.wait_for(&boundary.step, keep_on)?;
    strike(cluster, boundary.victim, struck)?;
    let (status, _) = running.ended(keep_on)?;
    master_answers(first)?;
    let mut tries = 0;
    // After a power cut the cluster may refuse it for a while.
    let said = wait::until("the command to succeed when it is run again", AGAIN, || {
        tries += 1;
        let (status, said) = Running::start(first, &words)?.ended(keep_on)?;
        let over = command.over.is_some_and(|over| said.contains(over));
        ensure!(status.success() || over, "it ended with {status}: {said}");
        Ok(said)
    })
    .with_context(|| format!("the first had ended with {status}"))?;
    println!(
        "  the command ended with {status}, and succeeded when it was run again; tries: {tries}"
    );
    (command.ended)(cluster).with_context(|| format!("the command had printed: {said}"))?;
    is_as_before(cluster, &before)?;
    Ok(Counts::ONE)
}

/// The host of the victim.
fn struck<'c>(cluster: &'c Cluster, boundary: &Boundary) -> Result<&'c Host> {
    let subject = boundary.command.subject;
    match boundary.victim {
        Victim::Master | Victim::Power => Ok(&cluster.bootstrap),
        Victim::Minion | Victim::Subject => {
            cluster.host(subject.context("no host is in question")?)
        }
        Victim::Leader => leader::leading(cluster, subject),
        Victim::Follower => leader::following(cluster, subject),
    }
}

/// Kills the victim, and `ctl`, which dies with the power of its own host.
fn strike(cluster: &Cluster, victim: Victim, host: &Host) -> Result<()> {
    let first = &cluster.bootstrap;
    match victim {
        Victim::Master => {
            kill_ctl(first)?;
            moments::die(host, "halite-master")
        }
        Victim::Minion => {
            moments::die(host, "halite-minion")?;
            kill_ctl(first)
        }
        Victim::Power | Victim::Subject | Victim::Leader | Victim::Follower => {
            println!("  {} loses its power", host.spec.name);
            host.power_cut()?;
            if host.spec.name != first.spec.name {
                kill_ctl(first)?;
            }
            host.boot(&cluster.lab.router)
        }
    }
}

/// The state that must be the same before and after: the keys with their states, the nodes with
/// their labels, taints and annotations, and the declared roles.
fn picture(cluster: &Cluster) -> Result<Value> {
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    let text = cluster.kubectl(&["get", "nodes", "-o", "json"])?;
    let list: Value = serde_json::from_str(&text)?;
    let nodes = list["items"].as_array().into_iter().flatten();
    let nodes: serde_json::Map<String, Value> = nodes
        .map(|node| {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            let seen = serde_json::json!({
                "labels": node["metadata"]["labels"], "taints": lasting(&node["spec"]["taints"]),
                "unschedulable": node["spec"]["unschedulable"],
                "maintenance": node["metadata"]["annotations"]["halite/maintenance"],
            });
            (name.to_owned(), seen)
        })
        .collect();
    let keys: KeyList = ctl_answer::of(&cluster.bootstrap, &["key", "list"])?;
    let keys = keys.keys.iter();
    let mut keys: Vec<String> = keys
        .map(|key| format!("{} {}", key.minion, key.state))
        .collect();
    keys.sort();
    let roles = "grep -H '^roles:' /etc/halite/nodes/*.yaml | sort";
    let roles = cluster.bootstrap.sh(roles)?;
    Ok(serde_json::json!({"nodes": nodes, "keys": keys, "roles": roles}))
}

/// Waits until the cluster has its previous state, and a highstate of any host has nothing to do.
fn is_as_before(cluster: &Cluster, before: &Value) -> Result<()> {
    wait::until("the cluster to be restored", BACK, || {
        let now = picture(cluster)?;
        ensure!(now == *before, "it was {before}, and is {now}");
        Ok(())
    })?;
    same_content(cluster)?;
    nothing_to_do(&cluster.bootstrap)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_step_of_each_command_is_a_boundary_with_a_name_of_its_own() {
        let all = numbered().unwrap();
        let names: BTreeSet<String> = all.iter().map(Boundary::name).collect();
        assert_eq!(names.len(), all.len());
        let of = |words: &str| -> Vec<&str> {
            let own = all
                .iter()
                .filter(|one| one.command.words.starts_with(words));
            own.map(|one| one.step.as_str()).collect()
        };
        assert_eq!(of("etcd recover").last(), Some(&"serves"));
        for (words, step) in [
            ("node roles", "roles"),
            ("node reboot", "rebooted"),
            ("node remove worker-1", "drained"),
            ("node remove cp-3", "member"),
            ("node add cp-3", "registered"),
            ("node add cp-3", "dns"),
            ("node replace", "fenced"),
            ("node drain", "drained"),
            ("etcd defrag", "defragmented"),
        ] {
            assert!(of(words).contains(&step), "{words}: {:?}", of(words));
        }
    }

    #[test]
    fn after_the_steps_that_change_etcd_each_victim_dies() {
        let all = numbered().unwrap();
        for command in COMMANDS {
            for step in command.each_after {
                let of_step = all
                    .iter()
                    .filter(|one| one.command.words == command.words && one.step.as_str() == *step);
                let victims: Vec<Victim> = of_step.map(|one| one.victim).collect();
                assert_eq!(victims, command.victims, "{} {step}", command.words);
            }
        }
    }

    #[test]
    fn each_victim_of_a_command_has_its_turn_while_it_is_there() {
        let all = numbered().unwrap();
        for command in COMMANDS {
            let own: Vec<&Boundary> = all
                .iter()
                .filter(|one| one.command.words == command.words)
                .collect();
            for victim in command.victims {
                let has_turn = own.iter().any(|one| one.victim == *victim);
                assert!(has_turn, "{}: {victim:?}", command.words);
            }
            for step in command.only.into_iter().flatten() {
                assert!(own.iter().any(|one| one.step == *step), "{step}");
            }
            let gone = own
                .iter()
                .skip_while(|one| Some(one.step.as_str()) != command.minion_leaves);
            assert!(gone.into_iter().all(|one| one.victim != Victim::Minion));
            let leaves = own
                .iter()
                .any(|one| Some(one.step.as_str()) == command.minion_leaves);
            assert_eq!(leaves, command.minion_leaves.is_some());
        }
    }
}
