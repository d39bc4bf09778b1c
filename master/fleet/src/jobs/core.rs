//! The decisions about jobs, without any I/O: the parts that are due for a minion, and the expired
//! ones.
//!
//! Rows are durable and only move forward (queued, sent, started, then returned or lost). A session
//! is one stream of a minion and is forgotten with it. The rules:
//!
//! - A row is sent at most once in a session. A new session sends each row again that is not known
//!   to have started: the minion's journal answers a repeated id with the return that it still has,
//!   or not at all, and never starts it again.
//! - A row that is known to have started is never sent again. The hello of its minion names it as
//!   running, or as returned and not known to be stored, and then its return follows. A minion that
//!   names it as neither has lost its journal, and the row is interrupted.
//! - One state job at a time runs on each minion; others wait in the order of their ids. Other
//!   functions do not wait.

use std::collections::BTreeSet;

use halite_core::clock::Steady;
use halite_proto::ids::JobId;
use halite_store::{Millis, OpenPart, RowState};

/// The time after a job's deadline within which the minion must end it: ten seconds between SIGTERM
/// and SIGKILL, and some for the return. After that the part is given up.
pub const STOP_GRACE: Millis = 15_000;

/// One stream of one minion, from dispatch's point of view.
#[derive(Debug, Clone, Default)]
pub struct Session {
    /// `true` while the stream is open.
    pub connected: bool,
    /// The time at which the stream was opened or closed.
    pub since: Steady,
    /// The jobs that the hello named as running, or that have started since then.
    pub running: BTreeSet<JobId>,
    /// The jobs whose return the hello announced; `None` for a minion that does not report them.
    pub unstored: Option<BTreeSet<JobId>>,
    /// The jobs that were sent since the stream was opened, and whose part has not ended.
    pub sent: BTreeSet<JobId>,
    /// The jobs that the minion was asked to end since the stream was opened.
    pub cancelled: BTreeSet<JobId>,
}

impl Session {
    /// Starts a session with a minion's hello.
    pub fn connect(
        &mut self,
        running: impl IntoIterator<Item = JobId>,
        unstored: Option<BTreeSet<JobId>>,
        now: Steady,
    ) {
        *self = Self {
            connected: true,
            since: now,
            running: running.into_iter().collect(),
            unstored,
            ..Self::default()
        };
    }

    /// Forgets a job whose part has ended: a stream is open for months, and carries any number of
    /// jobs.
    pub fn forget(&mut self, job_id: &JobId) {
        self.running.remove(job_id);
        self.sent.remove(job_id);
        self.cancelled.remove(job_id);
        if let Some(unstored) = &mut self.unstored {
            unstored.remove(job_id);
        }
    }

    /// Ends the session.
    pub fn disconnect(&mut self, now: Steady) {
        if self.connected || self.since == Steady::default() {
            *self = Self {
                connected: false,
                since: now,
                ..Self::default()
            };
        }
    }
}

/// A minion's part of a job that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRow {
    /// The job.
    pub job_id: JobId,
    /// `true` for a job that applies states: no other such job may run at the same time.
    pub exclusive: bool,
    /// The state of the row in the store.
    pub state: RowState,
    /// `true` while a part of another minion must end first.
    pub blocked: bool,
    /// `true` if the minion can be asked to end the job; a query just ends.
    pub stoppable: bool,
}

/// The ids of the jobs that are due for a minion. `rows` are its open rows, oldest first.
#[must_use]
pub fn due(rows: &[OpenRow], session: &Session) -> Vec<JobId> {
    if !session.connected {
        return Vec::new();
    }
    let under_way = |row: &OpenRow| {
        session.sent.contains(&row.job_id)
            || session.running.contains(&row.job_id)
            || row.state == RowState::Started
    };
    let mut busy = rows.iter().any(|row| row.exclusive && under_way(row));
    let mut send = Vec::new();
    for row in rows.iter().filter(|row| !under_way(row) && !row.blocked) {
        if row.exclusive {
            if busy {
                continue;
            }
            busy = true;
        }
        send.push(row.job_id.clone());
    }
    send
}

/// The job behind which a part that was not sent waits on its minion, among these open parts: one
/// job at a time applies states there. `None` if no other one does.
#[must_use]
pub fn comes_first<'a>(parts: &'a [OpenPart], own: &OpenPart) -> Option<&'a JobId> {
    if !own.has_low_state || own.state != RowState::Queued {
        return None;
    }
    let is_first = |part: &&OpenPart| {
        part.minion == own.minion && part.has_low_state && part.state != RowState::Queued
    };
    parts.iter().find(is_first).map(|part| &part.job_id)
}

/// The reason why a row has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// The minion has no stream, and the job was never sent or its deadline has passed.
    NotConnected,
    /// The stream broke after the job was sent, and the minion did not reconnect.
    Disconnected,
    /// The deadline of the job has passed: the minion must be asked to end it.
    OverTime,
    /// The deadline of the job has passed, and the minion has not ended it.
    TimedOut,
    /// The job had started, and the minion no longer knows it.
    Interrupted,
}

/// The time limits of dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DispatchLimits {
    /// The wait for a minion that is not connected when a job is made for it.
    pub connect: Millis,
    /// The wait for a minion that disconnects during a job.
    pub reconnect: Millis,
}

