//! Commands that are interrupted at the end of each of their steps, in the order in which the steps
//! end: the master, a minion or a host dies. A moment that was missed is left for another run of
//! the command.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use crate::interrupted::Running;
use crate::kills::{master_answers, moments};
use crate::reboots::lose_power;
use crate::test::Counts;

/// Limit for a command that is run again to be interrupted again, or to succeed. After a power cut
/// the cluster may refuse it for a while.
const AGAIN: Duration = Duration::from_secs(600);

/// The pause before a command that has just failed is run again.
const PAUSE: Duration = Duration::from_secs(3);

/// The time in which a command that joins a run shows the steps that have ended.
const BURST: Duration = Duration::from_millis(50);

/// At most one of this many boundaries may be missed.
const MISSED: usize = 4;

/// The part of a step's line if hosts were left out because they were off.
const LEFT_OUT: &str = "(offline: ";

/// The starts of the names of steps of the worker that do not have its name.
const OF_THE_WORKER: [&str; 4] = ["workers-", "nodes-", "hosts-", "images-workers"];

/// The victim at the end of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepVictim {
    /// The master.
    Master,
    /// The minion of the step's host.
    Minion,
    /// The step's host, by a power cut.
    Host,
}

/// A moment of a command, and its victim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StepBoundary {
    /// The step whose end it is.
    pub(crate) step: String,
    pub(crate) victim: StepVictim,
}

/// The ends of a command's steps that are not momentary, in the order of the steps.
pub(crate) struct StepBoundaries<'c> {
    cluster: &'c Cluster,
    steps: Vec<String>,
    /// The number of boundaries.
    all: usize,
    /// The boundaries at which the command has not been interrupted.
    left: Vec<StepBoundary>,
    /// The last interruption, for messages; `None` before the first one.
    last: Option<String>,
}

/// A command from its start to its end.
struct Attempt {
    has_succeeded: bool,
    /// The number of interruptions.
    strikes: usize,
    /// Its output.
    said: String,
}

impl Attempt {
    /// Returns whether the command has brought nothing forward.
    fn is_idle(&self) -> bool {
        !self.has_succeeded && self.strikes == 0
    }
}

impl<'c> StepBoundaries<'c> {
    /// A boundary after each step that is not momentary, with the victims in turn.
    pub(crate) fn new(cluster: &'c Cluster, steps: Vec<String>, victims: &[StepVictim]) -> Self {
        let left = boundaries(&steps, victims);
        Self {
            cluster,
            steps,
            all: left.len(),
            left,
            last: None,
        }
    }

    /// Runs the command on the first host, and interrupts it at each boundary that is left. Until
    /// it has succeeded, it is run again: it joins the run that the master has resumed, or starts
    /// with the first step.
    ///
    /// # Errors
    /// The command fails without an interruption, or fails repeatedly after one.
    pub(crate) fn run(&mut self, words: &[&str]) -> Result<()> {
        self.last = None;
        loop {
            let attempt = self.continued(words);
            let attempt = attempt.with_context(|| match &self.last {
                Some(last) => format!("the last interruption was {last}"),
                None => "nothing was interrupted".to_owned(),
            })?;
            if attempt.has_succeeded {
                return Ok(());
            }
            ensure!(
                self.last.is_some(),
                "the command failed without an interruption: {}",
                attempt.said
            );
            println!("  the command is run again");
        }
    }

    /// Runs the command until it has been interrupted again, or has succeeded.
    fn continued(&mut self, words: &[&str]) -> Result<Attempt> {
        wait::until("the command to continue", AGAIN, || {
            match self.attempt(words) {
                Ok(attempt) if attempt.is_idle() && self.last.is_some() => {
                    thread::sleep(PAUSE);
                    Err(anyhow!("it ended with: {}", attempt.said))
                }
                ended => Ok(ended),
            }
        })?
    }

    /// Runs the command once, and interrupts it at the boundaries that are left.
    fn attempt(&mut self, words: &[&str]) -> Result<Attempt> {
        let cluster = self.cluster;
        let first = &cluster.bootstrap;
        master_answers(first)?;
        let mut running = Running::start(first, words)?;
        let mut shown: Vec<String> = Vec::new();
        let (mut strikes, mut is_over, mut leaves_out) = (0, false, false);
        while let Some(line) = running.next_end(shown.len())? {
            let step = step_of(&line).to_owned();
            shown.push(step.clone());
            leaves_out |= line.contains(LEFT_OUT);
            if !is_done(&line) {
                continue;
            }
            is_over |= self.steps.last() == Some(&step);
            let Some(place) = self.left.iter().position(|one| one.step == step) else {
                continue;
            };
            // A resumed run does not wait for `ctl`, so later steps may have ended, too. One that
            // is joined has many ends to show.
            if strikes == 0 && self.last.is_some() {
                thread::sleep(BURST);
            }
            let mut later =
                (self.steps.iter()).filter(|other| !shown.contains(other) && !is_momentary(other));
            if later.any(|other| running.has_shown(other)) {
                println!("  NOT interrupted after {step}, which was over before it was noticed");
                continue;
            }
            let boundary = self.left.remove(place);
            let what = format!("after {step}, {:?}", boundary.victim);
            println!("  interrupted {what}");
            strike(cluster, &boundary).with_context(|| what.clone())?;
            strikes += 1;
            self.last = Some(what);
        }
        let (status, said) = running.ended(|| Ok(()))?;
        // `ctl` dies with the power of its host, also after the last step. A host that was off at
        // its step is included when the command is run again.
        Ok(Attempt {
            has_succeeded: (status.success() || is_over) && !leaves_out,
            strikes,
            said,
        })
    }

