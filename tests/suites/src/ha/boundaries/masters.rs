//! The boundaries of the commands that move the master: `ctl master promote` on a standby whose
//! master is off, and `ctl master retire` on the master's host. One run of each is interrupted at
//! one boundary after the other. Then the master moves back.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use halite_api::{HandOver, HandOverPhase, MasterList};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::layout::HA;
use halite_lab::wait;
use halite_states::shipped::PROMOTED;
use serde_json::json;

use super::super::retiring::retire;
use super::super::standbys::{STANDBYS, answers, stands_by, wait_for_followers};
use super::super::{BACK, is_complete};
use super::{is_as_before, picture};
use crate::ctl_answer::in_any_case;
use crate::interrupted::{Repeated, in_series, kill_ctl, one_run, steps};
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

impl Moment {
    /// The step whose recorded end it is.
    fn step(&self) -> Option<&str> {
        match self {
            Self::Noted | Self::Offered | Self::Decided => None,
            Self::After(step) => Some(step),
        }
    }
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
enum Victim {
    /// `halite-master`, on the host that acts at the moment.
    Master,
    /// The host that acts at the moment, and `ctl`.
    Power,
}

/// One boundary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Boundary {
    moment: Moment,
    victim: Victim,
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}", self.moment, self.victim)
    }
}

/// Each moment of each command, in order, with the victims in turn.
///
/// # Errors
/// The orchestration does not compile.
pub(super) fn all() -> Result<Vec<(Move, Vec<Boundary>)>> {
    let steps = steps(PROMOTED, &json!({}), &HA).context("ctl master promote")?;
    let boundaries = |first: &[Moment]| -> Vec<Boundary> {
        let after = steps.iter().cloned().map(Moment::After);
        let moments = first.iter().cloned().chain(after);
        let victims = [Victim::Power, Victim::Master].into_iter().cycle();
        moments
            .zip(victims)
            .map(|(moment, victim)| Boundary { moment, victim })
            .collect()
    };
    let retire = boundaries(&[Moment::Offered, Moment::Decided]);
    Ok(vec![
        (Move::Promote, boundaries(&[Moment::Noted])),
        (Move::Retire, retire),
    ])
}

impl Move {
    /// The command.
    pub(super) fn line(self) -> &'static str {
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

/// Interrupts the command at each boundary. After each run the master has moved as without an
/// interruption, and moves back.
///
/// # Errors
/// The command fails without an interruption, or fails again afterwards, or the cluster is not in
/// its previous state.
pub(super) fn run(cluster: &Cluster, command: Move, boundaries: &[Boundary]) -> Result<Counts> {
    let sides = Sides::new(cluster)?;
    let before = picture(cluster)?;
    in_series(boundaries, |left| {
        let masters = wait_for_followers(sides.from, &STANDBYS)?;
        let epoch = masters.epoch.context("no epoch")?;
        let (missed, said) = interrupted(cluster, command, &sides, left)?;
        has_moved(cluster, command, &sides, epoch)
            .with_context(|| format!("the command had printed: {said}"))?;
        retire(sides.from, &["cp-2", "--to", "cp-1", "--keep"])?;
        wait_for_followers(sides.from, &STANDBYS)?;
        is_as_before(cluster, &before)?;
        Ok(missed)
    })
}

/// Runs the command, interrupts it at these boundaries, and repeats it until it succeeds. Returns
/// the boundaries whose moment was missed, and the output.
fn interrupted(
    cluster: &Cluster,
    command: Move,
    sides: &Sides<'_>,
    boundaries: &[Boundary],
) -> Result<(Vec<Boundary>, String)> {
    if command == Move::Promote {
        let off = [sides.from.spec.name.clone()];
        cluster.lab.power_off(&off, false)?;
    }
    let words: Vec<&str> = command.line().split(' ').collect();
    let on = sides.on(command);
    let mut repeated = Repeated::start(on, &words)?;
    let missed = one_run(boundaries, |place, Boundary { moment, victim }| {
        let later = &boundaries[place + 1..];
        let steps: Vec<&str> = later.iter().filter_map(|one| one.moment.step()).collect();
        let is_at = match moment.step() {
            Some(step) => repeated.reach(step, &steps, place == 0)?,
            None => wait::promptly(&moment.to_string(), RECORD, || {
                if let Some(is_named) = Notes::read(sides).at(moment) {
                    return Ok(is_named);
                }
                let said = repeated.keep_on()?;
                bail!("it has not come; the last command that has ended said: {said}")
            })?,
        };
        if is_at {
            let is_last = later.is_empty();
            strike(cluster, *victim, sides.acts(moment), on, is_last)?;
        }
        Ok(is_at)
    })?;
    Ok((missed, repeated.succeeds()?))
}

/// The files that record the progress of a move of the master.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Notes {
    /// The next host has recorded its promotion.
    promotion: bool,
    /// The phase of the hand-over that the previous host has recorded.
    phase: Option<HandOverPhase>,
    /// The previous host is a standby.
    from_follows: bool,
    /// The next host is a standby.
    to_follows: bool,
}

