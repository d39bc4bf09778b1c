//! Kills: after any process dies in the middle of a command, running the same command again ends in
//! the same state.
//!
//! Each kill has a number: a command, a victim, and a moment. While a finished host is repaired,
//! the moment is the repair of one of the prepared damages; while a new host is added or
//! bootstrapped, it is one of the listed write boundaries. The default run takes five kills,
//! different ones each day, one of them while a host is bootstrapped in a lab of its own, and one
//! while a host is added. In `--full` each of them is a test.

mod adding;
mod bootstrapping;
pub(crate) mod jobs;
pub(crate) mod moments;
mod pending_triggers;
mod power;
mod registered;
mod repairing;
mod scene;

use std::fmt;
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use crate::day::today;
use crate::test::{Case, Counts, Test, cases};

pub(crate) use power::while_off;
pub(crate) use registered::{master_answers, once};

/// Limit for a command to end after one of its programs was killed.
const COMMAND: Duration = Duration::from_secs(800);

const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "kills: the pending triggers of a killed minion fire in the next run",
        run: pending_triggers::done_later,
    },
    Test {
        name: "kills: a worker comes back from a power cut by itself",
        run: power::worker,
    },
    Test {
        name: "kills: the control plane comes back from a power cut by itself",
        run: power::bootstrap,
    },
];

const OF_THE_DAY: &[Test<Cluster>] = &[Test {
    name: "kills: five of the numbered moments",
    run: five,
}];

// The tests that remove the worker for a while are last: after a failure the cluster is not as the
// others expect.
pub(super) fn tests(full: bool) -> Vec<Case<Cluster>> {
    let numbered = if full { every() } else { cases(OF_THE_DAY) };
    cases(TESTS).into_iter().chain(numbered).collect()
}

/// One of the numbered kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbered {
    Repairing(repairing::Kill),
    Adding(moments::Kill),
    Bootstrapping(moments::Kill),
}

impl fmt::Display for Numbered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repairing(kill) => write!(
                formatter,
                "repairing: {:?}, {:?}, damage {}",
                kill.command, kill.victim, kill.moment
            ),
            Self::Adding(kill) => write!(formatter, "adding: {:?}, {:?}", kill.moment, kill.victim),
            Self::Bootstrapping(kill) => {
                write!(
                    formatter,
                    "bootstrapping: {:?}, {:?}",
                    kill.moment, kill.victim
                )
            }
        }
    }
}

/// All kills: first those while a host is repaired, then those while one is added, then those of a
/// bootstrap.
fn numbered() -> Vec<Numbered> {
    let repairs = repairing::numbered().into_iter().map(Numbered::Repairing);
    let adding = moments::numbered(&adding::KILLS)
        .into_iter()
        .map(Numbered::Adding);
    let bootstrapping = moments::numbered(&bootstrapping::KILLS)
        .into_iter()
        .map(Numbered::Bootstrapping);
    repairs.chain(adding).chain(bootstrapping).collect()
}

/// The numbers of a day's kills: three while a host is repaired, one while a host is bootstrapped,
/// and one while a host is added.
fn of_day(day: usize) -> [usize; 5] {
    let (repairs, adding, bootstraps) = (
        repairing::numbered().len(),
        moments::numbered(&adding::KILLS).len(),
        moments::numbered(&bootstrapping::KILLS).len(),
    );
    let [a, b, c] = [0, 1, 2].map(|n| (3 * day + n) % repairs);
    let bootstrap = repairs + adding + day % bootstraps;
    [a, b, c, bootstrap, repairs + day % adding]
}

/// Runs the kills of the day, or those that `HALITE_KILLS` names: `3,17`.
fn five(cluster: &Cluster) -> Result<Counts> {
    let chosen: Vec<usize> = match std::env::var("HALITE_KILLS") {
        Ok(numbers) => {
            let numbers: Result<_, _> = numbers.split(',').map(str::parse).collect();
            numbers.context("HALITE_KILLS is a list of numbers: 3,17")?
        }
        Err(_) => of_day(today()?).to_vec(),
    };
    let count = numbered().len();
    println!(
        "  {chosen:?} of {count}; to repeat one: HALITE_KILLS={}",
        chosen.first().unwrap_or(&0)
    );
    some(cluster, &chosen)
}

/// A test for each number.
fn every() -> Vec<Case<Cluster>> {
    let all = numbered().into_iter().enumerate();
    all.map(|(number, kill)| {
        let name = format!("kills: boundary {number}, {kill}");
        Case::new(name, move |cluster| some(cluster, &[number]))
    })
    .collect()
}

fn some(cluster: &Cluster, numbers: &[usize]) -> Result<Counts> {
    let all = numbered();
    let mut counts = Counts::default();
    for number in numbers {
        let kill = *all
            .get(*number)
            .with_context(|| format!("there is no kill {number}"))?;
        let start = std::time::Instant::now();
        let ended = match kill {
            Numbered::Repairing(kill) => repairing::one(cluster, kill),
            Numbered::Adding(kill) => adding::one(cluster, kill),
            Numbered::Bootstrapping(kill) => bootstrapping::one(cluster, kill),
        };
        let ended = ended.with_context(|| format!("kill {number}: {kill}"))?;
        let took = start.elapsed().as_secs_f64();
        println!(
            "  {number}: {kill}; the command ended with {ended}, and well when run again ({took:.1} s)"
        );
        counts.add(Counts::ONE);
    }
    Ok(counts)
}

/// Starts a command in a host, and discards its output.
pub(crate) fn spawn(host: &Host, line: &[String]) -> Result<Child> {
    let mut command = host.command(line)?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().context("cannot start nsenter")
}

/// Waits for the end of the command, and returns its status.
pub(crate) fn ended(command: &mut Child) -> Result<ExitStatus> {
    wait::until(
        "the command to end after the kill",
        COMMAND,
        || match command.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err(anyhow!("it still runs")),
            Err(error) => Err(error.into()),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_a_day_get_around_and_differ() {
        let all = numbered();
        let mut taken = std::collections::BTreeSet::new();
        for day in 0..all.len() {
            let chosen = of_day(day);
            let power = |number: &&usize| {
                matches!(
                    all[**number],
                    Numbered::Repairing(repairing::Kill {
                        victim: repairing::Victim::Power(_),
                        ..
                    })
                )
            };
            assert!(chosen.iter().filter(power).count() <= 2, "{chosen:?}");
            assert!(
                matches!(all[chosen[3]], Numbered::Bootstrapping(_)),
                "{chosen:?}"
            );
            assert!(matches!(all[chosen[4]], Numbered::Adding(_)), "{chosen:?}");
            taken.extend(chosen);
        }
        assert_eq!(taken.len(), all.len(), "some are never taken");
    }
}
