//! Jobs that have not ended, in memory.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use halite_core::clock::{Clock, Steady};
use halite_proto::ids::MinionId;
use halite_store::{Job, Millis, RowState, SteadyDeadline, StoredPart};
use tokio::sync::Notify;

use super::core::DispatchLimits;
use super::function::Function;

/// An open job in memory, all of which can be read from the store again.
pub(super) struct OpenJob {
    /// The stored job.
    pub(super) job: Arc<Job>,
    pub(super) function: &'static Function,
    /// A previous master has made it.
    pub(super) is_inherited: bool,
    pub(super) deadline: Option<Steady>,
    pub(super) limits: DispatchLimits,
    /// The minions whose part has not ended.
    pub(super) pending: BTreeSet<MinionId>,
    /// The index of the first group that has not ended.
    group: usize,
    /// The open parts of that group once all of it is released: until they have ended, the end of a
    /// part releases no other. Without this, each of a thousand returns would inspect a thousand
    /// parts.
    released: BTreeSet<MinionId>,
    /// The first minion whose part failed.
    failed: Option<MinionId>,
    /// Hosts before whose parts etcd is asked.
    gates: BTreeSet<MinionId>,
    /// The host about which a task must ask now, and all hosts about which a task is asking.
    at_gate: Option<MinionId>,
    asking: BTreeSet<MinionId>,
    /// Hosts that are repaired in parallel, because etcd had no quorum to lose.
    together: BTreeSet<MinionId>,
    /// The time from which each minion's part may be sent.
    pub(super) ready_since: BTreeMap<MinionId, Steady>,
    /// Stops the work of the part of the target `master`, once it has started.
    pub(super) stop_here: Option<Arc<Notify>>,
    /// `true` while a task records that the job has ended.
    is_ending: bool,
    /// The number of parts that were inspected for their release.
    #[cfg(test)]
    inspected: usize,
}

impl OpenJob {
    pub(super) fn new(
        function: &'static Function,
        job: &Arc<Job>,
        parts: &[StoredPart],
        gates: BTreeSet<MinionId>,
        clock: &dyn Clock,
    ) -> Self {
        // Work that has started continues: a restarted master finds such parts.
        let begun = |part: &&StoredPart| part.state != RowState::Queued;
        let begun: BTreeSet<&MinionId> = parts
            .iter()
            .filter(begun)
            .map(|part| &part.minion)
            .collect();
        let gates = gates
            .into_iter()
            .filter(|host| !begun.contains(host))
            .collect();
        let pending: BTreeSet<MinionId> = parts
            .iter()
            .filter(|part| !ended(part.state))
            .map(|part| part.minion.clone())
            .collect();
        let mut open = Self {
            job: Arc::clone(job),
            function,
            is_inherited: false,
            deadline: deadline(job, clock),
            limits: function.limits(),
            pending,
            group: 0,
            released: BTreeSet::new(),
            failed: parts
                .iter()
                .find(|part| failed(part))
                .map(|part| part.minion.clone()),
            gates,
            at_gate: None,
            asking: BTreeSet::new(),
            together: BTreeSet::new(),
            ready_since: BTreeMap::new(),
            stop_here: None,
            is_ending: false,
            #[cfg(test)]
            inspected: 0,
        };
        open.make_ready(clock.steady());
        open
    }

    /// Returns whether a minion's part waits for another group.
    pub(super) fn is_blocked(&self, minion: &MinionId) -> bool {
        !self.ready_since.contains_key(minion)
    }

    /// Returns `true` once if no part is open: its caller records that the job has ended, and calls
    /// [`OpenJob::has_not_ended`] if it cannot.
    pub(super) fn begin_end(&mut self) -> bool {
        let begins = self.pending.is_empty() && !self.is_ending;
        self.is_ending |= begins;
        begins
    }

    /// Records that the end could not be stored, so that another task retries.
    pub(super) fn has_not_ended(&mut self) {
        self.is_ending = false;
    }

    /// Records the end of a minion's part.
    pub(super) fn end(&mut self, minion: &MinionId, end: PartEnd) {
        self.pending.remove(minion);
        self.released.remove(minion);
        if end == PartEnd::Failed && self.failed.is_none() {
            self.failed = Some(minion.clone());
        }
    }

    /// The minion whose failure prevents later groups from starting. A job is ordered because its
    /// hosts must not be down together: whatever broke the first would break the next.
    fn stopped_by(&self) -> Option<&MinionId> {
        // A test run changes nothing, so it does not stop at a failure.
        let stops = !self.job.order.is_empty() && !self.job.test;
        self.failed.as_ref().filter(|_| stops)
    }

