//! Kills while finished hosts are repaired: the moments are the repairs of prepared damages.

use std::process::{Child, ExitStatus};

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster;
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};
use halite_lab::command::run;

use super::super::repair;
use super::scene::Scene;
use super::{ended, jobs, moments, scene, spawn};

/// The command that runs when the victim dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairCommand {
    /// `ctl highstate`
    Highstate,
    /// `ctl bootstrap`, on a finished host.
    Install,
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

/// All kills, ordered so that neighbours differ in their victims.
pub fn numbered() -> Vec<Kill> {
    use RepairCommand::{Highstate, Install};
    use Victim::{Ctl, Master, Minion, Power};
    let pairs = [
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
    ];
    let at = |moment| {
        pairs.into_iter().map(move |(command, victim)| Kill {
            command,
            victim,
            moment,
        })
    };
    (0..scene::MOMENTS).flat_map(at).collect()
}

/// Damages the hosts, starts the command, kills the victim at the moment, and runs the command
/// again. Returns the status of the first command: one that only lost its master continues and
/// succeeds.
pub fn one(cluster: &Cluster, kill: Kill) -> Result<ExitStatus> {
    let scene = Scene::prepare(cluster, kill.command == RepairCommand::Highstate)?;
    let newest = jobs::newest(&cluster.bootstrap)?;
    let mut command = spawn(&cluster.bootstrap, &kill.command.line())?;
    scene.wait_for(kill.watched(), kill.moment)?;
    strike(cluster, kill.victim, &command)?;
    let status = ended(&mut command)?;
    repair::answering(cluster)?;

    let line = kill.command.line();
    let output = cluster.bootstrap.output(&line)?;
    ensure!(
        output.status.success(),
        "{} ended with {} when it was run again: {}{}",
        line.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    scene.is_repaired()?;
    jobs::sound(&cluster.hosts(), &newest)?;
    Ok(status)
}

fn strike(cluster: &Cluster, victim: Victim, command: &Child) -> Result<()> {
    match victim {
        Victim::Ctl => die_inside(command),
        Victim::Master => moments::die(&cluster.bootstrap, "halite-master"),
        Victim::Minion(host) => moments::die(repair::damage::host(cluster, host), "halite-minion"),
        Victim::Power(host) => {
            let host = repair::damage::host(cluster, host);
            host.power_cut()?;
            host.boot(&cluster.lab.router)
        }
    }
}

/// Kills the command itself, a child of the process that entered the host.
fn die_inside(command: &Child) -> Result<()> {
    let id = command.id();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
    let inside = children
        .split_whitespace()
        .next()
        .context("the command has already ended")?;
    run("kill", &["-9", inside]).map(drop)
}