impl Notes {
    fn read(sides: &Sides<'_>) -> Self {
        let state =
            |host: &Host, name: &str| -> PathBuf { host.file("/var/lib/halite/master").join(name) };
        let follows = |host: &Host| state(host, "standby-of").exists();
        let note = std::fs::read(state(sides.from, HandOver::FILE)).ok();
        let note = note.and_then(|text| serde_json::from_slice::<HandOver>(&text).ok());
        Self {
            phase: note.map(|note| note.phase),
            promotion: state(sides.to, "promotion.json").exists(),
            from_follows: follows(sides.from),
            to_follows: follows(sides.to),
        }
    }

    /// Returns whether the files show the moment, and not the phase after it: a record exists for
    /// only an instant. `None` before the moment.
    fn at(&self, moment: &Moment) -> Option<bool> {
        let is = |phase: HandOverPhase| self.phase == Some(phase);
        let (named, later) = match moment {
            Moment::Noted => (self.promotion, !self.to_follows),
            Moment::Offered => (
                is(HandOverPhase::Offered),
                is(HandOverPhase::Decided) || self.from_follows,
            ),
            Moment::Decided => (is(HandOverPhase::Decided), self.from_follows),
            Moment::After(_) => (false, false),
        };
        (named || later).then_some(named)
    }
}

/// Kills the victim, which is the host that acts, or its master. `ctl`, which runs on `on`, dies
/// with each power cut, and at the last boundary.
fn strike(cluster: &Cluster, victim: Victim, acts: &Host, on: &Host, is_last: bool) -> Result<()> {
    match victim {
        Victim::Master => {
            if is_last {
                kill_ctl(on)?;
            }
            moments::die(acts, "halite-master")
        }
        Victim::Power => {
            println!("  {} loses its power", acts.spec.name);
            acts.power_cut()?;
            if on.spec.name != acts.spec.name {
                // On another host it would notice the loss late, and miss the next steps.
                kill_ctl(on)?;
            }
            acts.boot(&cluster.lab.router)
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
            phase: Some(HandOverPhase::Offered),
            to_follows: true,
            ..Notes::default()
        };
        let decided = Notes {
            phase: Some(HandOverPhase::Decided),
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
            phase: Some(HandOverPhase::Failed),
            ..before.clone()
        };
        for (notes, at) in [
            (&before, [None, None, None]),
            // It still serves: no part of the move has happened.
            (&failed, [None, None, None]),
            (&offered, [Some(true), None, None]),
            (&decided, [Some(false), Some(true), None]),
            (&noted, [Some(false), Some(true), Some(true)]),
            (&moved, [Some(false); 3]),
        ] {
            let moments = [Moment::Offered, Moment::Decided, Moment::Noted];
            let found = moments.map(|moment| notes.at(&moment));
            assert_eq!(found, at, "{notes:?}");
        }
    }

    #[test]
    fn each_moment_of_both_commands_is_a_boundary_with_the_victims_in_turn() {
        let all = all().unwrap();
        let of = |command: Move| -> Vec<String> {
            let own = all.iter().filter(|(other, _)| *other == command);
            let own = own.flat_map(|(_, boundaries)| boundaries);
            own.map(ToString::to_string).collect()
        };
        assert_eq!(
            of(Move::Promote),
            [
                "its note, Power",
                "enrolled, Master",
                "host, Power",
                "clients, Master",
                "masters, Power",
                "minions, Master",
            ]
        );
        assert_eq!(
            of(Move::Retire),
            [
                "the offer, Power",
                "the decision, Master",
                "enrolled, Power",
                "host, Master",
                "clients, Power",
                "masters, Master",
                "minions, Power",
            ]
        );
    }
}
