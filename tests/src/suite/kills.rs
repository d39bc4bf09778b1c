//! Kills: whatever dies in the middle, running the same command again ends in the same state.
//!
//! Each kill has a number: a command, a victim, and a moment, which is the repair of one of the prepared damages. The
//! default run takes four, others each day; `--full` takes all.

mod jobs;
mod power;
mod scene;

use std::{
    process::{Child, ExitStatus, Stdio},
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, ensure};

use self::scene::Scene;
use super::{Counts, Test, repair};
use crate::{
    cluster::{BOOTSTRAP, BUNDLE, Cluster, WORKER},
    lab::{command::run, wait},
};

/// For a command that lost somebody in the middle to end.
const COMMAND: Duration = Duration::from_secs(400);

/// Kills of one default run.
const EACH_DAY: usize = 4;

const WORKER_BACK: Test<Cluster> =
    Test { name: "kills: a worker comes back from a power cut by itself", run: power::worker };

const CONTROL_PLANE_BACK: Test<Cluster> =
    Test { name: "kills: the control plane comes back from a power cut by itself", run: power::bootstrap };

const DAILY: &[Test<Cluster>] =
    &[Test { name: "kills: four of the numbered moments", run: four }, WORKER_BACK, CONTROL_PLANE_BACK];

const FULL: &[Test<Cluster>] =
    &[Test { name: "kills: every numbered moment", run: every }, WORKER_BACK, CONTROL_PLANE_BACK];

pub(super) fn tests(full: bool) -> &'static [Test<Cluster>] {
    if full { FULL } else { DAILY }
}

/// What is running when it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    /// `ctl highstate`
    Highstate,
    /// `install`, on a finished host.
    Install,
}

impl Command {
    fn line(self) -> Vec<String> {
        let install = format!("{BUNDLE}/install");
        let words: &[&str] = match self {
            Self::Highstate => &[repair::CTL, "highstate"],
            Self::Install => &[&install, "--config", "/root/cluster.yaml", "--yes"],
        };
        words.iter().map(ToString::to_string).collect()
    }
}

/// Who dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Master,
    Minion(&'static str),
    Power(&'static str),
    Ctl,
}

/// One of the numbered kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kill {
    command: Command,
    victim: Victim,
    /// The damage, by its place among those of the host that is watched, whose repair is the moment.
    moment: usize,
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
fn numbered() -> Vec<Kill> {
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
    let at = |moment| pairs.into_iter().map(move |(command, victim)| Kill { command, victim, moment });
    (0..scene::MOMENTS).flat_map(at).collect()
}

/// The day.
fn seed() -> Result<usize> {
    let days = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs() / 86_400;
    Ok(usize::try_from(days)?)
}

/// Those of the day, or those that `HALITE_KILLS` names: `3,17`.
fn four(cluster: &Cluster) -> Result<Counts> {
    let count = numbered().len();
    let chosen: Vec<usize> = match std::env::var("HALITE_KILLS") {
        Ok(numbers) => {
            let numbers: Result<_, _> = numbers.split(',').map(str::parse).collect();
            numbers.context("HALITE_KILLS is a list of numbers: 3,17")?
        }
        Err(_) => {
            let first = seed()? * EACH_DAY;
            (first..first + EACH_DAY).map(|number| number % count).collect()
        }
    };
    println!("  {chosen:?} of {count}; to repeat one: HALITE_KILLS={}", chosen.first().unwrap_or(&0));
    some(cluster, &chosen)
}

fn every(cluster: &Cluster) -> Result<Counts> {
    some(cluster, &(0..numbered().len()).collect::<Vec<_>>())
}

fn some(cluster: &Cluster, numbers: &[usize]) -> Result<Counts> {
    let all = numbered();
    let mut counts = Counts::default();
    for number in numbers {
        let kill = *all.get(*number).with_context(|| format!("there is no kill {number}"))?;
        let start = std::time::Instant::now();
        let ended = one(cluster, kill).with_context(|| format!("kill {number}: {kill:?}"))?;
        let took = start.elapsed().as_secs_f64();
        println!(
            "  {number}: {kill:?}; the command ended with {ended}, and well when run again ({took:.1} s)"
        );
        counts.add(Counts::ONE);
    }
    Ok(counts)
}

/// Damages, starts the command, kills at the moment, and runs the command again. Tells what the first command came to:
/// one that only lost its master goes on and ends well.
fn one(cluster: &Cluster, kill: Kill) -> Result<ExitStatus> {
    let scene = Scene::prepare(cluster, kill.command == Command::Highstate)?;
    let newest = jobs::newest(cluster)?;
    let mut command = start(cluster, kill.command)?;
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
    jobs::sound(cluster, &newest)?;
    Ok(status)
}

fn start(cluster: &Cluster, command: Command) -> Result<Child> {
    let mut command = cluster.bootstrap.command(&command.line())?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().context("cannot start nsenter")
}

fn strike(cluster: &Cluster, victim: Victim, command: &Child) -> Result<()> {
    match victim {
        Victim::Ctl => die_inside(command),
        Victim::Master => die(cluster, BOOTSTRAP, "halite-master"),
        Victim::Minion(host) => die(cluster, host, "halite-minion"),
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
    let inside = children.split_whitespace().next().context("the command has ended already")?;
    run("kill", &["-9", inside]).map(drop)
}

fn die(cluster: &Cluster, host: &str, unit: &str) -> Result<()> {
    repair::damage::host(cluster, host)
        .run(&["systemctl", "kill", "--signal=KILL", "--kill-whom=main", unit])
        .map(drop)
}

/// Waits for the end of the command, whatever it comes to.
fn ended(command: &mut Child) -> Result<ExitStatus> {
    wait::until("the command to end after the kill", COMMAND, || match command.try_wait() {
        Ok(Some(status)) => Ok(status),
        Ok(None) => Err("it still runs".to_owned()),
        Err(error) => Err(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_a_day_get_around_and_differ() {
        let all = numbered();
        assert_eq!(all.len(), 10 * scene::MOMENTS);
        for first in 0..all.len() {
            let victims: Vec<Victim> = (0..EACH_DAY).map(|n| all[(first + n) % all.len()].victim).collect();
            let power = victims.iter().filter(|victim| matches!(victim, Victim::Power(_))).count();
            assert!(power <= 2, "{victims:?}");
        }
    }
}
