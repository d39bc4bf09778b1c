//! The backend: jobs, orchestration and the operator API over one [`App`].

use std::sync::Arc;

use halite_api::{
    CaRequest, ClusterStatus, JobCancellation, JobList, JobOrRun, MasterMove, PreparedCa,
    RunCancellation, SinkList, SinkTests, UpgradeStatus,
};
use halite_cluster::kubernetes::access::Clusters;
use halite_core::app::App;
use halite_core::declared::{Declarations, requested};
use halite_core::event_stream::EventStream;
use halite_core::isolation::Surroundings;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_fleet::files;
use halite_fleet::files::ByteStream;
use halite_fleet::jobs::{Jobs, TurnAnswer};
use halite_fleet::keys::host_root;
use halite_names::AgeRecipient;
use halite_orchestrate::Orchestrator;
use halite_pillar::validate::warnings;
use halite_pillar::view::MASTER_PORT;
use halite_proto::ids::{JobId, JobIdError, MinionId};
use halite_proto::v1;
use halite_proto::v1::minion_message::Body;
use halite_standby::take_over;
use halite_states::low::Chunk;
use serde_json::Value;
use tokio::sync::watch;

use crate::health_rounds::{HealthRounds, LatestHealth};
use crate::notifier::Notifier;
use crate::operator::backup::BackupParts;
use crate::operator::kubeconfig::ApiWay;
use crate::operator::{
    backup, document, hand_over, history, kubeconfig, last_upgrade, masters, own_cas, run, show,
    status,
};
use crate::upkeep::{Defragmentation, Room, Upkeep};

/// The calls of operators and minions, after authentication and authorisation. An error is the
/// refusal that the caller receives.
pub struct Backend {
    app: Arc<App>,
    jobs: Arc<Jobs>,
    orchestrator: Arc<Orchestrator>,
    upkeep: Upkeep,
    room: Room,
    defragmentation: Defragmentation,
    health: HealthRounds,
    notifier: Notifier,
}

/// Starts the backend and resumes the jobs and runs that a restart interrupted.
///
/// # Errors
/// The store cannot be read.
pub async fn start(app: Arc<App>) -> Result<Arc<Backend>, Refusal> {
    let clusters = Arc::new(Clusters::new(Arc::clone(&app)));
    Backend::start(app, clusters).await
}

/// Records that this host has the master. Without the record the hosts would be given the previous
/// master; the next start then writes it.
async fn record_master(app: &App, jobs: &Jobs) {
    match jobs
        .declarations()
        .record_master(&app.config.advertise)
        .await
    {
        Ok(None) => {}
        Ok(Some(node)) => tracing::warn!(node, "this host now has the master"),
        Err(error) => tracing::error!(%error, "cannot record which host has the master"),
    }
}

