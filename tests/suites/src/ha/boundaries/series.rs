//! The boundaries of one command in series: one run of it is interrupted after each step, in the
//! order of the steps.

use std::fmt;

use anyhow::{Context as _, Result};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::layout::HA;

use super::super::leader;
use super::commands::{self, COMMANDS, CtlCommand, Victim};
use super::{is_as_before, picture};
use crate::interrupted::{Repeated, in_series, kill_ctl, one_run, steps};
use crate::kills::moments;
use crate::reboots::lose_power;
use crate::test::Counts;

/// A moment of a command, and its victim.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Boundary {
    /// The step whose recorded end it is.
    step: String,
    victim: Victim,
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}", self.step, self.victim)
    }
}

/// Boundaries of one command, in the order of the steps.
#[derive(Debug, Clone)]
pub(super) struct Series {
    command: &'static CtlCommand,
    /// 0 has a boundary after each step. The others have those after which each victim dies, with
    /// another victim.
    number: usize,
    boundaries: Vec<Boundary>,
}

/// All series, command by command. Victims take turns in each of them.
pub(super) fn all() -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for command in COMMANDS {
        let steps = steps(command.sls, &(command.pillar)(), &HA)
            .with_context(|| format!("ctl {}", command.words))?;
        let count = if command.each_after.is_empty() {
            1
        } else {
            command.victims.len()
        };
        all.extend((0..count).map(|number| Series {
            command,
            number,
            boundaries: boundaries(command, &steps, number),
        }));
    }
    all.retain(|series| !series.boundaries.is_empty());
    Ok(all)
}

/// The boundaries of a series.
fn boundaries(command: &CtlCommand, steps: &[String], number: usize) -> Vec<Boundary> {
    let is_chosen = |step: &&String| {
        command
            .only
            .is_none_or(|only| only.contains(&step.as_str()))
    };
    let mut possible = command.victims.to_vec();
    let mut found = Vec::new();
    for (place, step) in steps.iter().filter(is_chosen).enumerate() {
        if command.minion_leaves == Some(step.as_str()) {
            possible.retain(|victim| *victim != Victim::Minion);
        }
        let each = command.each_after.contains(&step.as_str()) && number < possible.len();
        if number == 0 || each {
            found.push(Boundary {
                step: step.clone(),
                victim: possible[(place + number) % possible.len()],
            });
        }
    }
    found
}

impl Series {
    /// `boundaries of ctl node drain worker-1, 1`.
    pub(super) fn name(&self) -> String {
        format!("boundaries of ctl {}, {}", self.command.words, self.number)
    }

    /// Interrupts the command at each boundary.
    ///
    /// # Errors
    /// The command fails without an interruption, or fails again afterwards, or the cluster is not
    /// in its previous state.
    pub(super) fn run(&self, cluster: &Cluster) -> Result<Counts> {
        let command = self.command;
        let before = picture(cluster)?;
        in_series(&self.boundaries, |left| {
            (command.prepare)(cluster)?;
            let (missed, said) = interrupted(cluster, command, left)?;
            (command.ended)(cluster).with_context(|| format!("the command had printed: {said}"))?;
            is_as_before(cluster, &before)?;
            Ok(missed)
        })
    }
}

/// Runs the command, interrupts it at these boundaries, and repeats it until it succeeds. At the
/// last one `ctl` dies, too. Returns the boundaries whose moment was missed, and the output.
fn interrupted(
    cluster: &Cluster,
    command: &CtlCommand,
    boundaries: &[Boundary],
) -> Result<(Vec<Boundary>, String)> {
    let line = format!("ctl {}", command.words);
    let words: Vec<&str> = line.split(' ').collect();
    let mut repeated = Repeated::start(&cluster.bootstrap, &words)?
        .each_time(|| commands::keep_on(cluster, command))
        .over(|said| command.over.is_some_and(|over| said.contains(over)));
    let missed = one_run(boundaries, |place, Boundary { step, victim }| {
        let later = &boundaries[place + 1..];
        let steps: Vec<&str> = later.iter().map(|one| one.step.as_str()).collect();
        let host = struck(cluster, command, *victim)?;
        let is_at = repeated.reach(step, &steps, place == 0)?;
        if is_at {
            strike(cluster, *victim, host, later.is_empty())?;
        }
        Ok(is_at)
    })?;
    Ok((missed, repeated.succeeds()?))
}

/// The host of the victim.
fn struck<'c>(cluster: &'c Cluster, command: &CtlCommand, victim: Victim) -> Result<&'c Host> {
    let subject = command.subject;
    match victim {
        Victim::Master | Victim::Power => Ok(&cluster.bootstrap),
        Victim::Minion | Victim::Subject => {
            cluster.host(subject.context("no host is in question")?)
        }
        Victim::Leader => leader::leading(cluster, subject),
        Victim::Follower => leader::following(cluster, subject),
    }
}

/// Kills the victim, and `ctl` as well if `with_ctl` is set. A power cut of its own host also kills
/// `ctl`.
fn strike(cluster: &Cluster, victim: Victim, host: &Host, with_ctl: bool) -> Result<()> {
    let first = &cluster.bootstrap;
    if with_ctl {
        kill_ctl(first)?;
    }
    match victim {
        Victim::Master => moments::die(host, "halite-master"),
        Victim::Minion => moments::die(host, "halite-minion"),
        Victim::Power | Victim::Subject | Victim::Leader | Victim::Follower => {
            lose_power(cluster, host)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_of_each_command_is_a_boundary() {
        let all = all().unwrap();
        let of = |words: &str| -> Vec<&str> {
            let own = all
                .iter()
                .filter(|one| one.command.words.starts_with(words) && one.number == 0);
            let own = own.flat_map(|one| &one.boundaries);
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
        let all = all().unwrap();
        for command in COMMANDS {
            for step in command.each_after {
                let own = all.iter().filter(|one| one.command.words == command.words);
                let own = own.flat_map(|one| &one.boundaries);
                let victims: Vec<Victim> = own
                    .filter(|one| one.step == *step)
                    .map(|one| one.victim)
                    .collect();
                assert_eq!(victims.len(), command.victims.len());
                for victim in command.victims {
                    assert!(victims.contains(victim), "{} {step}", command.words);
                }
            }
        }
    }

    #[test]
    fn each_victim_of_a_command_has_its_turn_while_it_is_there() {
        let all = all().unwrap();
        for command in COMMANDS {
            let first = all
                .iter()
                .find(|one| one.command.words == command.words && one.number == 0);
            let own = &first.unwrap().boundaries;
            for victim in command.victims {
                let has_turn = all
                    .iter()
                    .filter(|one| one.command.words == command.words)
                    .any(|one| one.boundaries.iter().any(|one| one.victim == *victim));
                assert!(has_turn, "{}: {victim:?}", command.words);
            }
            for step in command.only.into_iter().flatten() {
                assert!(own.iter().any(|one| one.step == *step), "{step}");
            }
            let mut gone = own
                .iter()
                .skip_while(|one| Some(one.step.as_str()) != command.minion_leaves);
            assert_eq!(gone.clone().count() > 0, command.minion_leaves.is_some());
            assert!(gone.all(|one| one.victim != Victim::Minion));
        }
    }
}
