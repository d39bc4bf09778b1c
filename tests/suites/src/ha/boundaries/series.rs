//! The boundaries of one command in series: one run of it is interrupted after each step, in the
//! order of the steps.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::layout::HA;
use halite_lab::wait;

use super::super::leader;
use super::commands::{self, COMMANDS, CtlCommand, Victim};
use super::{AGAIN, is_as_before, picture};
use crate::interrupted::{Running, kill_ctl, steps};
use crate::kills::moments;
use crate::test::Counts;

/// A moment of a command, and its victim.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Boundary {
    /// The step whose recorded end it is.
    step: String,
    victim: Victim,
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

    /// Interrupts the command at each boundary. A moment that has passed before it is noticed, as
    /// a resumed run does not wait for `ctl`, is among those of another run.
    ///
    /// # Errors
    /// The command fails without an interruption, or fails again afterwards, or the cluster is not
    /// in its previous state.
    pub(super) fn run(&self, cluster: &Cluster) -> Result<Counts> {
        let command = self.command;
        let before = picture(cluster)?;
        let mut left = self.boundaries.clone();
        while !left.is_empty() {
            (command.prepare)(cluster)?;
            let (missed, said) = interrupted(cluster, command, &left)?;
            (command.ended)(cluster).with_context(|| format!("the command had printed: {said}"))?;
            is_as_before(cluster, &before)?;
            left = missed;
        }
        Ok(Counts {
            passed: self.boundaries.len(),
            failed: 0,
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
    let mut missed = Vec::new();
    let mut repeated = Repeated::start(cluster, command)?;
    for (place, boundary) in boundaries.iter().enumerate() {
        let Boundary { step, victim } = boundary;
        let context = || format!("after {step}, {victim:?}");
        let host = struck(cluster, command, *victim).with_context(context)?;
        let later: Vec<&str> = boundaries[place + 1..]
            .iter()
            .map(|boundary| boundary.step.as_str())
            .collect();
        // A run that was just started cannot be ahead.
        let is_at = repeated.reach(step, place == 0).with_context(context)?
            && (place == 0 || !repeated.has_shown(&later));
        if !is_at {
            println!("  NOT interrupted after {step}, which was over before it was noticed");
            missed.push(boundary.clone());
            continue;
        }
        println!("  interrupted after {step}, {victim:?}");
        let is_last = place + 1 == boundaries.len();
        strike(cluster, *victim, host, is_last).with_context(context)?;
    }
    let said = repeated.succeeds()?;
    Ok((missed, said))
}

/// A command that is run again when it ends early.
struct Repeated<'c> {
    cluster: &'c Cluster,
    command: &'c CtlCommand,
    /// `None` once it has succeeded.
    running: Option<Running>,
    /// The output of the last one that has ended.
    said: String,
}

impl<'c> Repeated<'c> {
    fn start(cluster: &'c Cluster, command: &'c CtlCommand) -> Result<Self> {
        Ok(Self {
            cluster,
            command,
            running: Some(start(cluster, command)?),
            said: String::new(),
        })
    }

    /// Waits until the step has ended; `false` if the command has succeeded without showing that.
    /// After a power cut the cluster may refuse it for a while, but not the first time.
    fn reach(&mut self, step: &str, is_first: bool) -> Result<bool> {
        let (cluster, command) = (self.cluster, self.command);
        let limit = if is_first { Duration::ZERO } else { AGAIN };
        wait::until(&format!("the end of the step {step}"), limit, || {
            let Some(running) = &mut self.running else {
                return Ok(false);
            };
            let Err(early) = running.wait_for(step, || commands::keep_on(cluster, command)) else {
                return Ok(true);
            };
            self.ended()?;
            if self.running.is_none() {
                return Ok(false);
            }
            Err(early)
        })
    }

    /// Returns whether one of these steps has ended.
    fn has_shown(&self, steps: &[&str]) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| steps.iter().any(|step| running.has_shown(step)))
    }

    /// Waits for the end of the running command, and starts another one if it has failed.
    fn ended(&mut self) -> Result<()> {
        let (cluster, command) = (self.cluster, self.command);
        let Some(running) = self.running.take() else {
            return Ok(());
        };
        let (status, said) = running.ended(|| commands::keep_on(cluster, command))?;
        let is_over = command.over.is_some_and(|over| said.contains(over));
        self.said = said;
        if !status.success() && !is_over {
            self.running = Some(start(cluster, command)?);
        }
        Ok(())
    }

    /// Waits until the command has succeeded; returns its output.
    fn succeeds(mut self) -> Result<String> {
        wait::until("the command to succeed when it is run again", AGAIN, || {
            self.ended()?;
            ensure!(self.running.is_none(), "it ended with {}", self.said);
            Ok(())
        })?;
        Ok(self.said)
    }
}

fn start(cluster: &Cluster, command: &CtlCommand) -> Result<Running> {
    let words: Vec<&str> = ["ctl"]
        .into_iter()
        .chain(command.words.split(' '))
        .collect();
    Running::start(&cluster.bootstrap, &words)
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

/// Kills the victim, and `ctl` as well if `with_ctl` is set. A power cut of its own host also kills `ctl`.
fn strike(cluster: &Cluster, victim: Victim, host: &Host, with_ctl: bool) -> Result<()> {
    let first = &cluster.bootstrap;
    if with_ctl {
        kill_ctl(first)?;
    }
    match victim {
        Victim::Master => moments::die(host, "halite-master"),
        Victim::Minion => moments::die(host, "halite-minion"),
        Victim::Power | Victim::Subject | Victim::Leader | Victim::Follower => {
            println!("  {} loses its power", host.spec.name);
            host.power_cut()?;
            host.boot(&cluster.lab.router)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_step_of_each_command_is_a_boundary_of_a_series_with_a_name_of_its_own() {
        let all = all().unwrap();
        let names: BTreeSet<String> = all.iter().map(Series::name).collect();
        assert_eq!(names.len(), all.len());
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
