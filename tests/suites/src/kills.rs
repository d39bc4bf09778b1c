//! Kills: after any process dies in the middle of a command, running the same command again ends in
//! the same state.
//!
//! Each kill has a number, and is a test: a command, a victim, and a moment. While a finished host is
//! repaired, the moment is the repair of one of the prepared damages; while a new host is added or
//! bootstrapped, it is one of the listed write boundaries.

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

use anyhow::{Context as _, Result, anyhow};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

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

// The tests that remove the worker for a while are last: after a failure the cluster is not in the
// state that the others expect.
pub(super) fn tests() -> Vec<Case<Cluster>> {
    cases(TESTS).into_iter().chain(every()).collect()
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

/// A test for each number.
fn every() -> Vec<Case<Cluster>> {
    let all = numbered().into_iter().enumerate();
    all.map(|(number, kill)| {
        let name = format!("kills: boundary {number}, {kill}");
        Case::new(name, move |cluster| {
            let ended = match kill {
                Numbered::Repairing(kill) => repairing::one(cluster, kill),
                Numbered::Adding(kill) => adding::one(cluster, kill),
                Numbered::Bootstrapping(kill) => bootstrapping::one(cluster, kill),
            }?;
            println!("  the command ended with {ended}, and succeeded when it was run again");
            Ok(Counts::ONE)
        })
    })
    .collect()
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
