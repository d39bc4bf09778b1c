//! The backend of a running master: jobs, orchestration and the operator API over one [`App`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use halite_api::{ClusterStatus, JobCancellation, JobList, JobOrRun, MasterMove, RunCancellation};
use halite_errors::chain;
use halite_pillar::validate::warnings;
use halite_pillar::view::MASTER_PORT;
use halite_proto::ids::{JobId, JobIdError, MinionId};
use halite_proto::v1;
use halite_proto::v1::minion_message::Body;
use halite_states::low::Chunk;
use serde_json::Value;

use super::{Backend, BackendFuture};
use crate::app::App;
use crate::declared::{Declarations, requested};
use crate::event_stream::EventStream;
use crate::files;
use crate::files::ByteStream;
use crate::jobs::Jobs;
use crate::keys::host_root;
use crate::kubernetes::access::Clusters;
use crate::operator::backup::BackupParts;
use crate::operator::kubeconfig::ApiWay;
use crate::operator::{backup, hand_over, history, kubeconfig, masters, run, show, status};
use crate::orchestrate::Orchestrator;
use crate::refusal::Refusal;
use crate::standby::isolation::Surroundings;
use crate::standby::take_over;
use crate::upkeep::{Defragmentation, Room, Upkeep};

/// The backend of a running master.
pub struct LiveBackend {
    app: Arc<App>,
    jobs: Arc<Jobs>,
    orchestrator: Arc<Orchestrator>,
    upkeep: Upkeep,
    room: Room,
    defragmentation: Defragmentation,
}

/// Starts the backend and resumes the jobs and runs that a restart interrupted.
///
/// # Errors
/// The store cannot be read.
pub async fn start(app: Arc<App>) -> Result<Arc<dyn Backend>, Refusal> {
    let clusters = Arc::new(Clusters::new(Arc::clone(&app)));
    Ok(LiveBackend::start(app, clusters).await?)
}

/// Records that this host has the master. Without the record the hosts would be given the master
/// before; it is written by the next start then.
async fn record_master(app: &App, jobs: &Jobs) {
    match jobs
        .declarations()
        .record_master(&app.config.advertise)
        .await
    {
        Ok(None) => {}
        Ok(Some(node)) => tracing::warn!(node, "this host has the master from now on"),
        Err(error) => tracing::error!(%error, "cannot record which host has the master"),
    }
}

impl LiveBackend {
    /// As [`start`], with a given way to the Kubernetes API.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn start(app: Arc<App>, clusters: Arc<Clusters>) -> Result<Arc<Self>, Refusal> {
        let declarations = Declarations::new(&app);
        Self::over(app, declarations, clusters).await
    }

    /// As [`LiveBackend::start`], with a given way to read the declared state.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) async fn over(
        app: Arc<App>,
        declarations: Declarations,
        clusters: Arc<Clusters>,
    ) -> Result<Arc<Self>, Refusal> {
        let jobs = Jobs::open(Arc::clone(&app), Arc::new(declarations), clusters).await?;
        let orchestrator = Orchestrator::new(Arc::clone(&jobs));
        record_master(&app, &jobs).await;
        if let Err(refusal) = jobs.look_if_new().await {
            let reason = refusal.message;
            tracing::warn!(reason, "cannot see whether this master is isolated");
        }
        jobs.resume().await?;
        orchestrator.resume().await?;
        Ok(Arc::new(Self {
            app,
            upkeep: Upkeep::new(Arc::clone(&jobs)),
            room: Room::new(Arc::clone(&jobs), Arc::clone(&orchestrator)),
            defragmentation: Defragmentation::new(Arc::clone(&jobs), Arc::clone(&orchestrator)),
            jobs,
            orchestrator,
        }))
    }

    #[cfg(test)]
    pub(crate) fn jobs(&self) -> &Arc<Jobs> {
        &self.jobs
    }

    #[cfg(test)]
    pub(crate) fn orchestrator(&self) -> &Arc<Orchestrator> {
        &self.orchestrator
    }

    async fn connected(&self, minion: &MinionId, hello: &v1::MinionHello) -> Result<(), Refusal> {
        let grains: Value = serde_json::from_str(&hello.grains_json).unwrap_or_default();
        self.record_addresses(minion, &grains).await;
        let running = job_ids(&hello.running_jobs)?;
        let unstored = hello.unstored.as_ref().map(|list| job_ids(&list.jobs));
        let unstored = unstored.transpose()?;
        self.jobs
            .connected(minion, &running, unstored.as_deref())
            .await
    }

    /// Logs a failure only: a host without a fitting address can still return, and a compile that
    /// needs the address reports it.
    async fn record_addresses(&self, minion: &MinionId, grains: &Value) {
        let declarations = self.jobs.declarations();
        let peer = self.app.connections.address(minion);
        if let Err(refusal) = declarations.record_addresses(minion, grains, peer).await {
            tracing::warn!(%minion, error = %refusal, "cannot choose the addresses of the node");
        }
    }

    async fn message(&self, minion: &MinionId, message: v1::MinionMessage) -> Result<(), Refusal> {
        match message.body {
            Some(Body::Grains(grains)) => {
                let grains: Value = serde_json::from_str(&grains.grains_json).unwrap_or_default();
                self.record_addresses(minion, &grains).await;
                Ok(())
            }
            Some(body) => self.jobs.message_from(minion, body).await,
            // A message that only newer masters know: this one may ignore it.
            None => Ok(()),
        }
    }
}

fn job_ids(texts: &[String]) -> Result<Vec<JobId>, JobIdError> {
    texts.iter().map(|text| text.parse()).collect()
}

