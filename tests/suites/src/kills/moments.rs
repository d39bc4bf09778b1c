//! Moments that can be observed from outside while a host is being made: the write boundaries of
//! minion, master and state modules.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use halite_api::{RunList, RunStatus};
use halite_lab::cluster::WORKER;
use halite_lab::host::Host;
use halite_lab::{Lab, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::commands::{RepeatedCommand, Repetition};
use super::master_answers;
use super::series::Interruptible;
use crate::ctl_answer;

/// Limit for the victim's process to exist.
const VICTIM: Duration = Duration::from_secs(90);

/// The victim of a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// The master.
    Master,
    /// The minion of the new host, or the program that enrols the host.
    Minion,
    /// The whole new host, by a power cut.
    Power,
}

/// The progress of a job in the minion's journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// Its start is durable.
    Started,
    /// Its return is durable on the minion; the master may not have it.
    Returned,
    /// Its return is durable in the master's store too.
    Stored,
}

impl Progress {
    /// Parses the journal's text form.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "started" => Some(Self::Started),
            "returned" => Some(Self::Returned),
            "stored" => Some(Self::Stored),
            _ => None,
        }
    }
}

/// The moment of a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The master has written the node document, and has not yet answered.
    Declared,
    /// A file of the new host exists.
    File(&'static str),
    /// A job of the new host has made this progress. It is identified by its index among those of
    /// the present run of the orchestration, without interrupted ones: their steps make others.
    Job(usize, Progress),
}

/// A kill: a moment with its victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// The moment of the kill.
    pub moment: Moment,
    /// The victim.
    pub victim: Victim,
}

impl fmt::Display for Kill {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}, {:?}", self.moment, self.victim)
    }
}

/// Moments in the order in which they come, each with its victims.
pub type Table = [(Moment, &'static [Victim])];

/// The kills of a table in series, without those that are tested `apart`. Number n has the n-th
/// victim of each moment that has so many, in the order of the moments.
pub(crate) fn series(table: &'static Table, apart: &[Kill]) -> Vec<Vec<Kill>> {
    let most = table.iter().map(|(_, victims)| victims.len()).max();
    let nth = |n: usize| {
        let kills = table.iter().filter_map(|(moment, victims)| {
            Some(Kill {
                moment: *moment,
                victim: *victims.get(n)?,
            })
        });
        let kills = kills.filter(|kill| !apart.contains(kill));
        kills.collect::<Vec<Kill>>()
    };
    (0..most.unwrap_or_default()).map(nth).collect()
}

/// Commands that make a host of a site.
pub(crate) struct MakingHost<'c> {
    lab: &'c Lab,
    /// The master's host.
    first: &'c Host,
    /// The host that is made; it may be the first.
    new: &'c Host,
    commands: Vec<RepeatedCommand<'c>>,
    /// Waits until a command can be run again.
    prepare: fn(&Host) -> Result<()>,
    jobs: HostJobs,
}

impl<'c> MakingHost<'c> {
    /// Running commands that make the second of the two hosts. `prepare` is called with the first
    /// one before a command is run again.
    pub(crate) fn new(
        lab: &'c Lab,
        (first, new): (&'c Host, &'c Host),
        commands: Vec<RepeatedCommand<'c>>,
        prepare: fn(&Host) -> Result<()>,
    ) -> Self {
        Self {
            lab,
            first,
            new,
            commands,
            prepare,
            jobs: HostJobs::new(new.file("var/lib/halite/minion/journal")),
        }
    }

    /// Starts the command that makes the first host of a site.
    ///
    /// # Errors
    /// The host does not run.
    pub(crate) fn first(
        lab: &'c Lab,
        host: &'c Host,
        line: Vec<String>,
        repetition: Repetition,
    ) -> Result<Self> {
        let command = RepeatedCommand::start(host, line, repetition)?;
        Ok(Self::new(lab, (host, host), vec![command], |_| Ok(())))
    }

    /// Waits for the end of the commands, and runs them once more, one after the other.
    ///
    /// # Errors
    /// One has failed without an interruption, or fails again.
    pub(crate) fn succeed(self) -> Result<()> {
        let (first, prepare) = (self.first, self.prepare);
        let mut commands = self.commands.into_iter();
        commands.try_for_each(|command| command.succeed(|| prepare(first)))
    }
}

impl Interruptible for MakingHost<'_> {
    type Boundary = Kill;

    fn is_reached(&self, kill: Kill) -> bool {
        match kill.moment {
            Moment::Declared => document(self.first).exists(),
            // A link's target may be visible only inside the host.
            Moment::File(path) => self.new.file(path).symlink_metadata().is_ok(),
            Moment::Job(number, progress) => self.jobs.have_reached(number, progress),
        }
    }

    fn strike(&mut self, kill: Kill) -> Result<()> {
        for command in &mut self.commands {
            command.interrupted();
        }
        match kill.victim {
            Victim::Master => return die(self.first, "halite-master"),
            Victim::Minion => die(self.new, "halite-minion")?,
            Victim::Power => self.new.power_cut()?,
        }
        self.jobs.interrupt();
        // Only a host without power boots.
        self.new.boot(&self.lab.router)
    }

    fn repeat(&mut self) -> Result<bool> {
        let (first, prepare, jobs) = (self.first, self.prepare, &mut self.jobs);
        let mut are_done = true;
        for command in &mut self.commands {
            are_done &= command.repeat(|status| {
                prepare(first)?;
                // A command that died with its host joins the run, which the master resumes.
                if status.code().is_some() && !has_open_run(first)? {
                    jobs.start_over();
                }
                Ok(())
            })?;
        }
        Ok(are_done)
    }
}