/// The reason why a row has expired; `None` while it has not. `queued_since` is the time at which
/// the row could have been sent for the first time; `deadline` is the job's.
#[must_use]
pub fn expired(
    row: &OpenRow,
    session: &Session,
    queued_since: Steady,
    deadline: Option<Steady>,
    limits: DispatchLimits,
    now: Steady,
) -> Option<Expiry> {
    if let Some(deadline) = deadline.filter(|deadline| now >= *deadline) {
        if !session.connected {
            return Some(Expiry::NotConnected);
        }
        if row.stoppable && row.state != RowState::Queued && now < deadline + STOP_GRACE {
            return (!session.cancelled.contains(&row.job_id)).then_some(Expiry::OverTime);
        }
        return Some(Expiry::TimedOut);
    }
    if session.connected {
        let forgotten = row.state == RowState::Started
            && !session.running.contains(&row.job_id)
            && !session.sent.contains(&row.job_id)
            && (session.unstored.as_ref()).is_some_and(|jobs| !jobs.contains(&row.job_id));
        return forgotten.then_some(Expiry::Interrupted);
    }
    let absent = now - session.since.max(queued_since);
    match row.state {
        RowState::Queued if !row.blocked && absent >= limits.connect => Some(Expiry::NotConnected),
        RowState::Sent | RowState::Started if absent >= limits.reconnect => {
            Some(Expiry::Disconnected)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(job_id: u64, exclusive: bool, state: RowState) -> OpenRow {
        OpenRow {
            job_id: JobId::from_number(job_id),
            exclusive,
            state,
            blocked: false,
            stoppable: exclusive,
        }
    }

    fn ids(numbers: &[u64]) -> Vec<JobId> {
        numbers.iter().copied().map(JobId::from_number).collect()
    }

    fn session(running: &[u64]) -> Session {
        let mut session = Session::default();
        session.connect(
            running.iter().copied().map(JobId::from_number),
            None,
            Steady(1000),
        );
        session
    }

    fn expired_at(
        row: &OpenRow,
        session: &Session,
        queued_since: Millis,
        deadline: Option<Millis>,
        limits: DispatchLimits,
        now: Millis,
    ) -> Option<Expiry> {
        let deadline = deadline.map(Steady);
        expired(
            row,
            session,
            Steady(queued_since),
            deadline,
            limits,
            Steady(now),
        )
    }

    #[test]
    fn one_state_job_at_a_time_and_functions_beside_it() {
        let rows = [
            row(1, true, RowState::Queued),
            row(2, true, RowState::Queued),
            row(3, false, RowState::Queued),
        ];
        let mut open = session(&[]);
        assert_eq!(due(&rows, &open), ids(&[1, 3]));
        open.sent.extend(ids(&[1, 3]));
        assert_eq!(due(&rows, &open), ids(&[]));
        assert_eq!(
            due(&rows[1..], &open),
            ids(&[2]),
            "the first one has returned"
        );
    }

    #[test]
    fn a_new_session_sends_again_each_job_not_known_to_have_started() {
        let rows = [row(1, true, RowState::Sent)];
        assert_eq!(due(&rows, &session(&[])), ids(&[1]));
        assert_eq!(due(&rows, &session(&[1])), ids(&[]));
        assert_eq!(
            due(&[row(1, true, RowState::Started)], &session(&[])),
            ids(&[])
        );
        assert_eq!(due(&rows, &Session::default()), ids(&[]), "not connected");
    }

    #[test]
    fn a_blocked_row_waits_and_does_not_delay_others() {
        let mut first = row(1, true, RowState::Queued);
        first.blocked = true;
        assert_eq!(
            due(&[first, row(2, true, RowState::Queued)], &session(&[])),
            ids(&[2])
        );
    }

    #[test]
    fn rows_expire_for_a_reason() {
        let limits = DispatchLimits {
            connect: 100,
            reconnect: 1000,
        };
        let mut gone = session(&[]);
        gone.disconnect(Steady(2000));
        let queued = row(1, true, RowState::Queued);
        let started = row(1, true, RowState::Started);
        assert_eq!(expired_at(&queued, &gone, 2500, None, limits, 2599), None);
        assert_eq!(
            expired_at(&queued, &gone, 2500, None, limits, 2600),
            Some(Expiry::NotConnected)
        );
        assert_eq!(expired_at(&started, &gone, 0, None, limits, 2999), None);
        assert_eq!(
            expired_at(&started, &gone, 0, None, limits, 3000),
            Some(Expiry::Disconnected)
        );
        assert_eq!(
            expired_at(&started, &session(&[1]), 0, Some(5000), limits, 4999),
            None
        );
        // The minion is asked once, and has a while to end the job.
        let mut over = session(&[1]);
        let at = |session: &Session, now| expired_at(&started, session, 0, Some(5000), limits, now);
        assert_eq!(at(&over, 5000), Some(Expiry::OverTime));
        over.cancelled.insert(started.job_id.clone());
        assert_eq!(at(&over, 5000), None);
        assert_eq!(at(&over, 5000 + STOP_GRACE), Some(Expiry::TimedOut));
        assert_eq!(
            expired_at(&queued, &over, 0, Some(5000), limits, 5000),
            Some(Expiry::TimedOut)
        );
        // A minion that reports its pending returns has lost every job that it does not name.
        let mut says = session(&[]);
        assert_eq!(
            expired_at(&started, &says, 0, None, limits, i64::MAX / 2),
            None
        );
        says.unstored = Some(BTreeSet::from([started.job_id.clone()]));
        assert_eq!(
            expired_at(&started, &says, 0, None, limits, i64::MAX / 2),
            None
        );
        says.unstored = Some(BTreeSet::new());
        assert_eq!(
            expired_at(&started, &says, 0, None, limits, 1000),
            Some(Expiry::Interrupted)
        );
        assert_eq!(
            expired_at(&started, &session(&[1]), 0, None, limits, i64::MAX / 2),
            None
        );
    }
}
