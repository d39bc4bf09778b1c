//! The records of the store: plain data, one type a table.

use halite_proto::ids::{JobId, MinionId};
use halite_proto::role::Role;

use super::{Millis, StoreError};

/// An enum that is stored as lower-case text.
macro_rules! stored_as_text {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// The text in the store and in documents.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// Reads the text back.
            ///
            /// # Errors
            /// The text is of a newer version.
            pub fn parse(text: &str) -> Result<Self, StoreError> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    other => Err(StoreError::Unknown { what: $what, value: other.to_owned() }),
                }
            }
        }
    };
}

stored_as_text! {
    /// State of a minion's key.
    KeyState, "key state" {
        /// Handed in without a token; waits for an operator.
        Pending = "pending",
        /// May connect.
        Accepted = "accepted",
        /// Refused by an operator; stays known so that it stays refused.
        Rejected = "rejected",
    }
}

stored_as_text! {
    /// State of a job.
    JobStatus, "job status" {
        /// At least one minion has not answered.
        Running = "running",
        /// All minions have answered or timed out.
        Finished = "finished",
    }
}

stored_as_text! {
    /// State of one minion's part of a job. It only moves down this list (a late answer turns
    /// lost to returned).
    RowState, "job row state" {
        /// Stored, not sent.
        Queued = "queued",
        /// Given to the minion's stream.
        Sent = "sent",
        /// The minion's journal holds it.
        Started = "started",
        /// Answered.
        Returned = "returned",
        /// Timed out: no answer in time.
        Lost = "lost",
    }
}

stored_as_text! {
    /// State of an orchestration.
    RunStatus, "run status" {
        /// In work, or to be taken up again after a restart.
        Running = "running",
        /// All steps done.
        Succeeded = "succeeded",
        /// A step failed.
        Failed = "failed",
        /// An operator ended it before all steps were done.
        Cancelled = "cancelled",
    }
}

stored_as_text! {
    /// State of a step of an orchestration.
    StepStatus, "step status" {
        /// Not begun.
        Waiting = "waiting",
        /// Begun.
        Running = "running",
        /// Done.
        Succeeded = "succeeded",
        /// Failed.
        Failed = "failed",
        /// Not needed, or a requisite failed.
        Skipped = "skipped",
    }
}

/// A minion's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The minion's id.
    pub id: MinionId,
    /// Its state.
    pub state: KeyState,
    /// SHA-256 of the public key (SPKI DER), lower-case hex in pairs with colons.
    pub fingerprint: String,
    /// The CSR in PEM: what an acceptance signs.
    pub csr_pem: String,
    /// Serial number of the newest certificate, lower-case hex; none while pending.
    pub serial: Option<String>,
    /// The newest certificate, PEM.
    pub certificate_pem: Option<String>,
    /// Roles that the token allowed; empty without one.
    pub roles: Vec<String>,
    /// What the host said of itself at enrolment. Never used to authorise.
    pub grains_json: String,
    /// The id of the token that it came in with; none when an operator accepted it.
    pub token: Option<String>,
    /// First handed in.
    pub created: Millis,
    /// Last change.
    pub changed: Millis,
}

/// An operator: a person or program that uses `ctl`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    /// The name in the certificate.
    pub name: String,
    /// The role.
    pub role: Role,
    /// The fingerprint of the one key that the name may have; none: any key with a certificate of
    /// this name.
    pub fingerprint: Option<String>,
    /// When it was made.
    pub created: Millis,
    /// The operator who made it.
    pub creator: String,
    /// End of the certificate's validity; none for the operator of `halite-master init`, which
    /// renews it.
    pub expires: Option<Millis>,
    /// When it was revoked.
    pub revoked: Option<Millis>,
}

impl Operator {
    /// True when the operator is neither revoked nor expired.
    #[must_use]
    pub fn is_valid(&self, now: Millis) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|end| end > now)
    }
}

