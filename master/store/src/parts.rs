//! Minions' parts of jobs without the sent and returned data, which may be megabytes.

use halite_proto::ids::{JobId, MinionId};

use crate::Millis;
use crate::records::{JobRow, RowState};

/// The progress of one minion's part of a job, without the sent and returned data: both may be
/// megabytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPart {
    /// The minion.
    pub minion: MinionId,
    /// Its state.
    pub state: RowState,
    /// 0 success, 1 failure, 2 interruption.
    pub retcode: Option<i32>,
    /// The reason of a failure or timeout; otherwise empty.
    pub error: String,
    /// Time of the return or of the timeout.
    pub ended: Option<Millis>,
}

/// A minion's part of a job that has not ended, without its low state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPart {
    /// The job.
    pub job_id: JobId,
    /// The minion.
    pub minion: MinionId,
    /// Its state: queued, sent or started.
    pub state: RowState,
    /// `true` for a part that applies states.
    pub has_low_state: bool,
}

impl From<&JobRow> for StoredPart {
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
