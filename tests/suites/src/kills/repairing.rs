//! Kills while finished hosts are repaired: the moments are the repairs of prepared damages.

use std::fmt;

use anyhow::{Context as _, Result};
use halite_lab::cluster;
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};

use super::super::repair;
use super::commands::{RepeatedCommand, Repetition};
use super::scene::{MOMENTS, Scene};
use super::series::{Interruptible, case, interrupt};
use super::{jobs, moments};
use crate::test::Case;

/// The command that runs when the victim dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairCommand {
    /// `ctl highstate`
    Highstate,
    /// `ctl bootstrap`, on a finished host.
    Install,
}

impl fmt::Display for RepairCommand {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Highstate => "ctl highstate",
            Self::Install => "ctl bootstrap on a finished host",
        })
    }
}

impl RepairCommand {
    fn line(self) -> Vec<String> {
        match self {
            Self::Highstate => [CTL, "highstate"].map(str::to_owned).to_vec(),
            Self::Install => cluster::install(),
        }
    }
}

/// The victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// The master.
    Master,
    /// The minion of a host.
    Minion(&'static str),
    /// A whole host, by a power cut.
    Power(&'static str),
    /// The command itself.
    Ctl,
}

/// A kill while a finished host is repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// The command that runs.
    pub command: RepairCommand,
    /// The victim.
    pub victim: Victim,
    /// The moment: the repair of the damage with this index among those of the watched host.
    pub moment: usize,
}

impl Kill {
    /// The name of the host whose repair is watched.
    fn watched(self) -> &'static str {
        match (self.command, self.victim) {
            (_, Victim::Minion(host) | Victim::Power(host)) => host,
            // Late in a highstate the worker is being repaired, and the bootstrap host is done.
            (RepairCommand::Highstate, Victim::Master | Victim::Ctl) if self.moment > 0 => WORKER,
            _ => BOOTSTRAP,
        }
    }
}

impl fmt::Display for Kill {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}, {:?}, damage {}",
            self.command, self.victim, self.moment
        )
    }
}

/// The kill of the default run.
const USUAL: Kill = Kill {
    command: RepairCommand::Highstate,
    victim: Victim::Power(WORKER),
    moment: 0,
};

/// The victims of each command, ordered so that neighbours differ.
const VICTIMS: [(RepairCommand, Victim); 10] = {
    use RepairCommand::{Highstate, Install};
    use Victim::{Ctl, Master, Minion, Power};
    [
        (Highstate, Minion(BOOTSTRAP)),
        (Install, Master),
        (Highstate, Power(WORKER)),
        (Highstate, Ctl),
        (Highstate, Minion(WORKER)),
        (Install, Ctl),
        (Highstate, Power(BOOTSTRAP)),
        (Highstate, Master),
        (Install, Minion(BOOTSTRAP)),
        (Install, Power(BOOTSTRAP)),
    ]
};

/// The kills of one victim of a command, in the order of the damages, without the usual kill.
fn series(command: RepairCommand, victim: Victim) -> Vec<Kill> {
    let kills = (0..MOMENTS).map(|moment| Kill {
        command,
        victim,
        moment,
    });
    kills.filter(|kill| *kill != USUAL).collect()
}

/// A test of the usual kill, and of each series of the others.
pub(super) fn tests() -> Vec<Case<Cluster>> {
    let usual = case(format!("kills: boundary of {USUAL}"), vec![USUAL], run);
    let others = VICTIMS.into_iter().map(|(command, victim)| {
        let name = format!("kills: boundaries of {command}, {victim:?}");
        case(name, series(command, victim), run)
    });
    [usual].into_iter().chain(others).collect()
}

/// A command that repairs damaged hosts.
struct RepairingHosts<'c> {
    cluster: &'c Cluster,
    scene: Scene<'c>,
    command: RepeatedCommand<'c>,
}

/// Damages the hosts, interrupts the command at these kills, runs it again, and checks that
/// everything is repaired. Returns the kills whose moment was missed.
fn run(cluster: &Cluster, kills: &[Kill]) -> Result<Vec<Kill>> {
    let command = kills.first().context("no kill")?.command;
    let scene = Scene::prepare(cluster, command == RepairCommand::Highstate)?;
    let newest = jobs::newest(&cluster.bootstrap)?;
    let line = command.line();
    let mut repairing = RepairingHosts {
        cluster,
        scene,
        command: RepeatedCommand::start(&cluster.bootstrap, line, Repetition::Always)?,
    };
    let missed = interrupt(&mut repairing, kills)?;
    let RepairingHosts { scene, command, .. } = repairing;
    // A command that only lost its master continues, and may have succeeded.
    command.succeed(|| repair::answering(cluster))?;
    scene.is_repaired()?;
    jobs::sound(&cluster.hosts(), &newest)?;
    Ok(missed)
}

impl Interruptible for RepairingHosts<'_> {
    type Boundary = Kill;

    fn is_reached(&self, kill: Kill) -> bool {
        self.scene.is_as_before((kill.watched(), kill.moment))
    }

    fn strike(&mut self, kill: Kill) -> Result<()> {
        let cluster = self.cluster;
        self.command.interrupted();
        match kill.victim {
            Victim::Ctl => self.command.die(),
            Victim::Master => moments::die(&cluster.bootstrap, "halite-master"),
            Victim::Minion(host) => {
                moments::die(repair::damage::host(cluster, host), "halite-minion")
            }
            Victim::Power(host) => {
                let host = repair::damage::host(cluster, host);
                host.power_cut()?;
                host.boot(&cluster.lab.router)
            }
        }
    }

    fn repeat(&mut self) -> Result<bool> {
        let cluster = self.cluster;
        self.command.repeat(|_| repair::answering(cluster))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kill_is_in_one_series() {
        let others = VICTIMS.map(|(command, victim)| series(command, victim));
        let mut all = others.concat();
        all.push(USUAL);
        assert_eq!(all.len(), VICTIMS.len() * MOMENTS);
        for (number, kill) in all.iter().enumerate() {
            assert!(!all[..number].contains(kill), "{kill} occurs twice");
        }
    }
}
