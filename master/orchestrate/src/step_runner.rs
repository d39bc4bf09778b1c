//! The states `halite.*`; each is one step. The check of a state carries the step out and returns
//! the changes. A test run does the same, with jobs in test mode.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use halite_cluster::kubernetes::drain::Cordon;
use halite_core::refusal::Refusal;
use halite_fleet::jobs::Jobs;
use halite_states::args::Args;
use halite_states::engine::{Applied, Checked, Failure, Modules};
use halite_states::low::{Chunk, LowState};
use halite_store::{Run, StepStatus};
use serde_json::{Map, Value, json};

use super::cancel::cancelled;
use super::record::Recorder;

/// The default `timeout` of a step, in seconds.
const TIMEOUT: u64 = 900;

/// The changes of a step, and one sentence for an operator.
pub(super) type StepOutcome = (Map<String, Value>, String);

/// Runs the steps of one run.
pub(super) struct StepRunner<'a> {
    pub(super) jobs: Arc<Jobs>,
    pub(super) run: &'a Run,
    pub(super) recorder: &'a Recorder,
    pub(super) low: &'a LowState,
    /// The steps whose failure was recorded before an attempt of this task that could not be
    /// recorded: they are not repeated.
    failed: BTreeSet<usize>,
}

impl<'a> StepRunner<'a> {
    pub(super) fn new(
        jobs: Arc<Jobs>,
        run: &'a Run,
        low: &'a LowState,
        recorder: &'a Recorder,
        failed: BTreeSet<usize>,
    ) -> Self {
        Self {
            jobs,
            run,
            recorder,
            low,
            failed,
        }
    }

    /// The index of the step with this id.
    pub(super) fn position(&self, id: &str) -> Option<usize> {
        let mut chunks = self.low.chunks.iter();
        chunks.position(|chunk| chunk.id == id)
    }

    async fn step(&self, chunk: &Chunk, index: usize) -> Result<StepOutcome, Failure> {
        self.wait_while_isolated(index).await;
        self.wait_for_jobs_behind(index).await?;
        match (chunk.state.as_str(), chunk.fun.as_str()) {
            ("halite", "state") => self.state(chunk, index).await,
            ("halite", "function") => self.function(chunk, index).await,
            ("halite", "wait_for_minion") => self.wait_for_minion(chunk, index).await,
            ("halite", "wait_for_node") => self.wait_for_node(chunk, index).await,
            ("halite", "pod_network") => self.pod_network(chunk, index).await,
            ("halite", "preflight") => self.preflight(chunk, index).await,
            ("halite", "lock") => self.lock(chunk, index).await,
            ("halite", "unlock") => self.unlock(chunk).await,
            ("halite", "encryption_keys") => self.encryption_keys(chunk, index).await,
            ("halite", "encryption_rewrite") => self.encryption_rewrite(chunk, index).await,
            ("halite", "ca_stage") => self.ca_stage(chunk, index).await,
            ("halite", "ca_identities") => self.ca_identities(chunk, index).await,
            ("halite", "ca_pods") => self.ca_pods(chunk, index).await,
            ("halite", "upgrade_turn") => self.upgrade_turn(chunk).await,
            ("halite", "pause") => self.pause().await,
            ("halite", "etcd_defragment") => self.etcd_defragment(chunk, index).await,
            ("halite", "etcd_answers") => self.etcd_answers(chunk).await,
            ("halite", fun) if fun.starts_with("etcd_") => self.etcd(chunk, fun, index).await,
            ("halite", "cordon") => self.cordon(chunk, index, Cordon::On).await,
            ("halite", "uncordon") => self.cordon(chunk, index, Cordon::Off).await,
            ("halite", "vip_moved_off") => self.vip_moved_off(chunk, index).await,
            ("halite", "reboot") => self.reboot(chunk, index).await,
            ("halite", "rebalance") => self.rebalance(chunk, index).await,
            ("halite", "drain") => self.drain(chunk, index).await,
            ("halite", "node_roles") => self.node_roles(chunk).await,
            ("halite", "control_plane_joined") => self.control_plane_joined(chunk).await,
            ("halite", "node_may_leave") => self.node_may_leave(chunk, index).await,
            ("halite", "destroy_allowed") => self.destroy_allowed(chunk, index).await,
            ("halite", "hosts_leave") => self.hosts_leave(chunk, index).await,
            ("halite", "node_forget") => self.node_forget(chunk).await,
            ("halite", "key_reject") => self.key(chunk, "reject").await,
            ("halite", "key_delete") => self.key(chunk, "delete").await,
            ("halite", "node_delete") => self.node_delete(chunk, index).await,
            ("test", fun) => test_state(chunk, fun),
            _ => Err(Failure::new(format!(
                "{} cannot be a step of an orchestration",
                chunk.function()
            ))),
        }
    }
}

