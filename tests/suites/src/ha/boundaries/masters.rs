//! The boundaries of the commands that move the master: `ctl master promote` on a standby whose
//! master is off, and `ctl master retire` on the master's host. After each the master moves back.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_api::MasterList;
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::layout::HA;
use halite_lab::wait;
use halite_states::shipped::PROMOTED;
use serde::Deserialize;
use serde_json::json;

use super::super::retiring::retire;
use super::super::standbys::{STANDBYS, answers, stands_by, wait_for_followers};
use super::super::{BACK, is_complete};
use super::{AGAIN, is_as_before, picture};
use crate::ctl_answer::in_any_case;
use crate::interrupted::{Running, kill_ctl, steps};
use crate::kills::{master_answers, moments};
use crate::test::Counts;

/// Limit for the record of a command that moves the master.
const RECORD: Duration = Duration::from_secs(120);

/// A command that moves the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    /// On the first standby, while the master's host is off.
    Promote,
    /// On the master's host, to the first standby.
    Retire,
}

/// A moment of such a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Moment {
    /// A standby has recorded its promotion.
    Noted,
    /// The master has recorded its hand-over.
    Offered,
    /// The standby has everything: the master has recorded that it no longer serves.
    Decided,
    /// The recorded end of a step with which the hosts follow the next master.
    After(String),
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Noted => "its note",
            Self::Offered => "the offer",
            Self::Decided => "the decision",
            Self::After(step) => step,
        })
    }
}

/// The victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Victim {
    /// `halite-master`, on the host that acts at the moment, and `ctl`.
    Master,
    /// The host that acts at the moment, and `ctl`.
    Power,
}

/// One boundary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Boundary {
    pub(super) command: Move,
    moment: Moment,
    victim: Victim,
}

/// All boundaries: each moment of each command, with the victims in turn.
pub(super) fn numbered() -> Result<Vec<Boundary>> {
    let steps = steps(PROMOTED, &json!({}), &HA).context("ctl master promote")?;
    let mut all = Vec::new();
    for (command, first) in [
        (Move::Promote, vec![Moment::Noted]),
        (Move::Retire, vec![Moment::Offered, Moment::Decided]),
    ] {
        let after = steps.iter().cloned().map(Moment::After);
        let moments = first.into_iter().chain(after).enumerate();
        all.extend(moments.map(|(place, moment)| Boundary {
            command,
            moment,
            victim: [Victim::Power, Victim::Master][place % 2],
        }));
    }
    Ok(all)
}

impl Boundary {
    pub(super) fn name(&self) -> String {
        let (command, moment) = (self.command.line(), &self.moment);
        format!("{command} after {moment}, {:?}", self.victim)
    }
}

impl Move {
    /// The command.
    fn line(self) -> &'static str {
        match self {
            Self::Promote => "ctl master promote",
            Self::Retire => "ctl master retire cp-1 --to cp-2 --keep --yes",
        }
    }
}

/// The master's hosts before and after the command.
struct Sides<'c> {
    from: &'c Host,
    to: &'c Host,
}

impl<'c> Sides<'c> {
    fn new(cluster: &'c Cluster) -> Result<Self> {
        let (from, to) = (&cluster.bootstrap, cluster.host(STANDBYS[0])?);
        Ok(Self { from, to })
    }

    /// The host on which the command runs.
    fn on(&self, command: Move) -> &'c Host {
        match command {
            Move::Promote => self.to,
            Move::Retire => self.from,
        }
    }

    /// The host that acts at a moment.
    fn acts(&self, moment: &Moment) -> &'c Host {
        match moment {
            Moment::Offered | Moment::Decided => self.from,
            Moment::Noted | Moment::After(_) => self.to,
        }
    }
}