impl Backend {
    /// Like [`start`], with this access to the Kubernetes API.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn start(app: Arc<App>, clusters: Arc<Clusters>) -> Result<Arc<Self>, Refusal> {
        let declarations = Declarations::new(&app);
        Self::over(app, declarations, clusters).await
    }

    /// Like [`Backend::start`], with this reader of the declared state.
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
            tracing::warn!(reason, "cannot determine whether this master is isolated");
        }
        jobs.resume().await?;
        orchestrator.resume().await?;
        Ok(Arc::new(Self {
            app,
            upkeep: Upkeep::new(Arc::clone(&jobs)),
            room: Room::new(Arc::clone(&jobs), Arc::clone(&orchestrator)),
            defragmentation: Defragmentation::new(Arc::clone(&jobs), Arc::clone(&orchestrator)),
            health: HealthRounds::new(Arc::clone(&jobs)),
            notifier: Notifier::new(Arc::clone(&jobs)),
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

    /// Sends a minion its pending messages. The caller has registered its stream and stored the
    /// facts of its hello.
    pub async fn on_connected(
        &self,
        minion: &MinionId,
        hello: &v1::MinionHello,
    ) -> Result<(), Refusal> {
        let grains: Value = serde_json::from_str(&hello.grains_json).unwrap_or_default();
        self.record_addresses(minion, &grains).await;
        let running = job_ids(&hello.running_jobs)?;
        let unstored = hello.unstored.as_ref().map(|list| job_ids(&list.jobs));
        let unstored = unstored.transpose()?;
        self.jobs
            .connected(minion, &running, unstored.as_deref())
            .await
    }

    /// Only logs a failure: a host without a matching address can still return, and a compile that
    /// needs the address reports it.
    async fn record_addresses(&self, minion: &MinionId, grains: &Value) {
        let declarations = self.jobs.declarations();
        let peer = self.app.connections.address(minion);
        if let Err(refusal) = declarations.record_addresses(minion, grains, peer).await {
            tracing::warn!(%minion, error = %refusal, "cannot choose the addresses of the node");
        }
    }

    /// Handles a message other than the hello. A return is stored before this answers; then the
    /// minion is sent `ReturnStored`, unless it answers a query, for which it keeps no return.
    pub async fn on_message(
        &self,
        minion: &MinionId,
        message: v1::MinionMessage,
    ) -> Result<(), Refusal> {
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

impl Backend {
    /// Answers once jobs are dispatched and open jobs are checked.
    pub async fn probe(&self) -> Result<(), Refusal> {
        self.jobs.probe().await
    }

    /// `Operator.Status`: the whole document.
    pub async fn status(&self) -> Result<ClusterStatus, Refusal> {
        status::status(&self.app, &self.jobs).await
    }

    /// `Operator.Show`.
    pub async fn show(&self, request: v1::ShowRequest) -> Result<v1::Document, Refusal> {
        show::show(&self.app, &self.jobs, &request).await
    }

    /// `Operator.Run`. `operator` is the name in the caller's certificate.
    pub async fn run(
        &self,
        operator: &str,
        request: v1::RunRequest,
    ) -> Result<EventStream, Refusal> {
        run::run(&self.app, &self.jobs, operator, request).await
    }

    /// `Operator.Orchestrate`.
    pub async fn orchestrate(
        &self,
        operator: &str,
        request: v1::OrchestrateRequest,
    ) -> Result<EventStream, Refusal> {
        self.orchestrator.start(operator, request).await
    }

    /// `Operator.Backup`: the parts, from the head to the end.
    pub async fn backup(&self) -> Result<BackupParts, Refusal> {
        backup::backup(&self.app, &self.jobs).await
    }

    /// The access to the Kubernetes API for `Operator.Kubeconfig`, through the requested server or
    /// the best one. The caller signs.
    pub async fn api_way(&self, requested: &str) -> Result<ApiWay, Refusal> {
        kubeconfig::way(&self.app, &self.jobs, requested).await
    }

    /// `Operator.ListJobs`.
    pub async fn list_jobs(&self, limit: u32) -> Result<JobList, Refusal> {
        history::jobs(&self.app, limit).await
    }

    /// `Operator.CancelJob`.
    pub async fn cancel_job(
        &self,
        job: &JobId,
        operator: &str,
        force: bool,
    ) -> Result<JobCancellation, Refusal> {
        self.jobs.cancel(job, operator, force).await
    }

    /// Ends a run before its steps are done.
    pub async fn cancel_run(
        &self,
        run: &JobId,
        operator: &str,
    ) -> Result<RunCancellation, Refusal> {
        self.orchestrator.cancel(run, operator).await
    }

    /// `Operator.CancelRun`.
    pub async fn end_run(
        &self,
        request: &v1::CancelRunRequest,
        operator: &str,
    ) -> Result<v1::Document, Refusal> {
        let run = request.run.parse()?;
        Ok(match request.pause {
            true => document(&self.pause_run(&run, operator).await?),
            false => document(&self.cancel_run(&run, operator).await?),
        })
    }

    /// Pauses an upgrade before its next host.
    pub async fn pause_run(&self, run: &JobId, operator: &str) -> Result<UpgradeStatus, Refusal> {
        self.orchestrator.pause(run, operator).await?;
        last_upgrade::status(&self.app, &self.jobs).await
    }

    /// `Operator.ShowJob`.
    pub async fn show_job(&self, id: &JobId) -> Result<JobOrRun, Refusal> {
        history::job(&self.app, id).await
    }

    /// `Operator.AddNode`: validates and writes the node documents (idempotent), and returns the
    /// warnings about the declaration. The caller makes tokens and commands.
    pub async fn add_node(
        &self,
        operator: &str,
        request: &v1::AddNodeRequest,
    ) -> Result<Vec<String>, Refusal> {
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
    }

    /// The chunk with this `tag` in this minion's part of `job`, if it requests a certificate
    /// (`x509.certificate`, `kubeconfig.managed`) and the minion has not returned yet; a refusal
    /// otherwise. The caller decides by the arguments of this chunk alone whether to sign.
    pub async fn sign_allowed(
        &self,
        minion: &MinionId,
        job: &JobId,
        tag: &str,
    ) -> Result<Chunk, Refusal> {
        let chunk = files::certificate_chunk(&self.app, minion, job, tag).await?;
        if host_root::is_asked_for(&chunk) {
            let snapshot = self.jobs.declarations().in_force().await?;
            host_root::check_host(snapshot.declaration(), minion)?;
        }
        Ok(chunk)
    }

    /// Returns a file by the digest of its content, if this minion's part of `job` refers to it. It
    /// is a stream of pieces, so that a large file of the bundle is never in memory as a whole.
    pub async fn fetch(
        &self,
        minion: &MinionId,
        job: &JobId,
        sha256: &str,
    ) -> Result<ByteStream, Refusal> {
        let snapshot = self.jobs.declarations().in_force().await?;
        files::fetch(&self.app, &snapshot, minion, job, sha256).await
    }

    /// Answers a minion that asks whether it may restart a service in this job.
    pub async fn take_turn(
        &self,
        minion: &MinionId,
        job: &JobId,
        unit: &str,
    ) -> Result<TurnAnswer, Refusal> {
        self.jobs.take_turn(minion, job, unit).await
    }

    /// Records that a minion's stream has ended.
    pub async fn on_disconnected(&self, minion: &MinionId) {
        self.jobs.disconnected(minion).await;
    }

    /// The addresses of the declared masters, the acting one first; an error if they cannot be
    /// read.
    pub async fn masters(&self) -> Result<Vec<String>, Refusal> {
        let snapshot = self.jobs.declarations().in_force().await?;
        let addresses = snapshot.declaration().master_addresses().into_iter();
        Ok(addresses
            .map(|address| format!("{address}:{MASTER_PORT}"))
            .collect())
    }

    /// The standbys and minions that the master sees.
    pub async fn surroundings(&self) -> Result<Surroundings, Refusal> {
        self.jobs.surroundings().await
    }

    /// Ends the work that waits for a minion whose key was deleted or replaced: the next host with
    /// the id is another one.
    pub async fn on_key_gone(&self, minion: &MinionId) -> Result<(), Refusal> {
        self.jobs.end_parts_of(minion).await
    }

    /// The names of the declared standbys.
    pub async fn standbys(&self) -> Result<Vec<String>, Refusal> {
        let snapshot = self.jobs.declarations().in_force().await?;
        Ok(masters::declared(snapshot.declaration()))
    }

    /// Encrypts the secrets also to a standby, with the recipient in its hello.
    pub async fn add_secret_recipient(
        &self,
        standby: &str,
        recipient: &str,
    ) -> Result<(), Refusal> {
        let recipient: AgeRecipient = recipient.parse().map_err(|error| {
            Refusal::invalid(format!("cannot use the recipient of {standby}: {error}"))
        })?;
        let declarations = self.jobs.declarations();
        declarations.add_secret_recipient(standby, recipient).await
    }

    /// `Operator.HandOver`.
    pub async fn hand_over(&self, request: v1::HandOverRequest) -> Result<MasterMove, Refusal> {
        hand_over::hand_over(&self.app, &self.jobs, &request).await
    }

    /// `Operator.RequestCa`.
    pub async fn request_ca(&self, name: &str) -> Result<CaRequest, Refusal> {
        own_cas::request(self.jobs.declarations(), name).await
    }

    /// `Operator.ImportCa`.
    pub async fn import_ca(&self, request: v1::ImportCaRequest) -> Result<PreparedCa, Refusal> {
        let now = self.app.clock.now();
        own_cas::import(self.jobs.declarations(), now, request).await
    }

    /// Maintains the cluster on the master's own initiative; never returns.
    pub async fn upkeep(&self) {
        tokio::join!(
            self.upkeep.run(),
            self.room.run(),
            self.defragmentation.run()
        );
    }

    /// Checks the health of the cluster regularly while the document needs it; never returns.
    pub async fn check_health(&self) {
        self.health.run().await;
    }

    /// The result of the last round of [`Backend::check_health`], and each later one.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<LatestHealth> {
        self.health.subscribe()
    }

    /// Notifies the sinks of the findings of these rounds; never returns.
    pub async fn notify(&self) {
        self.notifier.run(self.health()).await;
    }

    /// `Operator.ListSinks`.
    pub async fn list_sinks(&self) -> Result<SinkList, Refusal> {
        self.notifier.list().await
    }

    /// `Operator.TestSinks`.
    pub async fn test_sinks(&self, operator: &str, sink: &str) -> Result<SinkTests, Refusal> {
        self.notifier.test(operator, sink).await
    }

    /// Starts no more maintenance, and waits for running maintenance. Called before the master
    /// stops.
    pub async fn finish(&self) {
        self.jobs.finish_own().await;
    }
}
