//! The records of the store, as plain data with one type for each table.

use halite_names::BundleVersion;
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

            /// Parses the text.
            ///
            /// # Errors
            /// The text belongs to a newer version.
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
        /// Submitted without a token; an operator must decide.
        Pending = "pending",
        /// The minion may connect.
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
    /// State of one minion's part of a job. It only moves down this list, except that a late answer
    /// turns lost into returned.
    RowState, "job row state" {
        /// Stored, but not sent.
        Queued = "queued",
        /// Handed to the minion's stream.
        Sent = "sent",
        /// Recorded in the minion's journal.
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
        /// Running, or resumed after a restart.
        Running = "running",
        /// All steps done.
        Succeeded = "succeeded",
        /// A step failed.
        Failed = "failed",
        /// An operator ended it before all steps were done.
        Cancelled = "cancelled",
        /// Ended at an operator's request, between two hosts; `ctl upgrade resume` continues it.
        Paused = "paused",
    }
}

stored_as_text! {
    /// State of a step of an orchestration.
    StepStatus, "step status" {
        /// Not started.
        Waiting = "waiting",
        /// Started.
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
pub struct StoredKey {
    /// The minion's id.
    pub id: MinionId,
    /// Its state.
    pub state: KeyState,
    /// SHA-256 of the public key (SPKI DER), lower-case hex in pairs with colons.
    pub fingerprint: String,
    /// The CSR in PEM, which an acceptance signs.
    pub csr_pem: String,
    /// Serial number of the newest certificate, in lower-case hex; `None` while pending.
    pub serial: Option<String>,
    /// The newest certificate, PEM.
    pub certificate_pem: Option<String>,
    /// Roles that the token allowed; empty without a token.
    pub roles: Vec<String>,
    /// The host's own report at enrolment. Never used to authorise.
    pub grains_json: String,
    /// The id of the token with which it enrolled; `None` if an operator accepted it.
    pub token: Option<String>,
    /// Time of the first request.
    pub created: Millis,
    /// Time of the last change.
    pub changed: Millis,
}

/// An operator: a person or program that uses `ctl`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    /// The name in the certificate.
    pub name: String,
    /// The role.
    pub role: Role,
    /// The fingerprint of the only key that the name may have; `None` allows any key with a
    /// certificate of this name.
    pub fingerprint: Option<String>,
    /// Time of creation.
    pub created: Millis,
    /// The operator who made it.
    pub creator: String,
    /// End of the certificate's validity; `None` for the operator of `halite-master init`, which
    /// renews it.
    pub expires: Option<Millis>,
    /// Time of the revocation.
    pub revoked: Option<Millis>,
}

impl Operator {
    /// Returns whether the operator is neither revoked nor expired.
    #[must_use]
    pub fn is_valid(&self, now: Millis) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|end| end > now)
    }
}

/// An enrolment token. It contains only a hash of its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The public part of the token's text.
    pub id: String,
    /// SHA-256 of the secret, lower-case hex.
    pub secret_sha256: String,
    /// Time from which the token is invalid.
    pub expires: Millis,
    /// Number of remaining enrolments.
    pub uses_left: u32,
    /// Roles that an enrolled node may have; empty: any.
    pub roles: Vec<String>,
    /// The only minion id that may use it; such a token also allows that id to enrol again with a
    /// new key.
    pub bound_id: Option<MinionId>,
    /// Time of creation.
    pub created: Millis,
    /// The operator who made it.
    pub operator: String,
}

/// The tag of the certificates of kubeconfigs.
pub const KUBECONFIG: &str = "kubeconfig";

/// An issued certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Serial number, lower-case hex.
    pub serial: String,
    /// The CA that signed it.
    pub ca: String,
    /// Subject, for people.
    pub subject: String,
    /// The owner: a minion id, `operator:NAME` or `master`.
    pub owner: String,
    /// The job whose low state requested it; `None` for identities.
    pub job: Option<JobId>,
    /// The requesting chunk's tag; empty for identities.
    pub tag: String,
    /// Time of issue.
    pub created: Millis,
    /// End of validity.
    pub not_after: Millis,
    /// The certificate, PEM.
    pub pem: String,
}

/// A revoked serial number of the `halite` CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// Serial number, lower-case hex.
    pub serial: String,
    /// The owner of the certificate.
    pub owner: String,
    /// Time of the revocation.
    pub when: Millis,
    /// The reason, for people.
    pub reason: String,
}

/// A moment in the time since the host started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteadyDeadline {
    /// The id of that boot of the host.
    pub boot: String,
    /// Milliseconds since that boot.
    pub millis: Millis,
}