/// An enrolment token. Its secret is not here, only a hash of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The public part of the token's text.
    pub id: String,
    /// SHA-256 of the secret, lower-case hex.
    pub secret_sha256: String,
    /// Not valid from then on.
    pub expires: Millis,
    /// How many enrolments it is still good for.
    pub uses_left: u32,
    /// Roles that an enrolled node may have; empty: any.
    pub roles: Vec<String>,
    /// The only minion id that may use it; such a token also lets that id come back with a new key.
    pub bound_id: Option<MinionId>,
    /// When it was made.
    pub created: Millis,
    /// By whom.
    pub operator: String,
}

/// The tag of the certificates of kubeconfigs.
pub const KUBECONFIG: &str = "kubeconfig";

/// An issued certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Serial number, lower-case hex.
    pub serial: String,
    /// Which of our CAs signed.
    pub ca: String,
    /// Subject, for people.
    pub subject: String,
    /// For whom: a minion id, `operator:NAME` or `master`.
    pub owner: String,
    /// The job whose low state asked for it; none for identities.
    pub job: Option<JobId>,
    /// The asking chunk's tag; empty for identities.
    pub tag: String,
    /// Issued at.
    pub created: Millis,
    /// End of validity.
    pub not_after: Millis,
    /// The certificate, PEM.
    pub pem: String,
}

/// A serial number of the `halite` CA that is not valid any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// Serial number, lower-case hex.
    pub serial: String,
    /// Whose it was.
    pub owner: String,
    /// Since when.
    pub when: Millis,
    /// Why, for people.
    pub reason: String,
}

/// A moment in the time since the host started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteadyDeadline {
    /// The id of that start of the host.
    pub boot: String,
    /// Milliseconds since then.
    pub millis: Millis,
}

/// One function sent to a set of minions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The job's id: grows with time.
    pub jid: JobId,
    /// `state.apply`, `test.ping`, …
    pub function: String,
    /// Its arguments, JSON.
    pub args_json: String,
    /// Whether it is a test run.
    pub test: bool,
    /// Who asked for it; `run:ID` for a step of an orchestration.
    pub operator: String,
    /// The target expression as it was asked for.
    pub target: String,
    /// The minions that it resolved to, sorted.
    pub minions: Vec<MinionId>,
    /// Groups of minions that run one after the other; empty: all at once.
    pub order: Vec<Vec<MinionId>>,
    /// Made at.
    pub created: Millis,
    /// Deadline; none: no time-out.
    pub deadline: Option<Millis>,
    /// The same in the time since the host started, which is the one that counts.
    pub steady_deadline: Option<SteadyDeadline>,
    /// The asker's id for this request, unique over all jobs.
    pub request_id: Option<String>,
    /// Its state.
    pub status: JobStatus,
    /// Overall return code, once finished.
    pub retcode: Option<i32>,
    /// When it finished.
    pub finished: Option<Millis>,
    /// The version of the bundle that it was made from; none where it needs none.
    pub bundle: Option<String>,
}

/// That a minion may have something of a bundle: packages, images, addresses to fetch from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinionBundle {
    /// The minion.
    pub minion: MinionId,
    /// The bundle's version.
    pub bundle: String,
    /// The last job for the minion that was made from it, test runs aside.
    pub jid: JobId,
    /// The last highstate from it that succeeded there.
    pub highstate: Option<JobId>,
}

/// One minion's part of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    /// The job.
    pub jid: JobId,
    /// The minion.
    pub minion: MinionId,
    /// The low state for this minion with placeholders for secrets; none for plain functions.
    pub low_json: Option<String>,
    /// Its state.
    pub state: RowState,
    /// What the minion answered, JSON.
    pub return_json: Option<String>,
    /// 0 done, 1 failed, 2 interrupted.
    pub retcode: Option<i32>,
    /// Why it failed or timed out; empty otherwise.
    pub error: String,
    /// Sent at.
    pub sent: Option<Millis>,
    /// Started at.
    pub started: Option<Millis>,
    /// Time of the return or of the time-out.
    pub ended: Option<Millis>,
    /// The version of the bundle that it was compiled from; none: that of the job.
    pub bundle: Option<String>,
}