    /// Returns whether few enough boundaries are left.
    pub(crate) fn are_enough(&self) -> bool {
        self.left.len() * MISSED <= self.all
    }

    /// The number of boundaries at which the command has been interrupted.
    ///
    /// # Errors
    /// Too many boundaries were missed.
    pub(crate) fn counts(&self) -> Result<Counts> {
        let (all, left) = (self.all, self.left.len());
        let names: Vec<&str> = self.left.iter().map(|one| one.step.as_str()).collect();
        ensure!(
            self.are_enough(),
            "{left} of {all} boundaries were missed: {}",
            names.join(", ")
        );
        Ok(Counts {
            passed: all - left,
            failed: 0,
        })
    }
}

/// Returns whether a step only asks for something, or records it: it ends within milliseconds, and
/// `ctl` shows the end of the next step at once. Tests in one process interrupt such steps.
fn is_momentary(step: &str) -> bool {
    let name = step.strip_suffix("-again").unwrap_or(step);
    ["turn", "end"].contains(&name)
        || name.starts_with("stage-")
        || ["-turn", "-may-restart", "-leader", "-drained-vip"]
            .iter()
            .any(|end| name.ends_with(end))
}

/// A boundary after each step that is not momentary, with the victims in turn.
pub(crate) fn boundaries(steps: &[String], victims: &[StepVictim]) -> Vec<StepBoundary> {
    let lasting = steps.iter().filter(|step| !is_momentary(step));
    let turns = lasting.zip(victims.iter().cycle());
    turns
        .map(|(step, victim)| StepBoundary {
            step: step.clone(),
            victim: *victim,
        })
        .collect()
}

/// The step whose end a line shows: `etcd  stage-trust ✓  1.2 s`.
fn step_of(line: &str) -> &str {
    let after = line.split_once("  ").map(|(_, after)| after);
    let step = after.and_then(|after| after.split(' ').next());
    step.unwrap_or_default()
}

/// Returns whether the step of a line was done on all of its hosts. After a failure, the steps that
/// the run does not reach have lines, too.
fn is_done(line: &str) -> bool {
    line.contains(" ✓") && !line.contains(LEFT_OUT)
}

/// Returns whether a step has the name of a host: `cp-2-etcd`.
fn is_named_after(step: &str, host: &str) -> bool {
    let rest = step.strip_prefix(host);
    rest.is_some_and(|rest| rest.starts_with('-'))
}

/// The host of a step. Steps of the master, and those of several control planes, belong to the
/// master's host.
fn host_of<'c>(cluster: &'c Cluster, step: &str) -> &'c Host {
    let mut hosts = cluster.hosts().into_iter();
    let named = hosts.find(|host| is_named_after(step, &host.spec.name));
    let is_of_the_worker = OF_THE_WORKER.iter().any(|start| step.starts_with(start));
    match named {
        Some(host) => host,
        None if is_of_the_worker => &cluster.worker,
        None => &cluster.bootstrap,
    }
}

/// Kills the victim; a host without power is switched on again.
fn strike(cluster: &Cluster, boundary: &StepBoundary) -> Result<()> {
    let host = host_of(cluster, &boundary.step);
    match boundary.victim {
        StepVictim::Master => moments::die(&cluster.bootstrap, "halite-master"),
        StepVictim::Minion => moments::die(host, "halite-minion"),
        StepVictim::Host => lose_power(cluster, host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_step_and_says_whether_all_hosts_were_there() {
        for (line, step, done) in [
            ("etcd  stage-trust ✓  1.2 s", "stage-trust", true),
            ("bundle 1.0-next  cp-1-turn ✓", "cp-1-turn", true),
            (
                "bundle 1.0  standbys (offline: cp-2) ✓  5.0 s",
                "standbys",
                false,
            ),
            ("bundle 1.0  cp-2-vip –", "cp-2-vip", false),
            ("bundle 1.0", "", false),
        ] {
            assert_eq!((step_of(line), is_done(line)), (step, done), "{line}");
        }
    }

    #[test]
    fn a_step_has_the_name_of_its_host() {
        assert!(is_named_after("cp-1-etcd", "cp-1"));
        assert!(!is_named_after("cp-10-etcd", "cp-1"));
        assert!(!is_named_after("objects", "cp-1"));
    }

    #[test]
    fn victims_take_turns_at_the_steps_that_take_time() {
        let steps = ["turn", "a", "cp-1-turn", "cp-1-drained-leader", "b", "c"].map(str::to_owned);
        let victims = [StepVictim::Host, StepVictim::Master];
        let found: Vec<StepVictim> = boundaries(&steps, &victims)
            .into_iter()
            .map(|one| one.victim)
            .collect();
        let [host, master] = victims;
        assert_eq!(found, [host, master, host]);
    }
}