impl StepRunner<'_> {
    /// Runs a step to its end, or to the point in a wait at which it leaves because the run was
    /// cancelled. No job of it runs on then.
    async fn until_left(&self, chunk: &Chunk, index: usize) -> Result<StepOutcome, Failure> {
        let ended = {
            let mut step = pin!(self.step(chunk, index));
            poll_fn(|context| match step.as_mut().poll(context) {
                Poll::Pending if self.recorder.has_left(index) => Poll::Ready(None),
                other => other.map(Some),
            })
            .await
        };
        if let Some(outcome) = ended {
            return outcome.map_err(|failure| self.with_drained_host(chunk, failure));
        }
        self.rows(index).await?;
        let by = self.recorder.cancellation().requested().await;
        Err(cancelled(&by))
    }

    fn has_begun(&self, index: usize) -> bool {
        let step = self.recorder.step(index);
        step.is_some_and(|step| step.status == StepStatus::Running)
    }
}

impl Modules for StepRunner<'_> {
    type Diff = ();

    async fn check(&self, chunk: &Chunk) -> Result<Checked<()>, Failure> {
        self.recorder.check_store()?;
        let tag = chunk.tag();
        let index = self.low.chunks.iter().position(|other| other.tag() == tag);
        let index =
            index.ok_or_else(|| Failure::new(format!("{tag} is not a step of this run")))?;
        if self.failed.contains(&index) {
            let detail = self.recorder.detail(index);
            let error = detail.get("error").and_then(Value::as_str);
            return Err(Failure::new(error.unwrap_or_default()));
        }
        let cancelled_by = self.recorder.cancellation().by();
        let has_succeeded = self
            .recorder
            .step(index)
            .is_some_and(|step| step.status == StepStatus::Succeeded);
        if has_succeeded && (cancelled_by.is_some() || !self.asks_again(index)) {
            let detail = self.recorder.detail(index);
            let changes = detail
                .get("changes")
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default();
            let comment = detail
                .get("comment")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            return Ok(Checked {
                changes,
                comment,
                diff: (),
            });
        }
        let outcome = match cancelled_by {
            None => {
                self.recorder.begin(index).await?;
                self.until_left(chunk, index).await
            }
            // Started before the master restarted: its work on hosts ends first.
            Some(by) if self.has_begun(index) => {
                self.rows(index).await?;
                Err(cancelled(&by))
            }
            Some(by) => return Err(cancelled(&by)),
        };
        if outcome.is_err() {
            // A failure of the store is not the step's; the step is repeated.
            self.recorder.check_store()?;
        }
        self.recorder.end(index, &outcome).await?;
        outcome.map(|(changes, comment)| Checked {
            changes,
            comment,
            diff: (),
        })
    }

    async fn apply(&self, _chunk: &Chunk, (): &()) -> Result<Applied, Failure> {
        Ok(Applied::default())
    }

    async fn predict(&self, _chunk: &Chunk, (): &()) {}

    async fn watch(&self, _chunk: &Chunk) -> Option<Result<Checked<()>, Failure>> {
        None
    }

    async fn condition(&self, chunk: &Chunk, _condition: &Value) -> Result<bool, Failure> {
        Err(Failure::new(format!(
            "{}: unless, onlyif and check_cmd need a host to run commands on; a step has none",
            chunk.id
        )))
    }

    async fn exists(&self, _path: &str) -> bool {
        false
    }

    async fn stopped(&self) -> String {
        cancelled(&self.recorder.cancellation().requested().await).text()
    }
}

fn test_state(chunk: &Chunk, fun: &str) -> Result<StepOutcome, Failure> {
    let args = Args::new(chunk);
    let comment = args.text("comment")?.or(args.text("text")?);
    match fun {
        "nop" | "succeed_without_changes" | "show_notification" => {
            Ok((Map::new(), comment.unwrap_or_else(|| "Success!".into())))
        }
        "succeed_with_changes" => Ok((
            Map::from_iter([("testing".to_owned(), json!("Something pretended to change"))]),
            comment.unwrap_or_else(|| "Success!".into()),
        )),
        "fail_without_changes" => Err(Failure::new(
            comment.unwrap_or_else(|| "Failure!".to_owned()),
        )),
        _ => Err(Failure::new(format!(
            "{} cannot be a step of an orchestration",
            chunk.function()
        ))),
    }
}

/// The argument `timeout`.
pub(super) fn timeout(chunk: &Chunk) -> Result<Duration, Failure> {
    let seconds = Args::new(chunk).number("timeout")?;
    Ok(Duration::from_secs(seconds.unwrap_or(TIMEOUT)))
}

/// A refusal as the failure of a step.
pub(super) fn failed(refusal: Refusal) -> Failure {
    Failure::new(refusal.message)
}