impl JobRow {
    /// A row that is stored and not yet sent.
    #[must_use]
    pub fn queued(jid: &JobId, minion: &MinionId, low_json: Option<String>) -> Self {
        Self {
            jid: jid.clone(),
            minion: minion.clone(),
            low_json,
            state: RowState::Queued,
            return_json: None,
            retcode: None,
            error: String::new(),
            sent: None,
            started: None,
            ended: None,
            bundle: None,
        }
    }
}

/// One minion's part of a job as it stands, without what was sent and what came back: both may be
/// megabytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The minion.
    pub minion: MinionId,
    /// Its state.
    pub state: RowState,
    /// 0 done, 1 failed, 2 interrupted.
    pub retcode: Option<i32>,
    /// Why it failed or timed out; empty otherwise.
    pub error: String,
    /// Time of the return or of the time-out.
    pub ended: Option<Millis>,
}

impl From<&JobRow> for Part {
    fn from(row: &JobRow) -> Self {
        Self {
            minion: row.minion.clone(),
            state: row.state,
            retcode: row.retcode,
            error: row.error.clone(),
            ended: row.ended,
        }
    }
}

/// A minion's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// 0 done, 1 failed, 2 interrupted.
    pub retcode: i32,
    /// JSON.
    pub return_json: String,
    /// Empty unless it failed as a whole.
    pub error: String,
    /// When it arrived.
    pub when: Millis,
}

/// An orchestration. It is compiled once; the compiled form is what is stored and resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its id, of the same form as that of a job.
    pub id: JobId,
    /// The SLS, dotted.
    pub sls: String,
    /// Overrides of the pillar for this run, JSON.
    pub pillar_json: String,
    /// Whether it is a test run.
    pub test: bool,
    /// Who asked for it.
    pub operator: String,
    /// The asker's id for this request, unique over all runs.
    pub request_id: Option<String>,
    /// The compiled low state, JSON.
    pub low_json: String,
    /// Its state.
    pub status: RunStatus,
    /// Index of the step in work.
    pub current: u32,
    /// The operator who wants it to end before its steps are done.
    pub cancelled_by: Option<String>,
    /// Made at.
    pub created: Millis,
    /// Last change.
    pub changed: Millis,
}

/// One step of an orchestration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The run.
    pub run: JobId,
    /// Position in the run's low state.
    pub index: u32,
    /// The step's id in its SLS.
    pub name: String,
    /// Its state.
    pub status: StepStatus,
    /// What came of it, JSON (jobs that it started, why it failed).
    pub detail_json: String,
    /// Begun at.
    pub started: Option<Millis>,
    /// Ended at.
    pub ended: Option<Millis>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Position; given by the store.
    pub seq: i64,
    /// `halite/job/JID/new`, `halite/job/JID/ret/MINION`, `halite/run/ID/step`, `halite/key/ID`, …
    pub tag: String,
    /// When.
    pub time: Millis,
    /// JSON. Never a secret.
    pub data_json: String,
    /// The last event of a job or run.
    pub last: bool,
    /// Return code of the whole, on the last event.
    pub retcode: i32,
}

/// Who called what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// When.
    pub time: Millis,
    /// `operator:root`, `minion:worker-1`, or the address of a caller without identity.
    pub who: String,
    /// Service and method, for example `Operator/Run`.
    pub method: String,
    /// What was asked, in a few words. Never a secret.
    pub what: String,
    /// `ok` or the reason of the refusal.
    pub outcome: String,
}

/// The audit lines to read: those that fulfil every condition, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Not before this time.
    pub since: Option<Millis>,
    /// Before this time.
    pub until: Option<Millis>,
    /// The caller, as in [`Audit::who`].
    pub who: Option<String>,
    /// Service and method, as in [`Audit::method`].
    pub method: Option<String>,
    /// At most so many lines.
    pub limit: u32,
}

impl AuditFilter {
    /// The newest lines of all callers.
    #[must_use]
    pub fn newest(limit: u32) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }
}

/// What a minion says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The minion.
    pub minion: MinionId,
    /// Its grains, JSON.
    pub grains_json: String,
    /// Its version.
    pub version: String,
    /// When it was last heard of.
    pub last_seen: Millis,
}
