//! The engine as the services see it: compiler, job engine, orchestration and documents behind one
//! trait.

mod backups;
#[cfg(test)]
mod bundle_tests;
#[cfg(test)]
pub(crate) mod fixture;
mod history;
mod show;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use halite_proto::v1;
use halite_proto::v1::minion_message::Body;
use halite_states::low::Chunk;
use serde_json::{Value, json};

use crate::app::{App, ByteStream, Engine, EngineFuture, EventStream, Refusal};
use crate::files;
use crate::jobs::function::{Function, Place};
use crate::jobs::{Jobs, NewJob, target};
use crate::kubernetes::access::Clusters;
use crate::orchestrate::Orchestrator;
use crate::view::{NodeRequest, Views};

/// Everything behind [`Engine`].
pub struct Core {
    app: Arc<App>,
    jobs: Arc<Jobs>,
    orchestrator: Arc<Orchestrator>,
}

/// Brings the engine up and takes up again what a restart interrupted.
///
/// # Errors
/// The store cannot be read.
pub async fn start(app: Arc<App>) -> Result<Arc<dyn Engine>, Refusal> {
    let clusters = Arc::new(Clusters::new(Arc::clone(&app)));
    Ok(Core::start(app, clusters).await?)
}

impl Core {
    /// As [`start`], with a given way to the Kubernetes API.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn start(app: Arc<App>, clusters: Arc<Clusters>) -> Result<Arc<Self>, Refusal> {
        let views = Arc::new(Views::new(&app));
        let jobs = Jobs::open(Arc::clone(&app), views, clusters).await?;
        let orchestrator = Orchestrator::new(Arc::clone(&jobs));
        jobs.take_up().await?;
        orchestrator.take_up().await?;
        Ok(Arc::new(Self {
            app,
            jobs,
            orchestrator,
        }))
    }

    /// The job engine.
    #[must_use]
    pub fn jobs(&self) -> &Arc<Jobs> {
        &self.jobs
    }

    async fn run_job(
        &self,
        operator: &str,
        request: v1::RunRequest,
    ) -> Result<EventStream, Refusal> {
        let function = Function::find(&request.function)?;
        let args = arguments(&request.args_json)?;
        let everybody = request.target_kind.is_empty() || request.target_kind == "glob";
        let everybody = everybody && matches!(request.target.trim(), "" | "*");
        let mut order = Vec::new();
        let minions = if function.name == "state.highstate" && everybody {
            // The one request that may leave its target out, because what it does to whom is
            // declared.
            let groups = self
                .jobs
                .views()
                .load()?
                .safe_order(&target::accepted(&self.app).await?);
            let minions = groups.iter().flatten().cloned().collect();
            if !request.test {
                order = groups;
            }
            minions
        } else {
            let also_master = function.place != Place::Minion || function.name == "test.ping";
            target::resolve(
                &self.app,
                self.jobs.views(),
                &request.target_kind,
                &request.target,
                also_master,
            )
            .await?
        };
        let bus = self.app.hub.subscribe();
        let new = NewJob {
            function: request.function,
            args,
            test: request.test,
            operator: operator.to_owned(),
            target: if request.target.is_empty() {
                "*".into()
            } else {
                request.target
            },
            minions,
            order,
            timeout: request.timeout_seconds,
            request_id: Some(request.request_id).filter(|id| !id.is_empty()),
            jid: None,
        };
        let jid = self.jobs.create(new).await?;
        Ok(self.jobs.follow(jid, bus))
    }

    async fn connected(&self, minion: &str, hello: &v1::MinionHello) -> Result<(), Refusal> {
        let grains: Value = serde_json::from_str(&hello.grains_json).unwrap_or_default();
        self.note_addresses(minion, &grains).await;
        self.jobs.connected(minion, &hello.running_jobs).await
    }

    /// A host without a fitting address can still answer; what needs the address says so when it is
    /// compiled.
    async fn note_addresses(&self, minion: &str, grains: &Value) {
        if let Err(refusal) = self.jobs.views().record_addresses(minion, grains).await {
            tracing::warn!(minion, error = %refusal, "the node's addresses could not be chosen");
        }
    }

    async fn message(&self, minion: &str, message: v1::MinionMessage) -> Result<(), Refusal> {
        match message.body {
            Some(Body::Grains(grains)) => {
                let grains: Value = serde_json::from_str(&grains.grains_json).unwrap_or_default();
                self.note_addresses(minion, &grains).await;
                Ok(())
            }
            Some(body) => self.jobs.message_from(minion, body).await,
            // Of a newer minion: nothing that this master must know.
            None => Ok(()),
        }
    }
}

