//! The store: what happened. What is *wanted* (cluster and node documents) stays in files and is
//! never kept here.
//!
//! One trait, so that SQLite (the default) and PostgreSQL (several masters) can share one test
//! suite ([`suite`]). All times are milliseconds since the Unix epoch ([`Millis`]); JSON fields are
//! text and are not interpreted.

pub mod log;
mod records;
mod sqlite;
#[cfg(test)]
mod suite;
pub mod wal;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use halite_proto::ids::{JobId, MinionId};

use crate::epoch::EpochError;

pub use records::*;
pub use sqlite::{
    SqliteStore, finish_copy, fold_log, keep_good, note_epoch, noted_epoch, raise_epoch,
};

/// Milliseconds since the Unix epoch, UTC.
pub type Millis = i64;

/// A boxed, sendable future: the store is used as `dyn Store`.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Why the store could not do something.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused or failed.
    #[error("the store failed")]
    Database(#[source] sqlx::Error),
    /// There is no room for what should be stored; nothing of it was. Reading goes on.
    #[error(
        "the master's store has no room ({0}): nothing was stored. Make room on its file system (by default the one of \
         /var/lib/halite/master); minions keep their answers and hand them in then"
    )]
    Full(String),
    /// The database's schema could not be brought up to date.
    #[error("cannot bring the store's schema up to date")]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// A file beside the database could not be written or moved.
    #[error("cannot {action} {path}")]
    File {
        /// Verb, for example `write`.
        action: &'static str,
        /// The file.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The write-ahead log of the store.
    #[error("cannot follow the store's log")]
    Log(#[from] wal::WalError),
    /// No epoch is left.
    #[error(transparent)]
    Epoch(#[from] EpochError),
    /// The file is not a sound database. The text says how to go back to the last good copy.
    #[error("{0}")]
    Corrupt(String),
    /// A setting that durability rests on is not in force.
    #[error("the store runs with {setting} = {found}, {wanted} is needed: {why}")]
    Unsafe {
        /// The pragma.
        setting: &'static str,
        /// What it reads back as.
        found: String,
        /// What it must be.
        wanted: &'static str,
        /// What would be lost.
        why: &'static str,
    },
    /// A row holds a value that this version does not know.
    #[error(
        "the store holds {value:?} as {what}, which this version does not know; it was written by a newer one"
    )]
    Unknown {
        /// Which column.
        what: &'static str,
        /// The value.
        value: String,
    },
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        // SQLite's primary result code SQLITE_FULL.
        let full = |code: &str| code.parse::<u32>().is_ok_and(|code| code & 0xff == 13);
        match &error {
            sqlx::Error::Database(inner) if inner.code().is_some_and(|code| full(&code)) => {
                Self::Full(inner.message().to_owned())
            }
            _ => Self::Database(error),
        }
    }
}

/// Result of a create with a request id.
#[derive(Debug, Clone, PartialEq)]
pub enum Created<T> {
    /// It was stored now.
    New,
    /// A record with the same request id was there; nothing was stored.
    Existing(T),
}

/// Everything that the master remembers. Each method is one transaction: when it returns, it is on
/// disk.
pub trait Store: Send + Sync {
    /// The epoch: it grows whenever the store goes back to an earlier state.
    fn epoch(&self) -> u64;
    /// Which of two masters with the same epoch this one is: it changes with the epoch only.
    fn holder(&self) -> &str;

    /// The write-ahead log, which standbys follow: each change waits for them before it is answered.
    fn log(&self) -> Arc<log::Log>;

    /// Copies the store as it is now, and answers with the file of the copy. A store that is opened
    /// from it has gone back to an earlier state. The file is replaced as a whole by the next copy.
    fn copy(&self) -> StoreFuture<'_, PathBuf>;

    /// Answers when the store can be read and takes changes; changes nothing.
    fn probe(&self) -> StoreFuture<'_, ()>;

    // Keys and tokens

