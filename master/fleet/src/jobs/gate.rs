//! The gate of ordered jobs: before each host of etcd or of the control plane the master asks the
//! members of etcd. While the loss of one more member would cost the quorum, the job waits; then it
//! fails. Without a quorum, the hosts are repaired in parallel.

use std::collections::BTreeSet;
use std::sync::Arc;

use halite_api::{EventData, ParallelRepair, StepWait};
use halite_core::refusal::Refusal;
use halite_etcd::{Gate, Wait};
use halite_proto::ids::{JobId, MinionId};
use halite_store::Job;

use super::Jobs;
use super::local::AGAIN;
use super::open_job::{OpenJob, PartEnd};

impl Jobs {
    /// The hosts of a job for which etcd must be asked. A test run changes nothing.
    pub(super) async fn gates(&self, job: &Job) -> BTreeSet<MinionId> {
        if job.order.is_empty() || job.test {
            return BTreeSet::new();
        }
        let hosts = job.minions.iter().filter(|host| !host.is_master());
        match self.declarations.in_force().await {
            Ok(snapshot) => {
                let etcd = self.clusters.etcd();
                let declaration = snapshot.declaration();
                hosts
                    .filter(|host| etcd.needs_gate(declaration, host))
                    .cloned()
                    .collect()
            }
            // Etcd is asked about every host; by then the documents are readable, or its part
            // fails.
            Err(_) => hosts.cloned().collect(),
        }
    }

    /// Asks etcd about the next host of a job, if one waits for that, and sends its part.
    pub(super) fn guard(self: &Arc<Self>, job_id: &JobId) {
        let Some(host) = self
            .open_jobs()
            .get_mut(job_id)
            .and_then(OpenJob::begin_gate)
        else {
            return;
        };
        let (jobs, job_id) = (Arc::clone(self), job_id.clone());
        tokio::spawn(async move {
            if let Err(error) = jobs.pass(&job_id, &host).await {
                tracing::error!(job = %job_id, %host, %error, "cannot continue after the gate");
            }
        });
    }

    async fn pass(self: &Arc<Self>, job_id: &JobId, host: &MinionId) -> Result<(), Refusal> {
        let gate = match self.may_miss(job_id, host).await {
            Ok(gate) => gate,
            Err(refusal) => {
                self.end_at_gate(job_id, host, &refusal.message).await;
                return Ok(());
            }
        };
        let without_quorum = gate
            .as_ref()
            .filter(|gate| matches!(gate, Gate::Repair { .. }));
        let now = self.app.clock.steady();
        let ready = {
            let mut open = self.open_jobs();
            let job = open.get_mut(job_id);
            job.map(|job| match without_quorum {
                Some(_) => job.repair(now),
                None => job.pass_gate(host, now),
            })
        };
        let ready = ready.unwrap_or_default();
        if let Some(gate) = without_quorum.filter(|_| !ready.is_empty()) {
            tracing::warn!(job = %job_id, hosts = ?ready, %gate, "hosts are repaired in parallel");
            let report = ParallelRepair {
                job: job_id.clone(),
                hosts: ready.clone(),
                because: gate.to_string(),
            };
            let report = EventData::ParallelRepair(report);
            self.app.events.announce(&report, None);
        }
        let mut outcome = Ok(());
        for minion in ready {
            outcome = outcome.and(self.dispatch(&minion).await);
        }
        self.guard(job_id);
        outcome
    }

    /// Ends the part of a host whose loss etcd cannot tolerate. No deadline applies before the
    /// gate, so this is retried until the store accepts it.
    async fn end_at_gate(self: &Arc<Self>, job_id: &JobId, host: &MinionId, why: &str) {
        let mut again = AGAIN;
        while let Err(error) = self
            .end_without_return(job_id, host, why, PartEnd::Failed)
            .await
        {
            tracing::error!(job = %job_id, %host, %error, "cannot store the end of a part; trying again");
            again.wait().await;
        }
    }

    /// Waits for the answer of the members; `None` if they need not be asked any more.
    async fn may_miss(&self, job_id: &JobId, host: &MinionId) -> Result<Option<Gate>, Refusal> {
        let snapshot = self.declarations.in_force().await?;
        let etcd = self.clusters.etcd();
        if !etcd.needs_gate(snapshot.declaration(), host) {
            return Ok(None);
        }
        let report = |wait: &Wait| {
            tracing::info!(job = %job_id, %host, %wait, "a job waits for etcd");
            let wait = EventData::Wait(waiting(job_id, host, wait));
            self.app.events.announce(&wait, None);
        };
        let gate = etcd.allow_missing(&snapshot, host, &report).await?;
        tracing::info!(%host, %gate, "the members of etcd were asked about the host");
        Ok(Some(gate))
    }
}

/// The wait before a host, for the watchers of the job, in the form of a waiting step.
fn waiting(job_id: &JobId, host: &MinionId, wait: &Wait) -> StepWait {
    StepWait {
        job: Some(job_id.clone()),
        minion: Some(host.clone()),
        step: host.to_string(),
        until: wait.until.clone(),
        because: wait.because.clone(),
        seconds: wait.since.as_secs(),
        limit: Some(wait.limit.as_secs()),
        remedy: format!(
            "`ctl etcd status` shows the members: switch on the hosts of missing members; `ctl job cancel {job_id}` skips \
             the hosts that have not started"
        ),
        ..StepWait::default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_wait_for_the_quorum_has_its_own_text_and_verbs() {
        let wait = Wait {
            until: "etcd can miss cp-2".to_owned(),
            because: "2 of 3 members serve".to_owned(),
            since: Duration::from_secs(10),
            limit: Duration::from_secs(300),
        };
        let job_id = "20261121000000123000".parse().unwrap();
        let said = waiting(&job_id, &"cp-2".parse().unwrap(), &wait);
        assert_eq!((said.step.as_str(), said.seconds), ("cp-2", 10));
        let remedy = said.remedy;
        for verb in [
            "ctl etcd status",
            "switch on",
            "ctl job cancel 20261121000000123000",
        ] {
            assert!(remedy.contains(verb), "{remedy}");
        }
    }
}
