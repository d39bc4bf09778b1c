//! Moments that can be observed from outside while a host is being made: the write boundaries of
//! minion, master and state modules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use halite_lab::cluster::WORKER;
use halite_lab::host::Host;
use halite_lab::{Lab, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Limit for the moment to be reached; the last of them takes one minute, and three or four on a
/// busy machine. The end of the command also ends the wait.
const MOMENT: Duration = Duration::from_secs(540);

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
    /// A job of the new host, by its index among them, has made this progress.
    Job(usize, Progress),
}

/// One of the numbered kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// The moment of a kill.
    pub moment: Moment,
    /// The victim.
    pub victim: Victim,
}

/// Moments in order, each with its victims.
pub type Table = [(Moment, &'static [Victim])];

/// All kills of a table, ordered so that neighbours differ in their moments: first one of each
/// moment, then a second of the moments that have one.
pub fn numbered(table: &'static Table) -> Vec<Kill> {
    let most = table
        .iter()
        .map(|(_, victims)| victims.len())
        .max()
        .unwrap_or_default();
    let nth = |n: usize| {
        table.iter().filter_map(move |(moment, victims)| {
            Some(Kill {
                moment: *moment,
                victim: *victims.get(n)?,
            })
        })
    };
    (0..most).flat_map(nth).collect()
}

/// Waits for a moment of `new`, a host of the site of `bootstrap`. An error if the command ends
/// before the moment: it failed, or it never reaches that moment.
pub fn wait_for(moment: Moment, bootstrap: &Host, new: &Host, command: &mut Child) -> Result<()> {
    let over = wait::promptly("the moment", MOMENT, || {
        if is_reached(moment, bootstrap, new) {
            return Ok(None);
        }
        match command.try_wait()? {
            // The moment may have come between the two checks.
            Some(status) if !is_reached(moment, bootstrap, new) => Ok(Some(status)),
            Some(_) => Ok(None),
            None => Err(anyhow!("{moment:?} has not come")),
        }
    })?;
    match over {
        None => Ok(()),
        Some(status) => bail!("the command ended with {status} before {moment:?}"),
    }
}

/// The worker's node document, which `ctl node add` writes.
pub fn document(bootstrap: &Host) -> PathBuf {
    bootstrap.file(&format!("etc/halite/nodes/{WORKER}.yaml"))
}

fn is_reached(moment: Moment, bootstrap: &Host, new: &Host) -> bool {
    match moment {
        Moment::Declared => document(bootstrap).exists(),
        // A link's target may be visible only inside the host.
        Moment::File(path) => new.file(path).symlink_metadata().is_ok(),
        Moment::Job(number, progress) => {
            let journal = new.file("var/lib/halite/minion/journal");
            progress_of(&journal)
                .get(number)
                .is_some_and(|reached| *reached >= Some(progress))
        }
    }
}

/// The progress of each job, in order, from the minion's journal.
fn progress_of(journal: &Path) -> Vec<Option<Progress>> {
    let Ok(entries) = fs::read_dir(journal) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    files.sort();
    let progress = |path: &PathBuf| {
        let record: Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        Progress::parse(record["progress"].as_str()?)
    };
    files.iter().map(progress).collect()
}

/// Kills the victim; a host without power is switched on again.
pub fn strike(victim: Victim, lab: &Lab, bootstrap: &Host, new: &Host) -> Result<()> {
    match victim {
        Victim::Master => die(bootstrap, "halite-master"),
        Victim::Minion => die(new, "halite-minion"),
        Victim::Power => {
            new.power_cut()?;
            new.boot(&lab.router)
        }
    }
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

#[cfg(test)]
mod tests {
    use super::super::{adding, bootstrapping};
    use super::*;

    #[test]
    fn every_moment_comes_and_none_twice() {
        for table in [adding::KILLS.as_slice(), bootstrapping::KILLS.as_slice()] {
            let all = numbered(table);
            assert_eq!(
                all.len(),
                table
                    .iter()
                    .map(|(_, victims)| victims.len())
                    .sum::<usize>()
            );
            for (number, kill) in all.iter().enumerate() {
                assert!(!all[..number].contains(kill), "{kill:?} occurs twice");
            }
            for (moment, _) in table {
                assert!(
                    all.iter()
                        .take(table.len())
                        .any(|kill| kill.moment == *moment),
                    "{moment:?}"
                );
            }
        }
    }

    #[test]
    fn jobs_are_identified_by_their_order() {
        let dir = tempfile::tempdir().unwrap();
        assert!(progress_of(&dir.path().join("none")).is_empty());
        for (name, text) in [
            ("20260102000000000001.json", r#"{"progress": "started"}"#),
            ("20260102000000000000.json", r#"{"progress": "stored"}"#),
            (
                ".20260102000000000002.json.halite-new",
                r#"{"progress": "started"}"#,
            ),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let progress = progress_of(dir.path());
        assert_eq!(progress.len(), 2, "{progress:?}");
        assert!(progress[0] > Some(Progress::Returned) && progress[1] == Some(Progress::Started));
        assert!(Some(Progress::Started) > None);
    }
}