    /// The key of a minion id, in whatever state.
    fn key<'a>(&'a self, id: &'a MinionId) -> StoreFuture<'a, Option<Key>>;
    /// All keys, by id.
    fn keys(&self) -> StoreFuture<'_, Vec<Key>>;
    /// Stores a key, replacing the one with the same id.
    fn put_key<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, ()>;
    /// Stores a key and takes one use of a token, both or neither. False, and nothing stored, when
    /// the token is gone, used up or expired at `now`.
    fn put_key_with_token<'a>(
        &'a self,
        key: &'a Key,
        token: &'a str,
        now: Millis,
    ) -> StoreFuture<'a, bool>;
    /// Removes a key and its minion's facts; false when there was none.
    fn delete_key<'a>(&'a self, id: &'a MinionId) -> StoreFuture<'a, bool>;
    /// Stores a token.
    fn put_token<'a>(&'a self, token: &'a Token) -> StoreFuture<'a, ()>;
    /// A token by its public id.
    fn token<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Token>>;
    /// All tokens, newest first.
    fn tokens(&self) -> StoreFuture<'_, Vec<Token>>;
    /// Removes a token; false when there was none.
    fn delete_token<'a>(&'a self, id: &'a str) -> StoreFuture<'a, bool>;
    /// Removes the tokens that are not used up and that only this minion id may use, and the one
    /// named; answers with the ids of all that were removed.
    fn take_tokens<'a>(
        &'a self,
        minion: &'a MinionId,
        token: Option<&'a str>,
    ) -> StoreFuture<'a, Vec<String>>;
    /// Returns whether a token was made after the last change of a minion's key, whatever the clock
    /// said.
    fn is_token_newer<'a>(&'a self, token: &'a str, minion: &'a MinionId) -> StoreFuture<'a, bool>;
    /// Returns whether a minion's id got its key after an operator was revoked, whatever the clock
    /// said.
    fn is_key_newer<'a>(&'a self, minion: &'a MinionId, operator: &'a str)
    -> StoreFuture<'a, bool>;

    // Operators

    /// All operators, by name.
    fn operators(&self) -> StoreFuture<'_, Vec<Operator>>;
    /// Stores an operator, replacing the one with the same name.
    fn put_operator<'a>(&'a self, operator: &'a Operator) -> StoreFuture<'a, ()>;

    // Certificates

    /// Records an issued certificate.
    fn put_certificate<'a>(&'a self, certificate: &'a Certificate) -> StoreFuture<'a, ()>;
    /// The issued certificates, newest first, at most `limit`.
    fn certificates(&self, limit: u32) -> StoreFuture<'_, Vec<Certificate>>;
    /// The certificates of operators with the tag [`KUBECONFIG`], newest first.
    fn kubeconfigs(&self) -> StoreFuture<'_, Vec<Certificate>>;
    /// Marks a serial number as revoked; repeating it changes nothing.
    fn revoke<'a>(&'a self, revocation: &'a Revocation) -> StoreFuture<'a, ()>;
    /// All revocations.
    fn revocations(&self) -> StoreFuture<'_, Vec<Revocation>>;

    // Jobs

    /// Stores a job and its rows, all or nothing, before anything is sent. With a request id that
    /// is there already, nothing is stored and the job of that id is returned.
    fn create_job<'a>(&'a self, job: &'a Job, rows: &'a [JobRow]) -> StoreFuture<'a, Created<Job>>;
    /// A job.
    fn job<'a>(&'a self, jid: &'a JobId) -> StoreFuture<'a, Option<Job>>;
    /// The newest jobs first, at most `limit`.
    fn jobs(&self, limit: u32) -> StoreFuture<'_, Vec<Job>>;
    /// Jobs that are not finished, oldest first: what a restarted master takes up again.
    fn open_jobs(&self) -> StoreFuture<'_, Vec<Job>>;
    /// A job's parts, by minion.
    fn parts<'a>(&'a self, jid: &'a JobId) -> StoreFuture<'a, Vec<Part>>;
    /// A job's rows of these minions, by minion, with their returns; their low states are not read.
    fn returns<'a>(&'a self, jid: &'a JobId, of: &'a [MinionId]) -> StoreFuture<'a, Vec<JobRow>>;
    /// One row.
    fn row<'a>(&'a self, jid: &'a JobId, minion: &'a MinionId) -> StoreFuture<'a, Option<JobRow>>;
    /// A minion's rows that are queued, sent or started, oldest job first: what a reconnected
    /// minion is sent again.
    fn open_rows<'a>(&'a self, minion: &'a MinionId) -> StoreFuture<'a, Vec<JobRow>>;
    /// Queued → sent; false when it was past that.
    fn mark_sent<'a>(
        &'a self,
        jid: &'a JobId,
        minion: &'a MinionId,
        now: Millis,
    ) -> StoreFuture<'a, bool>;
    /// Queued or sent → started; false when it was past that.
    fn mark_started<'a>(
        &'a self,
        jid: &'a JobId,
        minion: &'a MinionId,
        now: Millis,
    ) -> StoreFuture<'a, bool>;
    /// Queued, sent, started or lost → returned, with the answer; false, and nothing stored, when
    /// an answer is there already (a repeated return) or the row does not exist. The return code of
    /// a finished job follows the late answer.
    fn record_return<'a>(
        &'a self,
        jid: &'a JobId,
        minion: &'a MinionId,
        answer: &'a Answer,
    ) -> StoreFuture<'a, bool>;
    /// As [`Store::record_return`], and in the same transaction the job is finished, as by
    /// [`Store::finish_job`], when no part of it is open any more: its return code is 0 when every
    /// part was returned with 0, otherwise 1.
    fn record_last_return<'a>(
        &'a self,
        jid: &'a JobId,
        minion: &'a MinionId,
        answer: &'a Answer,
    ) -> StoreFuture<'a, bool>;
    /// Of which bundles minions may have something, by minion and bundle: of the one of a minion's
    /// last highstate that succeeded, and of each that a job since then was made from, from the
    /// moment in which that job is stored. Neither the age of a job nor the removal of a key takes
    /// it away.
    fn minion_bundles(&self) -> StoreFuture<'_, Vec<MinionBundle>>;
    /// Queued, sent or started → lost, with the reason as error; false when it was past that.
    fn mark_lost<'a>(
        &'a self,
        jid: &'a JobId,
        minion: &'a MinionId,
        why: &'a str,
        now: Millis,
    ) -> StoreFuture<'a, bool>;
    /// As [`Store::mark_lost`], with the return code of an interrupted job: its minion no longer
    /// knows it.
    fn mark_interrupted<'a>(
        &'a self,
        jid: &'a JobId,
        minion: &'a MinionId,
        why: &'a str,
        now: Millis,
    ) -> StoreFuture<'a, bool>;
    /// Marks a job as finished, with its overall return code.
    fn finish_job<'a>(&'a self, jid: &'a JobId, retcode: i32, now: Millis) -> StoreFuture<'a, ()>;
    /// Removes finished jobs and ended runs, oldest first, at most `limit` of each; how many. All
    /// of these stay:
    ///
    /// - what ended at `before` or later, and the last `keep` of each however old;
    /// - what has not ended, and the jobs of a run that has not;
    /// - a job of which an answer may still come: a part has not ended, or was sent and has timed
    ///   out while its minion is accepted.
    fn prune_jobs(&self, before: Millis, keep: u32, limit: u32) -> StoreFuture<'_, u64>;

    /// Removes what no record needs any more, at most `limit` of each kind; how many. These go:
    ///
    /// - rendered files that no open part of a job names and no job has named for a week;
    /// - low states a day after their part has ended;
    /// - certificates that have ended, and those of which there is a newer one after 90 days;
    /// - tokens 30 days after they have ended, or were used up.
    fn prune_unused(&self, now: Millis, limit: u32) -> StoreFuture<'_, u64>;
    /// The bytes that the records take. What was removed is not given back to the file system; new
    /// records take its place.
    fn size(&self) -> StoreFuture<'_, u64>;

    // Orchestration

    /// Stores a run and its steps, all or nothing; by request id as [`Store::create_job`].
    fn create_run<'a>(&'a self, run: &'a Run, steps: &'a [Step]) -> StoreFuture<'a, Created<Run>>;
    /// A run.
    fn run<'a>(&'a self, id: &'a JobId) -> StoreFuture<'a, Option<Run>>;
    /// The newest runs first, at most `limit`.
    fn runs(&self, limit: u32) -> StoreFuture<'_, Vec<Run>>;
    /// The runs of one orchestration that were created at `since` or later, newest first.
    fn runs_of<'a>(&'a self, sls: &'a str, since: Millis) -> StoreFuture<'a, Vec<Run>>;
    /// The creation of the oldest run or job; none in an empty store. Nothing is known of the time
    /// before it.
    fn oldest(&self) -> StoreFuture<'_, Option<Millis>>;
    /// Runs whose status is running, oldest first.
    fn open_runs(&self) -> StoreFuture<'_, Vec<Run>>;
    /// Changes a run's status and current step.
    fn update_run<'a>(
        &'a self,
        id: &'a JobId,
        status: RunStatus,
        current: u32,
        now: Millis,
    ) -> StoreFuture<'a, ()>;
    /// Records who wants a run to end before its steps are done; the first one counts. False, and
    /// nothing stored, when it has ended or does not exist.
    fn cancel_run<'a>(
        &'a self,
        id: &'a JobId,
        operator: &'a str,
        now: Millis,
    ) -> StoreFuture<'a, bool>;
    /// Stores one step, replacing the one with the same index.
    fn put_step<'a>(&'a self, step: &'a Step) -> StoreFuture<'a, ()>;
    /// A run's steps, in order.
    fn steps<'a>(&'a self, run: &'a JobId) -> StoreFuture<'a, Vec<Step>>;

    /// Takes a lock for a run, unless another run holds it that has not ended; answers with that
    /// one. A run that has it already keeps it. A lock whose run has ended is taken over.
    fn take_lock<'a>(
        &'a self,
        name: &'a str,
        run: &'a JobId,
        now: Millis,
    ) -> StoreFuture<'a, Option<Run>>;
    /// Releases a lock that a run holds, before it has ended. Does nothing when it holds none of that
    /// name.
    fn release_lock<'a>(&'a self, name: &'a str, run: &'a JobId) -> StoreFuture<'a, ()>;

    // Events, audit, facts, blobs

    /// Appends an event; its `seq` is ignored, the new one is returned. Sequence numbers only grow.
    fn append_event<'a>(&'a self, event: &'a Event) -> StoreFuture<'a, i64>;
    /// Events with a sequence number above `after` whose tag begins with `prefix`, oldest first, at
    /// most `limit`.
    fn events<'a>(&'a self, prefix: &'a str, after: i64, limit: u32)
    -> StoreFuture<'a, Vec<Event>>;
    /// Removes events and audit lines older than `before`; how many.
    fn prune(&self, before: Millis) -> StoreFuture<'_, u64>;
    /// Appends an audit line.
    fn append_audit<'a>(&'a self, line: &'a Audit) -> StoreFuture<'a, ()>;
    /// Audit lines, the newest first.
    fn audit<'a>(&'a self, filter: &'a AuditFilter) -> StoreFuture<'a, Vec<Audit>>;
    /// Stores what a minion says of itself.
    fn put_facts<'a>(&'a self, facts: &'a Facts) -> StoreFuture<'a, ()>;
    /// Sets when a minion was last heard of; without facts this does nothing.
    fn touch<'a>(&'a self, minion: &'a MinionId, now: Millis) -> StoreFuture<'a, ()>;
    /// What a minion last said of itself.
    fn facts<'a>(&'a self, minion: &'a MinionId) -> StoreFuture<'a, Option<Facts>>;
    /// All facts, by minion.
    fn all_facts(&self) -> StoreFuture<'_, Vec<Facts>>;
    /// Keeps, or keeps on, a rendered file by the SHA-256 (hex) of its content, so that a stored
    /// job can be sent again.
    fn put_blob<'a>(
        &'a self,
        sha256: &'a str,
        content: &'a [u8],
        now: Millis,
    ) -> StoreFuture<'a, ()>;
    /// A kept file.
    fn blob<'a>(&'a self, sha256: &'a str) -> StoreFuture<'a, Option<Vec<u8>>>;
}