/// Returns whether a command that is run again joins a run. Before there is a master, there are
/// neither runs nor jobs.
fn has_open_run(first: &Host) -> Result<bool> {
    if !first.file("/var/lib/halite/master/store.db").exists() {
        return Ok(false);
    }
    master_answers(first)?;
    let list: RunList = ctl_answer::of(first, &["orchestrate", "list"])?;
    Ok(list.runs.iter().any(|run| run.status == RunStatus::Running))
}

/// The worker's node document, which `ctl node add` writes.
pub fn document(bootstrap: &Host) -> PathBuf {
    bootstrap.file(&format!("etc/halite/nodes/{WORKER}.yaml"))
}

/// The jobs of a new host, from its minion's journal.
struct HostJobs {
    journal: PathBuf,
    /// The records of jobs that ended because the minion or its host died.
    interrupted: BTreeSet<PathBuf>,
    /// The number of the other jobs that earlier runs have made.
    earlier: usize,
}

impl HostJobs {
    fn new(journal: PathBuf) -> Self {
        Self {
            journal,
            interrupted: BTreeSet::new(),
            earlier: 0,
        }
    }

    /// The records of the jobs that no death has interrupted, in the order of their starts.
    fn records(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.journal) else {
            return Vec::new();
        };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|path| {
            let is_record = path
                .extension()
                .is_some_and(|extension| extension == "json");
            is_record && !self.interrupted.contains(path)
        });
        files.sort();
        files
    }

    /// Returns whether the job of the present run with this index has made that progress.
    fn have_reached(&self, number: usize, progress: Progress) -> bool {
        let records = self.records();
        let record = records.get(self.earlier + number);
        record.is_some_and(|record| progress_of(record) >= Some(progress))
    }

    /// Records that the minion has died: leaves out the jobs that it was working on.
    fn interrupt(&mut self) {
        let mut records = self.records();
        records.retain(|record| progress_of(record) == Some(Progress::Started));
        self.interrupted.extend(records);
    }

    /// Records that another run starts, at its first step.
    fn start_over(&mut self) {
        self.earlier = self.records().len();
    }
}

/// The progress in a record of a minion's journal.
fn progress_of(record: &Path) -> Option<Progress> {
    let record: Value = serde_json::from_slice(&fs::read(record).ok()?).ok()?;
    Progress::parse(record["progress"].as_str()?)
}

