//! The gate of ordered jobs: before each host of etcd or of the control plane the master asks the
//! members of etcd. While one more missing would cost the quorum, the job waits; then it fails.

use std::collections::BTreeSet;
use std::sync::Arc;

use halite_proto::ids::{JobId, MinionId};

use super::Jobs;
use super::open_job::{OpenJob, PartEnd};
use crate::refusal::Refusal;
use crate::store::Job;

impl Jobs {
    /// The hosts of a job of which etcd has to be asked. A prediction changes nothing.
    pub(super) async fn gates(&self, job: &Job) -> BTreeSet<MinionId> {
        if job.order.is_empty() || job.test {
            return BTreeSet::new();
        }
        let hosts = job.minions.iter().filter(|host| !host.is_master());
        match self.declarations.load().await {
            Ok(snapshot) => {
                let etcd = self.clusters.etcd();
                let declaration = snapshot.declaration();
                hosts
                    .filter(|host| etcd.needs_gate(declaration, host))
                    .cloned()
                    .collect()
            }
            // Each is asked for; by then the documents can be read, or its part fails.
            Err(_) => hosts.cloned().collect(),
        }
    }

    /// Asks etcd about the next host of a job, if one waits for that, and sends its part.
    pub(super) fn guard(self: &Arc<Self>, jid: &JobId) {
        let Some(host) = self.open_jobs().get_mut(jid).and_then(OpenJob::begin_gate) else {
            return;
        };
        let (jobs, jid) = (Arc::clone(self), jid.clone());
        tokio::spawn(async move {
            if let Err(error) = jobs.pass(&jid, &host).await {
                tracing::error!(job = %jid, %host, %error, "cannot go on after the gate");
            }
        });
    }

    async fn pass(self: &Arc<Self>, jid: &JobId, host: &MinionId) -> Result<(), Refusal> {
        match self.may_miss(host).await {
            Ok(()) => {
                let now = self.app.clock.steady();
                let ready = {
                    let mut open = self.open_jobs();
                    open.get_mut(jid).map(|job| job.pass_gate(host, now))
                };
                for minion in ready.unwrap_or_default() {
                    self.dispatch(&minion).await?;
                }
                self.guard(jid);
                Ok(())
            }
            Err(refusal) => {
                let why = refusal.message;
                self.end_without_return(jid, host, &why, PartEnd::Failed)
                    .await
            }
        }
    }

    async fn may_miss(&self, host: &MinionId) -> Result<(), Refusal> {
        let snapshot = self.declarations.load().await?;
        let etcd = self.clusters.etcd();
        if !etcd.needs_gate(snapshot.declaration(), host) {
            return Ok(());
        }
        let gate = etcd.allow_missing(&snapshot, host).await?;
        tracing::info!(%host, %gate, "etcd can miss the host");
        Ok(())
    }
}
