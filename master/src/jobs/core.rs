//! The job engine's decisions, without any I/O: what to send to a minion now, and what to give up.
//!
//! Rows are durable and only move forward (queued, sent, started, then returned or lost). A session
//! is one stream of a minion and is forgotten with it. The rules:
//!
//! - A row goes into a session at most once. A new session sends again whatever is not known to
//!   have begun: the minion's journal answers a repeated id with the return it still holds, or not
//!   at all, and never starts it again.
//! - A row that is known to have begun is never sent again. The minion either still runs it (its
//!   hello says so) or hands in its return right after the hello; one that does neither has lost
//!   its journal, and the row is interrupted.
//! - One state job at a time per minion; others wait in the order of their ids. Other functions do
//!   not wait.

use std::collections::BTreeSet;

use crate::store::{Millis, RowState};

/// How long a started job may be missing, after a minion's hello did not name it, before it counts
/// as interrupted.
pub const RETURN_GRACE: Millis = 30_000;

/// One stream of one minion, as far as dispatch is concerned.
#[derive(Debug, Clone, Default)]
pub struct Session {
    /// Whether the stream is open.
    pub connected: bool,
    /// Since when it is open, or closed.
    pub since: Millis,
    /// What the hello named as running.
    pub running: BTreeSet<String>,
    /// What was sent, or begun, since the stream was opened.
    pub sent: BTreeSet<String>,
}

impl Session {
    /// The minion has said hello.
    pub fn connect(&mut self, running: impl IntoIterator<Item = String>, now: Millis) {
        *self = Self {
            connected: true,
            since: now,
            running: running.into_iter().collect(),
            sent: BTreeSet::new(),
        };
    }

    /// The stream ended.
    pub fn disconnect(&mut self, now: Millis) {
        if self.connected || self.since == 0 {
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
    pub jid: String,
    /// Whether it applies states, so that nothing like it may run beside it.
    pub exclusive: bool,
    /// Where it stands in the store.
    pub state: RowState,
    /// Whether something must end on another minion first.
    pub blocked: bool,
}

/// What to send to a minion now. `rows` are its open rows, oldest first.
#[must_use]
pub fn due(rows: &[OpenRow], session: &Session) -> Vec<String> {
    if !session.connected {
        return Vec::new();
    }
    let under_way = |row: &OpenRow| {
        session.sent.contains(&row.jid)
            || session.running.contains(&row.jid)
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
        send.push(row.jid.clone());
    }
    send
}

/// Why a row is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// The minion has no stream, and the job was never sent or the wait for it is over.
    NotConnected,
    /// The stream broke after the job was sent and did not come back.
    Disconnected,
    /// The job's time is over.
    TimedOut,
    /// It had begun, and the minion knows nothing of it any more.
    Interrupted,
}

/// How long to wait for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For a minion that is not connected when a job waits for it.
    pub connect: Millis,
    /// For a minion to come back in the middle of a job.
    pub reconnect: Millis,
}

/// Whether a row is to be given up. `queued_since` is when the row could have been sent for the
/// first time; `deadline` is the job's.
#[must_use]
pub fn expired(
    row: &OpenRow,
    session: &Session,
    queued_since: Millis,
    deadline: Option<Millis>,
    limits: Limits,
    now: Millis,
) -> Option<Expiry> {
    if deadline.is_some_and(|deadline| now >= deadline) {
        return Some(if session.connected {
            Expiry::TimedOut
        } else {
            Expiry::NotConnected
        });
    }
    if session.connected {
        let forgotten = row.state == RowState::Started
            && !session.running.contains(&row.jid)
            && !session.sent.contains(&row.jid)
            && now - session.since >= RETURN_GRACE;
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

    fn row(jid: &str, exclusive: bool, state: RowState) -> OpenRow {
        OpenRow {
            jid: jid.into(),
            exclusive,
            state,
            blocked: false,
        }
    }

    fn session(running: &[&str]) -> Session {
        let mut session = Session::default();
        session.connect(running.iter().map(ToString::to_string), 1000);
        session
    }

    #[test]
    fn one_state_job_at_a_time_and_functions_beside_it() {
        let rows = [
            row("1", true, RowState::Queued),
            row("2", true, RowState::Queued),
            row("3", false, RowState::Queued),
        ];
        let mut open = session(&[]);
        assert_eq!(due(&rows, &open), ["1", "3"]);
        open.sent.extend(["1".to_owned(), "3".to_owned()]);
        assert_eq!(due(&rows, &open), [""; 0]);
        assert_eq!(due(&rows[1..], &open), ["2"], "the first one has returned");
    }

    #[test]
    fn a_new_session_sends_again_what_is_not_known_to_have_begun() {
        let rows = [row("1", true, RowState::Sent)];
        assert_eq!(due(&rows, &session(&[])), ["1"]);
        assert_eq!(due(&rows, &session(&["1"])), [""; 0]);
        assert_eq!(
            due(&[row("1", true, RowState::Started)], &session(&[])),
            [""; 0]
        );
        assert_eq!(due(&rows, &Session::default()), [""; 0], "not connected");
    }

    #[test]
    fn what_is_blocked_waits_and_does_not_hold_up_others() {
        let mut first = row("1", true, RowState::Queued);
        first.blocked = true;
        assert_eq!(
            due(&[first, row("2", true, RowState::Queued)], &session(&[])),
            ["2"]
        );
    }

    #[test]
    fn rows_are_given_up_for_a_reason() {
        let limits = Limits {
            connect: 100,
            reconnect: 1000,
        };
        let mut gone = session(&[]);
        gone.disconnect(2000);
        let queued = row("1", true, RowState::Queued);
        let started = row("1", true, RowState::Started);
        assert_eq!(expired(&queued, &gone, 2500, None, limits, 2599), None);
        assert_eq!(
            expired(&queued, &gone, 2500, None, limits, 2600),
            Some(Expiry::NotConnected)
        );
        assert_eq!(expired(&started, &gone, 0, None, limits, 2999), None);
        assert_eq!(
            expired(&started, &gone, 0, None, limits, 3000),
            Some(Expiry::Disconnected)
        );
        assert_eq!(
            expired(&started, &session(&["1"]), 0, Some(5000), limits, 4999),
            None
        );
        assert_eq!(
            expired(&started, &session(&["1"]), 0, Some(5000), limits, 5000),
            Some(Expiry::TimedOut)
        );
        assert_eq!(
            expired(
                &started,
                &session(&[]),
                0,
                None,
                limits,
                1000 + RETURN_GRACE
            ),
            Some(Expiry::Interrupted)
        );
        assert_eq!(
            expired(&started, &session(&["1"]), 0, None, limits, i64::MAX / 2),
            None
        );
    }
}