/// Kills a program by its name: at first it does not belong to a unit. The machine kills it,
/// because entering the host first would take longer than many moments last.
pub fn die(host: &Host, program: &str) -> Result<()> {
    wait::promptly(&format!("a {program} to kill"), VICTIM, || {
        let found = of_host(host, program)?;
        let killed = found
            .into_iter()
            .filter(|pid| kill_process(*pid, Signal::KILL).is_ok())
            .count();
        if killed > 0 {
            Ok(())
        } else {
            Err(anyhow!("no {program} runs on {}", host.spec.name))
        }
    })
}

/// Process ids, as the machine numbers them, of a host's processes that run a program of that name,
/// without those in its pods.
fn of_host(host: &Host, program: &str) -> Result<Vec<Pid>> {
    let init = host
        .init()
        .with_context(|| format!("{} does not run", host.spec.name))?;
    let namespace = fs::read_link(format!("/proc/{init}/ns/pid"))?;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let path = entry.path();
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
        if name.trim_end() == program
            && fs::read_link(path.join("ns/pid")).is_ok_and(|ns| ns == namespace)
        {
            found.extend(
                entry
                    .file_name()
                    .to_string_lossy()
                    .parse()
                    .ok()
                    .and_then(Pid::from_raw),
            );
        }
    }
    Ok(found)
}

/// Fails unless each kill of a table is in one series, or apart.
#[cfg(test)]
pub(crate) fn each_kill_has_one_place(table: &'static Table, apart: &[Kill]) {
    let series = series(table, apart);
    assert!(series.iter().all(|kills| !kills.is_empty()));
    let all: Vec<&Kill> = series.iter().flatten().chain(apart).collect();
    let mut count = 0;
    for (moment, victims) in table {
        for victim in *victims {
            let (moment, victim) = (*moment, *victim);
            let kill = Kill { moment, victim };
            let times = all.iter().filter(|other| ***other == kill).count();
            assert_eq!(times, 1, "{kill}");
            count += 1;
        }
    }
    assert_eq!(all.len(), count);
}

#[cfg(test)]
mod tests {
    use super::super::{adding, bootstrapping};
    use super::*;

    #[test]
    fn each_kill_is_in_one_series() {
        each_kill_has_one_place(&adding::KILLS, &[adding::USUAL]);
        each_kill_has_one_place(&bootstrapping::KILLS, &[]);
        let lengths = |series: Vec<Vec<Kill>>| series.iter().map(Vec::len).collect::<Vec<_>>();
        let of_worker = series(&adding::KILLS, &[adding::USUAL]);
        assert_eq!(lengths(of_worker), [16, 14, 5]);
        assert_eq!(lengths(series(&bootstrapping::KILLS, &[])), [14, 7]);
    }

    #[test]
    fn jobs_are_identified_by_their_order_in_the_present_run() {
        use Progress::{Returned, Started, Stored};
        let dir = tempfile::tempdir().unwrap();
        assert!(HostJobs::new(dir.path().join("none")).records().is_empty());
        let record = |name: &str, progress: &str| {
            let text = format!("{{\"progress\": \"{progress}\"}}");
            fs::write(dir.path().join(name), text).unwrap();
        };
        record("20260102000000000001.json", "started");
        record("20260102000000000000.json", "stored");
        record(".20260102000000000002.json.halite-new", "started");
        let mut jobs = HostJobs::new(dir.path().to_owned());
        assert!(jobs.have_reached(0, Returned) && jobs.have_reached(0, Stored));
        assert!(jobs.have_reached(1, Started) && !jobs.have_reached(1, Returned));
        assert!(!jobs.have_reached(2, Started));
        // Its answer is that it was interrupted, and its step makes another one.
        jobs.interrupt();
        record("20260102000000000001.json", "stored");
        assert!(jobs.have_reached(0, Stored) && !jobs.have_reached(1, Started));
        record("20260102000000000003.json", "returned");
        assert!(jobs.have_reached(1, Returned) && !jobs.have_reached(1, Stored));
        jobs.start_over();
        assert!(!jobs.have_reached(0, Started));
        record("20260102000000000004.json", "started");
        assert!(jobs.have_reached(0, Started) && !jobs.have_reached(1, Started));
    }
}
