//! Kills while finished hosts are mended: the moments are the repairs of prepared damages.

use std::process::{Child, ExitStatus};

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster;
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};
use halite_lab::command::run;

use super::super::repair;
use super::scene::Scene;
use super::{ended, jobs, moments, scene, spawn};

/// What is running when it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// `ctl highstate`
    Highstate,
    /// `ctl bootstrap`, on a finished host.
    Install,
}

impl Command {
    fn line(self) -> Vec<String> {
        match self {
            Self::Highstate => [CTL, "highstate"].map(str::to_owned).to_vec(),
            Self::Install => cluster::install(),
        }
    }
}

/// Who dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// The master.
    Master,
    /// A host's minion.
    Minion(&'static str),
    /// A host as a whole.
    Power(&'static str),
    /// The command itself.
    Ctl,
}

/// A kill while a finished host is mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// What is running.
    pub command: Command,
    /// Who dies.
    pub victim: Victim,
    /// The damage, by its place among those of the host that is watched, whose repair is the
    /// moment.
    pub moment: usize,
}

impl Kill {
    /// The host whose repair is watched.
    fn watched(self) -> &'static str {
        match (self.command, self.victim) {
            (_, Victim::Minion(host) | Victim::Power(host)) => host,
            // Late in a highstate the worker is at it, and the bootstrap host is done.
            (Command::Highstate, Victim::Master | Victim::Ctl) if self.moment > 0 => WORKER,
            _ => BOOTSTRAP,
        }
    }
}

/// All of them, so that neighbours differ in their victims.
pub fn numbered() -> Vec<Kill> {
    use Command::{Highstate, Install};
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

/// Damages, starts the command, kills at the moment, and runs the command again. Tells what the
/// first command came to: one that only lost its master goes on and ends well.
pub fn one(cluster: &Cluster, kill: Kill) -> Result<ExitStatus> {
    let scene = Scene::prepare(cluster, kill.command == Command::Highstate)?;
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
        "{} ended with {} when run again: {}{}",
        line.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    scene.is_mended()?;
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

/// Kills the command itself, which is a child of the one that went into the host.
fn die_inside(command: &Child) -> Result<()> {
    let id = command.id();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
    let inside = children
        .split_whitespace()
        .next()
        .context("the command has ended already")?;
    run("kill", &["-9", inside]).map(drop)
}
