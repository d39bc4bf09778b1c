//! A simulation of the decisions in [`super::core`] against a minion that follows the protocol,
//! over a network that loses, repeats and reorders messages, with crashes of both sides. A seed
//! determines each run; nothing sleeps.
//!
//! The rules: a job's effect happens at most once, no two state jobs run on one minion at the same
//! time, no part counts as interrupted whose return still arrives, and once the network is repaired
//! each job has a return.

use std::collections::{BTreeMap, BTreeSet};

use halite_core::clock::Steady;
use halite_proto::ids::JobId;
use halite_store::RowState;

use super::core::{DispatchLimits, OpenRow, Session, due, expired};

/// A small pseudo-random number generator (xorshift): a seed determines a whole run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    fn one_in(&mut self, limit: usize) -> bool {
        self.below(limit) == 0
    }
}

/// The network is always repaired in time.
const NO_LIMITS: DispatchLimits = DispatchLimits {
    connect: i64::MAX,
    reconnect: i64::MAX,
};

fn id(number: usize) -> JobId {
    JobId::from_number(number.try_into().unwrap())
}

#[derive(Clone, Debug)]
enum ToMinion {
    Job(usize),
    Stored(usize),
}

#[derive(Clone, Debug)]
enum ToMaster {
    Started(usize),
    Returned(usize),
}

/// The entry of a job in a minion's journal.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Entry {
    Started,
    Returned,
    /// Acknowledged; the id is retained so that a late repetition starts nothing.
    Done,
}

#[derive(Default)]
struct Minion {
    /// Survives a crash.
    journal: BTreeMap<usize, Entry>,
    running: BTreeSet<usize>,
    effects: BTreeMap<usize, u32>,
}