/// Interrupts the command at the boundary, runs it again, checks that the master has moved as
/// without an interruption, and moves it back.
pub(super) fn one(cluster: &Cluster, boundary: &Boundary) -> Result<Counts> {
    let sides = Sides::new(cluster)?;
    let before = picture(cluster)?;
    let masters = wait_for_followers(sides.from, &STANDBYS)?;
    let epoch = masters.epoch.context("no epoch")?;
    let off = [sides.from.spec.name.clone()];
    if boundary.command == Move::Promote {
        cluster.lab.power_off(&off, false)?;
    }
    let words: Vec<&str> = boundary.command.line().split(' ').collect();
    let on = sides.on(boundary.command);
    let mut running = Running::start(on, &words)?;
    let hit = reach(&mut running, &boundary.moment, &sides)?;
    println!("  {}", hit.line(&boundary.moment));
    strike(cluster, boundary, &sides)?;
    let (status, said) = running.ended(|| Ok(()))?;
    let mut tries = 0;
    let again = wait::until("the command to succeed when it is run again", AGAIN, || {
        tries += 1;
        let (status, said) = Running::start(on, &words)?.ended(|| Ok(()))?;
        ensure!(status.success(), "it ended with {status}: {said}");
        Ok(said)
    })
    .with_context(|| format!("the first had ended with {status}: {said}"))?;
    println!(
        "  the command ended with {status}, and succeeded when it was run again; tries: {tries}"
    );
    has_moved(cluster, boundary.command, &sides, epoch)
        .with_context(|| format!("the command had printed: {again}"))?;
    retire(sides.from, &["cp-2", "--to", "cp-1", "--keep"])?;
    wait_for_followers(sides.from, &STANDBYS)?;
    is_as_before(cluster, &before)?;
    Ok(Counts::ONE)
}

/// The part of a command that was found at the interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hit {
    /// The moment itself.
    Named,
    /// The phase after it: a record exists for only an instant.
    Later,
}

impl Hit {
    fn line(self, moment: &Moment) -> String {
        match self {
            Self::Named => format!("interrupted after {moment}"),
            Self::Later => format!(
                "NOT interrupted after {moment}, which was over before it was noticed: the phase after it was interrupted"
            ),
        }
    }
}

/// Waits for the moment, or for the phase after it.
fn reach(running: &mut Running, moment: &Moment, sides: &Sides<'_>) -> Result<Hit> {
    let Moment::After(step) = moment else {
        return wait::promptly(&format!("{moment:?}"), RECORD, || {
            Notes::read(sides).hit(moment).context("it has not come")
        });
    };
    running.wait_for(step, || Ok(()))?;
    Ok(Hit::Named)
}

/// The files that record the progress of a move of the master.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Notes {
    /// The next host has recorded its promotion.
    promotion: bool,
    /// The phase of the hand-over that the previous host has recorded.
    phase: Option<String>,
    /// The previous host is a standby.
    from_follows: bool,
    /// The next host is a standby.
    to_follows: bool,
}

/// The record of a master that hands over.
#[derive(Deserialize)]
struct HandOverNote {
    phase: String,
}

impl Notes {
    fn read(sides: &Sides<'_>) -> Self {
        let state =
            |host: &Host, name: &str| -> PathBuf { host.file("/var/lib/halite/master").join(name) };
        let follows = |host: &Host| state(host, "standby-of").exists();
        let note = std::fs::read(state(sides.from, "hand-over.json")).ok();
        let note = note.and_then(|text| serde_json::from_slice::<HandOverNote>(&text).ok());
        Self {
            phase: note.map(|note| note.phase),
            promotion: state(sides.to, "promotion.json").exists(),
            from_follows: follows(sides.from),
            to_follows: follows(sides.to),
        }
    }

    /// The moment, if a file records it, or the phase after it.
    fn hit(&self, moment: &Moment) -> Option<Hit> {
        let phase = self.phase.as_deref();
        let (named, later) = match moment {
            Moment::Noted => (self.promotion, !self.to_follows),
            Moment::Offered => (
                phase == Some("offered"),
                phase == Some("decided") || self.from_follows,
            ),
            Moment::Decided => (phase == Some("decided"), self.from_follows),
            Moment::After(_) => (false, false),
        };
        match (named, later) {
            (true, _) => Some(Hit::Named),
            (false, true) => Some(Hit::Later),
            (false, false) => None,
        }
    }
}