impl Backend for LiveBackend {
    fn probe(&self) -> BackendFuture<'_, ()> {
        Box::pin(self.jobs.probe())
    }

    fn status(&self) -> BackendFuture<'_, ClusterStatus> {
        Box::pin(status::status(&self.app, &self.jobs))
    }

    fn show(&self, request: v1::ShowRequest) -> BackendFuture<'_, v1::Document> {
        Box::pin(async move { show::show(&self.app, &self.jobs, &request).await })
    }

    fn run<'a>(
        &'a self,
        operator: &'a str,
        request: v1::RunRequest,
    ) -> BackendFuture<'a, EventStream> {
        Box::pin(run::run(&self.app, &self.jobs, operator, request))
    }

    fn orchestrate<'a>(
        &'a self,
        operator: &'a str,
        request: v1::OrchestrateRequest,
    ) -> BackendFuture<'a, EventStream> {
        Box::pin(self.orchestrator.start(operator, request))
    }

    fn backup(&self) -> BackendFuture<'_, BackupParts> {
        Box::pin(backup::backup(&self.app, &self.jobs))
    }

    fn api_way<'a>(&'a self, requested: &'a str) -> BackendFuture<'a, ApiWay> {
        Box::pin(kubeconfig::way(&self.app, &self.jobs, requested))
    }

    fn list_jobs(&self, limit: u32) -> BackendFuture<'_, JobList> {
        Box::pin(history::jobs(&self.app, limit))
    }

    fn cancel_job<'a>(
        &'a self,
        job: &'a JobId,
        operator: &'a str,
        force: bool,
    ) -> BackendFuture<'a, JobCancellation> {
        Box::pin(self.jobs.cancel(job, operator, force))
    }

    fn cancel_run<'a>(
        &'a self,
        run: &'a JobId,
        operator: &'a str,
    ) -> BackendFuture<'a, RunCancellation> {
        Box::pin(self.orchestrator.cancel(run, operator))
    }

    fn show_job<'a>(&'a self, id: &'a JobId) -> BackendFuture<'a, JobOrRun> {
        Box::pin(history::job(&self.app, id))
    }

    fn add_node<'a>(
        &'a self,
        operator: &'a str,
        request: &'a v1::AddNodeRequest,
    ) -> BackendFuture<'a, Vec<String>> {
        Box::pin(async move {
            let nodes = requested(request)?;
            self.jobs.declarations().add_nodes(&nodes).await?;
            for node in nodes {
                tracing::info!(node = %node.name, operator, "node declared");
                let forgotten = take_over::forget(&self.app.config, &node.name);
                forgotten.map_err(|error| Refusal::internal(chain(&error)))?;
            }
            let snapshot = self.jobs.declarations().load().await?;
            let warnings = warnings(snapshot.declaration());
            Ok(warnings.iter().map(ToString::to_string).collect())
        })
    }

    fn sign_allowed<'a>(
        &'a self,
        minion: &'a MinionId,
        job: &'a JobId,
        tag: &'a str,
    ) -> BackendFuture<'a, Chunk> {
        Box::pin(async move {
            let chunk = files::certificate_chunk(&self.app, minion, job, tag).await?;
            if host_root::is_asked_for(&chunk) {
                let snapshot = self.jobs.declarations().in_force().await?;
                host_root::check_host(snapshot.declaration(), minion)?;
            }
            Ok(chunk)
        })
    }

    fn fetch<'a>(
        &'a self,
        minion: &'a MinionId,
        job: &'a JobId,
        sha256: &'a str,
    ) -> BackendFuture<'a, ByteStream> {
        Box::pin(async move {
            let snapshot = self.jobs.declarations().in_force().await?;
            files::fetch(&self.app, &snapshot, minion, job, sha256).await
        })
    }

    fn surroundings(&self) -> BackendFuture<'_, Surroundings> {
        Box::pin(self.jobs.surroundings())
    }

    fn masters(&self) -> BackendFuture<'_, Vec<String>> {
        Box::pin(async move {
            let snapshot = self.jobs.declarations().in_force().await?;
            let addresses = snapshot.declaration().master_addresses().into_iter();
            Ok(addresses
                .map(|address| format!("{address}:{MASTER_PORT}"))
                .collect())
        })
    }

    fn on_connected<'a>(
        &'a self,
        minion: &'a MinionId,
        hello: &'a v1::MinionHello,
    ) -> BackendFuture<'a, ()> {
        Box::pin(self.connected(minion, hello))
    }

    fn on_message<'a>(
        &'a self,
        minion: &'a MinionId,
        message: v1::MinionMessage,
    ) -> BackendFuture<'a, ()> {
        Box::pin(self.message(minion, message))
    }

    fn on_disconnected<'a>(&'a self, minion: &'a MinionId) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            self.jobs.disconnected(minion).await;
            Ok(())
        })
    }

    fn on_key_gone<'a>(&'a self, minion: &'a MinionId) -> BackendFuture<'a, ()> {
        Box::pin(self.jobs.end_parts_of(minion))
    }

    fn standbys(&self) -> BackendFuture<'_, Vec<String>> {
        Box::pin(async move {
            let snapshot = self.jobs.declarations().in_force().await?;
            Ok(masters::declared(snapshot.declaration()))
        })
    }

    fn hand_over(&self, request: v1::HandOverRequest) -> BackendFuture<'_, MasterMove> {
        Box::pin(async move { hand_over::hand_over(&self.app, &self.jobs, &request).await })
    }

    fn upkeep(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            tokio::join!(
                self.upkeep.run(),
                self.room.run(),
                self.defragmentation.run()
            );
        })
    }

    fn finish(&self) -> BackendFuture<'_, ()> {
        Box::pin(async move {
            self.jobs.finish_own().await;
            Ok(())
        })
    }
}