struct Simulation {
    dice: Dice,
    /// The store, which survives a crash of the master.
    rows: Vec<(RowState, bool)>,
    session: Session,
    minion: Minion,
    down: Vec<ToMinion>,
    up: Vec<ToMaster>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        Self {
            dice: Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            rows: Vec::new(),
            session: Session::default(),
            minion: Minion::default(),
            down: Vec::new(),
            up: Vec::new(),
        }
    }

    fn dispatch(&mut self) {
        let open = |state| matches!(state, RowState::Queued | RowState::Sent | RowState::Started);
        let rows: Vec<OpenRow> = self
            .rows
            .iter()
            .enumerate()
            .filter(|(_, (state, _))| open(*state))
            .map(|(job_id, (state, exclusive))| OpenRow {
                job_id: id(job_id),
                exclusive: *exclusive,
                state: *state,
                blocked: false,
                stoppable: false,
            })
            .collect();
        for row in &rows {
            // However late it is, a return that is under way does not expire.
            let now = Steady(i64::MAX / 2);
            let end = expired(row, &self.session, Steady(1), None, NO_LIMITS, now);
            assert_eq!(end, None, "{row:?}");
        }
        for job_id in due(&rows, &self.session) {
            let number: usize = job_id.as_str().parse().unwrap();
            self.session.sent.insert(job_id);
            if self.rows[number].0 == RowState::Queued {
                self.rows[number].0 = RowState::Sent;
            }
            self.down.push(ToMinion::Job(number));
        }
    }

    fn connect(&mut self) {
        self.disconnect();
        let running: Vec<usize> = self
            .minion
            .journal
            .iter()
            .filter(|(_, e)| **e == Entry::Started)
            .map(|(job_id, _)| *job_id)
            .collect();
        for job_id in &running {
            self.mark_started(*job_id);
        }
        let unstored = self.minion.journal.iter();
        let unstored = unstored.filter(|(_, entry)| **entry == Entry::Returned);
        let unstored = unstored.map(|(job_id, _)| id(*job_id)).collect();
        let running = running.iter().copied().map(id);
        self.session.connect(running, Some(unstored), Steady(1));
        for (job_id, entry) in &self.minion.journal {
            if let Entry::Returned = entry {
                self.up.push(ToMaster::Returned(*job_id));
            }
        }
        self.dispatch();
    }

    /// Breaks the stream; messages under way are lost.
    fn disconnect(&mut self) {
        self.session.disconnect(Steady(1));
        self.down.clear();
        self.up.clear();
    }

    fn mark_started(&mut self, job_id: usize) {
        if matches!(self.rows[job_id].0, RowState::Queued | RowState::Sent) {
            self.rows[job_id].0 = RowState::Started;
        }
    }

    fn master_receives(&mut self, message: ToMaster) {
        match message {
            ToMaster::Started(job_id) => {
                self.session.running.insert(id(job_id));
                self.mark_started(job_id);
            }
            ToMaster::Returned(job_id) => {
                self.rows[job_id].0 = RowState::Returned;
                self.session.forget(&id(job_id));
                self.down.push(ToMinion::Stored(job_id));
            }
        }
        self.dispatch();
    }

    fn minion_receives(&mut self, message: ToMinion) {
        match message {
            ToMinion::Job(job_id) => match self.minion.journal.get(&job_id) {
                None => {
                    self.minion.journal.insert(job_id, Entry::Started);
                    self.minion.running.insert(job_id);
                    *self.minion.effects.entry(job_id).or_default() += 1;
                    let rows = &self.rows;
                    let exclusive = self
                        .minion
                        .running
                        .iter()
                        .filter(|job_id| rows[**job_id].1)
                        .count();
                    assert!(exclusive <= 1, "two state jobs at once");
                    self.up.push(ToMaster::Started(job_id));
                }
                Some(Entry::Returned) => self.up.push(ToMaster::Returned(job_id)),
                Some(Entry::Started | Entry::Done) => {}
            },
            ToMinion::Stored(job_id) => {
                self.minion.journal.insert(job_id, Entry::Done);
            }
        }
    }

    fn minion_finishes(&mut self, job_id: usize) {
        self.minion.running.remove(&job_id);
        self.minion.journal.insert(job_id, Entry::Returned);
        if self.session.connected {
            self.up.push(ToMaster::Returned(job_id));
        }
    }

    fn minion_crashes(&mut self) {
        self.disconnect();
        for job_id in std::mem::take(&mut self.minion.running) {
            self.minion.journal.insert(job_id, Entry::Returned);
        }
    }

    fn step(&mut self, faults: bool) {
        match self.dice.below(if faults { 12 } else { 6 }) {
            0 if self.rows.len() < 12 && faults => {
                let exclusive = !self.dice.one_in(3);
                self.rows.push((RowState::Queued, exclusive));
                self.dispatch();
            }
            1 | 2 if !self.down.is_empty() => {
                let at = if faults {
                    self.dice.below(self.down.len())
                } else {
                    0
                };
                let message = self.down.remove(at);
                self.minion_receives(message);
            }
            3 | 4 if !self.up.is_empty() => {
                let at = if faults {
                    self.dice.below(self.up.len())
                } else {
                    0
                };
                let message = self.up.remove(at);
                self.master_receives(message);
            }
            5 if !self.minion.running.is_empty() => {
                let at = self.dice.below(self.minion.running.len());
                let job_id = *self.minion.running.iter().nth(at).unwrap();
                self.minion_finishes(job_id);
            }
            6 if !self.session.connected => self.connect(),
            7 if !self.down.is_empty() => {
                let at = self.dice.below(self.down.len());
                let again = self.down[at].clone();
                self.down.push(again);
            }
            8 if !self.up.is_empty() => {
                let at = self.dice.below(self.up.len());
                let again = self.up[at].clone();
                self.up.push(again);
            }
            9 if self.dice.one_in(3) => {
                // A message is lost although the stream stays open.
                if !self.down.is_empty() {
                    let at = self.dice.below(self.down.len());
                    self.down.remove(at);
                } else if !self.up.is_empty() {
                    let at = self.dice.below(self.up.len());
                    self.up.remove(at);
                }
            }
            10 if self.dice.one_in(4) => self.minion_crashes(),
            // The master crashes: only the session was in memory.
            11 if self.dice.one_in(4) => {
                self.disconnect();
                self.session = Session::default();
            }
            _ => {}
        }
    }

    fn is_finished(&self) -> bool {
        self.rows
            .iter()
            .all(|(state, _)| *state == RowState::Returned)
    }
}

#[test]
fn jobs_run_at_most_once_and_none_is_lost() {
    for seed in 1..=3000 {
        let mut simulation = Simulation::new(seed);
        for _ in 0..400 {
            simulation.step(true);
        }
        // The network is repaired: one new stream, in order, without loss.
        simulation.connect();
        let mut steps = 0;
        while !simulation.is_finished() {
            simulation.step(false);
            steps += 1;
            assert!(
                steps < 20_000,
                "seed {seed}: {:?} {:?} {:?}",
                simulation.rows,
                simulation.minion.journal,
                simulation.session
            );
        }
        for (job_id, effects) in &simulation.minion.effects {
            assert_eq!(*effects, 1, "seed {seed}: job {job_id}");
        }
        let answered_by_effect = simulation.rows.len() == simulation.minion.effects.len();
        assert!(
            answered_by_effect,
            "seed {seed}: an answer without an effect"
        );
    }
}