/// One function sent to a set of minions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The job's id, which grows with time.
    pub job_id: JobId,
    /// `state.apply`, `test.ping`, …
    pub function: String,
    /// Its arguments, JSON.
    pub args_json: String,
    /// `true` for a test run.
    pub test: bool,
    /// The operator who requested it; `run:ID` for a step of an orchestration.
    pub operator: String,
    /// The requested target expression.
    pub target: String,
    /// The minions that the target resolved to, sorted.
    pub minions: Vec<MinionId>,
    /// Groups of minions that run one after the other; if empty, all run at once.
    pub order: Vec<Vec<MinionId>>,
    /// Time of creation.
    pub created: Millis,
    /// Deadline; `None` for no timeout.
    pub deadline: Option<Millis>,
    /// The same deadline in time since boot, which takes precedence.
    pub steady_deadline: Option<SteadyDeadline>,
    /// The client's id for this request, unique among all jobs.
    pub request_id: Option<String>,
    /// Its status.
    pub status: JobStatus,
    /// Overall return code, once finished.
    pub retcode: Option<i32>,
    /// Time of its end.
    pub finished: Option<Millis>,
    /// The version of the bundle that it was made from; `None` if it needs none.
    pub bundle: Option<BundleVersion>,
}

/// A bundle of which a minion may have something: packages, images, addresses to fetch from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinionBundle {
    /// The minion.
    pub minion: MinionId,
    /// The bundle's version.
    pub bundle: BundleVersion,
    /// The last job for the minion that was made from the bundle, except test runs.
    pub job_id: JobId,
    /// The last highstate from the bundle that succeeded on the minion.
    pub highstate: Option<JobId>,
}

/// One minion's part of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    /// The job.
    pub job_id: JobId,
    /// The minion.
    pub minion: MinionId,
    /// The low state for this minion with placeholders for secrets; `None` for plain functions.
    pub low_json: Option<String>,
    /// Its state.
    pub state: RowState,
    /// The minion's answer, JSON.
    pub return_json: Option<String>,
    /// 0 success, 1 failure, 2 interruption.
    pub retcode: Option<i32>,
    /// The reason of a failure or timeout; otherwise empty.
    pub error: String,
    /// Time of sending.
    pub sent: Option<Millis>,
    /// Time of the start.
    pub started: Option<Millis>,
    /// Time of the return or of the timeout.
    pub ended: Option<Millis>,
    /// The version of the bundle that it was compiled from; `None` for the job's bundle.
    pub bundle: Option<BundleVersion>,
}

impl JobRow {
    /// Creates a row that is not sent yet.
    #[must_use]
    pub fn queued(job_id: &JobId, minion: &MinionId, low_json: Option<String>) -> Self {
        Self {
            job_id: job_id.clone(),
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

/// A minion's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    /// 0 success, 1 failure, 2 interruption.
    pub retcode: i32,
    /// The answer, JSON.
    pub return_json: String,
    /// The error, if the function failed as a whole; otherwise empty.
    pub error: String,
    /// Time of arrival.
    pub when: Millis,
}

/// An orchestration. It is compiled once; its compiled form is stored and resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its id, of the same form as a job's id.
    pub id: JobId,
    /// The SLS, dotted.
    pub sls: String,
    /// Pillar overrides for this run, JSON.
    pub pillar_json: String,
    /// `true` for a test run.
    pub test: bool,
    /// The operator who requested it.
    pub operator: String,
    /// The client's id for this request, unique among all runs.
    pub request_id: Option<String>,
    /// The compiled low state, JSON.
    pub low_json: String,
    /// Its state.
    pub status: RunStatus,
    /// Index of the current step.
    pub current: u32,
    /// The operator who cancelled it, if any.
    pub cancelled_by: Option<String>,
    /// The operator who paused it, if any.
    pub paused_by: Option<String>,
    /// Time of creation.
    pub created: Millis,
    /// Time of the last change.
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
    /// The result, JSON: its jobs, the reason of a failure.
    pub detail_json: String,
    /// Time of the start.
    pub started: Option<Millis>,
    /// Time of the end.
    pub ended: Option<Millis>,
}

/// A recorded event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Sequence number, assigned by the store.
    pub seq: i64,
    /// `halite/job/JOB/new`, `halite/job/JOB/ret/MINION`, `halite/run/ID/step`, `halite/key/ID`, …
    pub tag: String,
    /// Time of the event.
    pub time: Millis,
    /// The data, JSON. Never contains a secret.
    pub data_json: String,
    /// `true` for the last event of a job or run.
    pub last: bool,
    /// Overall return code, on the last event.
    pub retcode: i32,
}

/// An audit line, that is, a caller and its call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Time of the call.
    pub time: Millis,
    /// `operator:root`, `minion:worker-1`, or the address of a caller without identity.
    pub who: String,
    /// Service and method, for example `Operator/Run`.
    pub method: String,
    /// The request in a few words. Never contains a secret.
    pub what: String,
    /// `ok` or the reason of the refusal.
    pub outcome: String,
}

/// A filter for audit lines: all conditions must match; the newest lines come first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only lines at or after this time.
    pub since: Option<Millis>,
    /// Only lines before this time.
    pub until: Option<Millis>,
    /// The caller, as in [`Audit::who`].
    pub who: Option<String>,
    /// Service and method, as in [`Audit::method`].
    pub method: Option<String>,
    /// The maximum number of lines.
    pub limit: u32,
}

impl AuditFilter {
    /// Creates a filter for the newest lines of all callers.
    #[must_use]
    pub fn newest(limit: u32) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }
}

/// A minion's report about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The minion.
    pub minion: MinionId,
    /// Its grains, JSON.
    pub grains_json: String,
    /// Its version.
    pub version: String,
    /// Time of its last message.
    pub last_seen: Millis,
}
