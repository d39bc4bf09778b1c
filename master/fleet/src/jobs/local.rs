//! Jobs of the target `master`: the states of Kubernetes objects, run in this process.

use std::sync::Arc;
use std::time::Duration;

use halite_cluster::kubernetes::modules::{KubernetesModules, Patience};
use halite_core::names::MASTER;
use halite_core::refusal::Refusal;
use halite_pillar::declaration::Declaration;
use halite_pillar::node::Node;
use halite_pillar::role::Role;
use halite_proto::backoff::Backoff;
use halite_proto::ids::{JobId, MinionId};
use halite_proto::v1;
use halite_states::engine::RunOptions;
use halite_states::low::LowState;
use halite_store::StoredAnswer;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{Jobs, target};

/// The pauses before the retries of a result that the store did not accept.
pub(super) const AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(8));

impl Jobs {
    /// Starts a job of the target `master`; its return is stored like a minion's.
    pub(super) fn run_here(self: &Arc<Self>, job_id: JobId, message: v1::Job) {
        let jobs = Arc::clone(self);
        let stop = Arc::new(Notify::new());
        if let Some(open) = self.open_jobs().get_mut(&job_id) {
            open.stop_here = Some(Arc::clone(&stop));
        }
        tokio::spawn(async move {
            let work = async {
                jobs.started(&job_id, &MASTER).await?;
                jobs.carry_out(&job_id, &message).await
            };
            let outcome = tokio::select! {
                outcome = work => outcome,
                () = stop.notified() => {
                    // The part has ended without a return; its lane may have been taken again.
                    jobs.lane(&MASTER).lock().await.running.remove(&job_id);
                    return;
                }
            };
            let when = jobs.app.clock.now();
            let redactor = match jobs.redactor(&job_id, &MASTER).await {
                Ok(redactor) => redactor,
                Err(refusal) => {
                    // The return is dropped, and only the reason stays: the return may contain a
                    // secret.
                    let answer = StoredAnswer {
                        retcode: 1,
                        return_json: "null".into(),
                        error: refusal.message,
                        when,
                    };
                    return jobs.store_answer(&job_id, &MASTER, answer).await;
                }
            };
            let answer = match outcome {
                Ok((retcode, value)) => StoredAnswer {
                    retcode,
                    return_json: redactor.json(&value.to_string()),
                    error: String::new(),
                    when,
                },
                Err(refusal) => StoredAnswer {
                    retcode: 1,
                    return_json: "null".into(),
                    error: redactor.text(&refusal.message),
                    when,
                },
            };
            jobs.store_answer(&job_id, &MASTER, answer).await;
        });
    }

    /// Stops the work of a part of the target `master` that exceeded its time limit. The last call
    /// to the API may still take effect; nothing follows it.
    pub(super) fn stop_here(&self, job_id: &JobId) {
        let open = self.open_jobs();
        if let Some(stop) = open.get(job_id).and_then(|job| job.stop_here.as_ref()) {
            stop.notify_one();
        }
    }

    /// Stores the return of a part that ran in this process, which alone knows it: no minion sends
    /// it again. So this is retried until the store accepts it, or a restarted master ends the
    /// part.
    pub(super) async fn store_answer(
        self: &Arc<Self>,
        job_id: &JobId,
        minion: &MinionId,
        answer: StoredAnswer,
    ) {
        let mut again = AGAIN;
        while let Err(error) = self.returned(job_id, minion, answer.clone()).await {
            tracing::error!(job = %job_id, %minion, %error, "cannot store a return of the master itself; trying again");
            again.wait().await;
        }
    }

    async fn carry_out(
        self: &Arc<Self>,
        job_id: &JobId,
        message: &v1::Job,
    ) -> Result<(i32, Value), Refusal> {
        match message.function.as_str() {
            "state.apply" => self.apply_here(job_id, message).await,
            "test.ping" => Ok((0, Value::Bool(true))),
            "grains.items" | "saltutil.refresh_grains" => Ok((0, json!({"id": *MASTER}))),
            other => Err(Refusal::invalid(format!(
                "cannot run {other} on the target `master`: it runs on hosts"
            ))),
        }
    }

    async fn apply_here(
        self: &Arc<Self>,
        job_id: &JobId,
        message: &v1::Job,
    ) -> Result<(i32, Value), Refusal> {
        // One at a time: the previous part, which exceeded its time limit, must have ended.
        let _alone = self.applying.lock().await;
        let low: LowState = serde_json::from_str(&message.low_json)
            .map_err(|error| Refusal::internal(format!("cannot read the low state: {error}")))?;
        let snapshot = self.declarations.load().await?;
        let api = self.clusters.api(&snapshot).await?;
        // A minion's id is its node's name.
        let joined = target::accepted(&self.app)
            .await?
            .into_iter()
            .map(String::from)
            .filter(|name| registers(snapshot.declaration(), name));
        let cluster = KubernetesModules::new(api, message.test, Patience::default())
            .expecting(joined)
            .running(&low.chunks);
        let total = u32::try_from(low.chunks.len()).unwrap_or(u32::MAX);
        let redactor = self.declarations.redactor(&MASTER).await?;
        let mut index = 0;
        let options = RunOptions { test: message.test };
        let run = halite_states::run::run(&low, &cluster, options, |state| {
            let shown = serde_json::to_string(state).unwrap_or_default();
            let state = serde_json::from_str(&redactor.json(&shown)).ok();
            self.progressed(job_id, &MASTER, (index, total), state);
            index += 1;
        })
        .await;
        let retcode = i32::from(!run.succeeded());
        let value = serde_json::to_value(&run)
            .map_err(|error| Refusal::internal(format!("cannot store the return: {error}")))?;
        Ok((retcode, value))
    }
}

/// Returns whether an enrolled host's kubelet can register already. On an additional control plane
/// it registers through the host's own API server, which may need an etcd member, and members join
/// one after the other.
fn registers(declaration: &Declaration, name: &str) -> bool {
    let node = declaration.nodes.get(name);
    let registers =
        |node: &Node| node.serves_api() || node.runs_containers() && !node.has(Role::ControlPlane);
    node.is_none_or(|node| registers(node))
}
