//! Queries to a minion outside of jobs: they are neither stored nor sent again, and late answers
//! are dropped. So an operator may repeat them as often as desired.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use halite_core::connections::NotConnected;
use halite_proto::ids::{JobId, MinionId};
use halite_proto::v1;
use halite_proto::v1::master_message::Body;
use serde_json::Value;
use tokio::sync::oneshot;

use super::Jobs;

/// A query without an answer.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// The minion is not connected.
    #[error(transparent)]
    NotConnected(#[from] NotConnected),
    /// No answer arrived in time.
    #[error(
        "the minion did not answer within {0} s; `systemctl status halite-minion` on the host shows its state"
    )]
    Late(u64),
    /// The minion answered with an error, or does not know the query.
    #[error("the minion answered: {0}")]
    Refused(String),
    /// The answer has an unexpected form.
    #[error("cannot read the minion's answer")]
    Malformed(#[from] serde_json::Error),
}

/// The queries that wait for their answers.
#[derive(Default)]
pub(super) struct Questions(Mutex<BTreeMap<(JobId, MinionId), oneshot::Sender<v1::JobReturn>>>);

/// Removes a query when its caller goes away.
struct Asked<'a> {
    questions: &'a Questions,
    key: (JobId, MinionId),
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.questions.open().remove(&self.key);
    }
}

impl Questions {
    fn open(&self) -> MutexGuard<'_, BTreeMap<(JobId, MinionId), oneshot::Sender<v1::JobReturn>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Consumes a return that answers a query of this minion; otherwise returns it.
    pub(super) fn take(
        &self,
        job_id: &JobId,
        minion: &MinionId,
        returned: v1::JobReturn,
    ) -> Option<v1::JobReturn> {
        let asker = self.open().remove(&(job_id.clone(), minion.clone()));
        let Some(asker) = asker else {
            return Some(returned);
        };
        // A caller that has just gone away needs no answer.
        let _ = asker.send(returned);
        None
    }
}

impl Jobs {
    /// Queries a connected minion, and waits for its answer.
    ///
    /// # Errors
    /// The minion is not connected, does not answer in time, or answers with an error.
    pub async fn ask(
        &self,
        minion: &MinionId,
        function: &str,
        args: &Value,
        limit: Duration,
    ) -> Result<Value, Unanswered> {
        let (sender, answer) = oneshot::channel();
        let job_id = self.next_job_id();
        let asked = Asked {
            questions: &self.questions,
            key: (job_id.clone(), minion.clone()),
        };
        self.questions.open().insert(asked.key.clone(), sender);
        let job = v1::Job {
            job: job_id.to_string(),
            function: function.to_owned(),
            args_json: args.to_string(),
            ..v1::Job::default()
        };
        let message = v1::MasterMessage {
            body: Some(Body::Job(job)),
        };
        let late = || Unanswered::Late(limit.as_secs());
        let exchange = async {
            self.app.connections.send(minion, message).await?;
            answer.await.map_err(|_| late())
        };
        let returned = tokio::time::timeout(limit, exchange)
            .await
            .map_err(|_| late())??;
        if returned.retcode != 0 {
            return Err(Unanswered::Refused(returned.error));
        }
        Ok(serde_json::from_str(&returned.return_json)?)
    }
}