    /// The minions whose part will not start because another one failed, each with the failed
    /// minion.
    pub(super) fn not_started(&self) -> Vec<(MinionId, MinionId)> {
        let Some(failed) = self.stopped_by() else {
            return Vec::new();
        };
        let waiting = self.pending.iter().filter(|minion| self.is_blocked(minion));
        waiting
            .map(|minion| (minion.clone(), failed.clone()))
            .collect()
    }

    /// Returns, only once, the host about which the caller must ask etcd now.
    pub(super) fn begin_gate(&mut self) -> Option<MinionId> {
        let host = self.at_gate.take()?;
        self.asking.insert(host.clone());
        Some(host)
    }

    /// Records that etcd can do without a host; returns the same as [`OpenJob::make_ready`].
    pub(super) fn pass_gate(&mut self, host: &MinionId, now: Steady) -> Vec<MinionId> {
        self.gates.remove(host);
        self.asking.remove(host);
        self.make_ready(now)
    }

    /// Records that etcd has no quorum: releases all hosts for which it would have been asked;
    /// returns the same as [`OpenJob::make_ready`]. One at a time, each host would wait for the
    /// members on the next ones.
    pub(super) fn repair(&mut self, now: Steady) -> Vec<MinionId> {
        self.asking.clear();
        self.together.append(&mut self.gates);
        self.released.clear();
        self.make_ready(now)
    }

    /// Releases the first group that has not ended; returns the minions whose part may now be sent
    /// for the first time. Without an order, all minions are one group.
    pub(super) fn make_ready(&mut self, now: Steady) -> Vec<MinionId> {
        let mut ready: Vec<MinionId> = Vec::new();
        if self.stopped_by().is_some() || !self.released.is_empty() {
            return ready;
        }
        ready.extend(self.together.intersection(&self.pending).cloned());
        let mut waiting: Vec<&MinionId> = Vec::new();
        if self.job.order.is_empty() {
            waiting.extend(&self.pending);
        }
        while let Some(group) = self.job.order.get(self.group) {
            #[cfg(test)]
            {
                self.inspected += group.len();
            }
            waiting.extend(group.iter().filter(|minion| self.pending.contains(*minion)));
            if !waiting.is_empty() {
                break;
            }
            self.group += 1;
        }
        #[cfg(test)]
        {
            self.inspected += waiting.len();
        }
        let (gated, free): (Vec<&MinionId>, Vec<&MinionId>) = waiting
            .into_iter()
            .partition(|minion| self.gates.contains(*minion));
        ready.extend(free.iter().copied().cloned());
        if gated.is_empty() {
            self.released = free.into_iter().cloned().collect();
        }
        self.at_gate = gated
            .into_iter()
            .find(|host| !self.asking.contains(*host))
            .cloned();
        // A member of a group may also be among the hosts that are repaired in parallel.
        ready.retain(|minion| match self.ready_since.entry(minion.clone()) {
            Entry::Vacant(new) => {
                new.insert(now);
                true
            }
            Entry::Occupied(_) => false,
        });
        ready
    }
}

/// The time that a job has, by both clocks from one moment. A job is compiled before it: the hosts
/// have all of its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobTime {
    /// The moment.
    pub(super) created: Millis,
    pub(super) deadline: Millis,
    pub(super) steady_deadline: SteadyDeadline,
}

impl JobTime {
    /// The time of a job that is created now and has this many seconds.
    pub(super) fn from_now(clock: &dyn Clock, seconds: u32) -> Self {
        let (created, steady) = (clock.now(), clock.steady());
        let millis = Millis::from(seconds) * 1000;
        Self {
            created,
            deadline: created + millis,
            steady_deadline: SteadyDeadline {
                boot: clock.boot().to_owned(),
                millis: (steady + millis).0,
            },
        }
    }
}

/// The deadline of a job in steady time. After a reboot of the host only the time of day is known;
/// a job never gets more time than it had.
fn deadline(job: &Job, clock: &dyn Clock) -> Option<Steady> {
    match &job.steady_deadline {
        Some(known) if known.boot == clock.boot() && !known.boot.is_empty() => {
            Some(Steady(known.millis))
        }
        _ => job.deadline.map(|deadline| {
            let all = deadline.saturating_sub(job.created).max(0);
            let left = deadline.saturating_sub(clock.now()).clamp(0, all);
            clock.steady() + left
        }),
    }
}

/// The result of a minion's part of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartEnd {
    /// It returned the code 0.
    Succeeded,
    /// It returned another code, or nothing.
    Failed,
    /// It was never sent.
    NotStarted,
}

fn failed(part: &StoredPart) -> bool {
    part.state == RowState::Lost || (part.state == RowState::Returned && part.retcode != Some(0))
}

/// Returns whether the state belongs to a part that has ended.
pub(super) fn ended(state: RowState) -> bool {
    matches!(state, RowState::Returned | RowState::Lost)
}

#[cfg(test)]
#[path = "open_job_tests.rs"]
mod tests;