fn arguments(text: &str) -> Result<Value, Refusal> {
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    match serde_json::from_str::<Value>(text) {
        Ok(value) if value.is_object() => Ok(value),
        _ => Err(Refusal::invalid(
            "the arguments of a function must be a JSON mapping",
        )),
    }
}

impl Engine for Core {
    fn status(&self) -> EngineFuture<'_, Value> {
        Box::pin(status::status(&self.app, &self.jobs))
    }

    fn show(&self, request: v1::ShowRequest) -> EngineFuture<'_, Value> {
        Box::pin(async move { show::show(&self.app, &self.jobs, &request).await })
    }

    fn run<'a>(
        &'a self,
        operator: &'a str,
        request: v1::RunRequest,
    ) -> EngineFuture<'a, EventStream> {
        Box::pin(self.run_job(operator, request))
    }

    fn orchestrate<'a>(
        &'a self,
        operator: &'a str,
        request: v1::OrchestrateRequest,
    ) -> EngineFuture<'a, EventStream> {
        Box::pin(self.orchestrator.start(operator, request))
    }

    fn list_jobs(&self, limit: u32) -> EngineFuture<'_, Value> {
        Box::pin(history::jobs(&self.app, limit))
    }

    fn show_job<'a>(&'a self, jid: &'a str) -> EngineFuture<'a, Value> {
        Box::pin(history::job(&self.app, jid))
    }

    fn add_node<'a>(
        &'a self,
        operator: &'a str,
        request: &'a v1::AddNodeRequest,
    ) -> EngineFuture<'a, ()> {
        Box::pin(async move {
            let node = NodeRequest {
                name: request.name.clone(),
                address: request.address.clone(),
                roles: request.roles.clone(),
                further: request.document_json.clone(),
            };
            self.jobs.views().add_node(&node).await?;
            tracing::info!(node = %request.name, operator, "node declared");
            Ok(())
        })
    }

    fn sign_allowed<'a>(
        &'a self,
        minion: &'a str,
        job: &'a str,
        tag: &'a str,
    ) -> EngineFuture<'a, Chunk> {
        Box::pin(files::certificate_chunk(&self.app, minion, job, tag))
    }

    fn fetch<'a>(
        &'a self,
        minion: &'a str,
        job: &'a str,
        sha256: &'a str,
    ) -> EngineFuture<'a, ByteStream> {
        Box::pin(async move {
            let world = self.jobs.views().load()?;
            files::fetch(&self.app, &world, minion, job, sha256).await
        })
    }

    fn on_connected<'a>(
        &'a self,
        minion: &'a str,
        hello: &'a v1::MinionHello,
    ) -> EngineFuture<'a, ()> {
        Box::pin(self.connected(minion, hello))
    }

    fn on_message<'a>(
        &'a self,
        minion: &'a str,
        message: v1::MinionMessage,
    ) -> EngineFuture<'a, ()> {
        Box::pin(self.message(minion, message))
    }

    fn on_disconnected<'a>(&'a self, minion: &'a str) -> EngineFuture<'a, ()> {
        Box::pin(async move {
            self.jobs.disconnected(minion).await;
            Ok(())
        })
    }

    fn finish(&self) -> EngineFuture<'_, ()> {
        Box::pin(async move {
            self.jobs.finish_own().await;
            Ok(())
        })
    }
}