/// Kills the victim, and `ctl`, which dies with the power of its own host.
fn strike(cluster: &Cluster, boundary: &Boundary, sides: &Sides<'_>) -> Result<()> {
    let victim = sides.acts(&boundary.moment);
    let on = sides.on(boundary.command);
    match boundary.victim {
        Victim::Master => {
            kill_ctl(on)?;
            moments::die(victim, "halite-master")
        }
        Victim::Power => {
            victim.power_cut()?;
            if on.spec.name != victim.spec.name {
                kill_ctl(on)?;
            }
            victim.boot(&cluster.lab.router)
        }
    }
}

/// The next host has the master with a higher epoch, all hosts call it, and the previous one
/// follows it.
fn has_moved(cluster: &Cluster, command: Move, sides: &Sides<'_>, epoch: u64) -> Result<()> {
    let (from, to) = (sides.from, sides.to);
    let own = from.spec.name.as_str();
    if command == Move::Promote {
        answers(cluster, to, own)?;
        wait_for_followers(to, &STANDBYS[1..])?;
        cluster.lab.power_on(&[own.to_owned()])?;
        wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
        answers(cluster, to, "")?;
        to.run(&["ctl", "highstate", own])?;
    }
    master_answers(to)?;
    answers(cluster, to, "")?;
    let masters = wait_for_followers(to, &[own, STANDBYS[1]])?;
    ensure!(
        masters.epoch.is_some_and(|now| now > epoch),
        "the epoch was {epoch}: {masters:?}"
    );
    // The previous host stands by.
    stands_by(from)?;
    wait::until("a cluster without problems of its masters", BACK, || {
        let (_, masters): (_, MasterList) = in_any_case(to, &["master", "list"])?;
        ensure!(masters.problems.is_empty(), "{masters:?}");
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_moment_is_not_mistaken_for_the_named_one() {
        let offered = Notes {
            phase: Some("offered".to_owned()),
            to_follows: true,
            ..Notes::default()
        };
        let decided = Notes {
            phase: Some("decided".to_owned()),
            ..offered.clone()
        };
        let noted = Notes {
            promotion: true,
            ..decided.clone()
        };
        let moved = Notes {
            from_follows: true,
            ..Notes::default()
        };
        let before = Notes {
            to_follows: true,
            ..Notes::default()
        };
        let failed = Notes {
            phase: Some("failed".to_owned()),
            ..before.clone()
        };
        for (notes, at) in [
            (&before, [None, None, None]),
            // It still serves: no part of the move has happened.
            (&failed, [None, None, None]),
            (&offered, [Some(Hit::Named), None, None]),
            (&decided, [Some(Hit::Later), Some(Hit::Named), None]),
            (
                &noted,
                [Some(Hit::Later), Some(Hit::Named), Some(Hit::Named)],
            ),
            (&moved, [Some(Hit::Later); 3]),
        ] {
            let moments = [Moment::Offered, Moment::Decided, Moment::Noted];
            let found = moments.map(|moment| notes.hit(&moment));
            assert_eq!(found, at, "{notes:?}");
        }
        let line = Hit::Later.line(&Moment::Offered);
        assert!(
            line.starts_with("NOT interrupted after the offer"),
            "{line}"
        );
    }

    #[test]
    fn each_step_of_both_commands_is_a_boundary() {
        let all = numbered().unwrap();
        let of = |command: Move| -> Vec<String> {
            let own = all.iter().filter(|one| one.command == command);
            own.map(|one| match &one.moment {
                Moment::After(step) => step.clone(),
                other => format!("{other:?}"),
            })
            .collect()
        };
        let steps = ["enrolled", "host", "clients", "masters", "minions"];
        assert_eq!(of(Move::Promote), [&["Noted"][..], &steps].concat());
        assert_eq!(
            of(Move::Retire),
            [&["Offered", "Decided"][..], &steps].concat()
        );
        for victim in [Victim::Master, Victim::Power] {
            assert!(all.iter().any(|one| one.victim == victim));
        }
    }
}
