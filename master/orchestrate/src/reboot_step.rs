//! `halite.reboot`: reboots a host, and waits for its kubelet.

use std::time::Duration;

use halite_cluster::kubernetes::{Api, ApiError, ObjectRef};
use halite_errors::chain;
use halite_etcd::Pace as _;
use halite_fleet::jobs::NewJob;
use halite_fleet::jobs::cancel::was_cancelled;
use halite_fleet::jobs::failure::succeeded;
use halite_pillar::role::Role;
use halite_proto::identity::IdentityError;
use halite_proto::ids::{JobId, MinionId};
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use halite_store::RowState;
use serde_json::{Map, Value, json};

use super::pace::StepPace;
use super::step_runner::{StepOutcome, StepRunner, failed, timeout};

/// Polling interval.
const PAUSE: Duration = Duration::from_millis(250);
/// The fact of this step: the boot that the reboot ends.
const BOOT: &str = "boot";
/// The fact of this step: the kubelet's last lease renewal before its first one after the boot.
const LEASE: &str = "lease";
/// The time for the command to return; it only starts the reboot.
const ORDER: u32 = 60;

impl StepRunner<'_> {
    /// Reboots a host through its minion, and waits until host, minion and kubelet are back.
    pub(super) async fn reboot(&self, chunk: &Chunk, index: usize) -> Result<StepOutcome, Failure> {
        let node = Args::new(chunk).required("node")?;
        if self.run.test {
            return Ok((Map::new(), format!("a real run reboots {node}")));
        }
        let id = node.parse();
        let id: MinionId = id.map_err(|error: IdentityError| Failure::new(chain(&error)))?;
        let limit = timeout(chunk)?;
        let pace = StepPace::new(self.recorder, index, PAUSE).remedy(format!(
            "look at the console of {node}; if it no longer boots: `ctl node replace {node}`"
        ));
        let mut order: Option<JobId> = None;
        loop {
            let now = self.health(&node).await.map(|health| health.boot);
            let before = self.noted(index, BOOT);
            let because = match (now, before) {
                (Some(now), Some(before)) if now != before => break,
                (Some(now), _) if now.is_empty() => {
                    return Err(Failure::new(format!(
                        "cannot reboot {node}: its minion is older than this master and does not report its boots; \
                         `ctl highstate {node}` updates it"
                    )));
                }
                (Some(now), _) => {
                    // On disk before the host goes down: a resumed run must not reboot it twice.
                    self.recorder.note(index, BOOT, json!(now)).await?;
                    let is_ordered = match &order {
                        Some(order) => self.check_order(order).await?,
                        None => false,
                    };
                    if !is_ordered {
                        order = Some(self.order_reboot(&id, &now, index).await?);
                    }
                    format!("{node} is going down")
                }
                (None, Some(_)) => "its minion is not connected".to_owned(),
                (None, None) => {
                    "its minion does not answer; it must answer before the reboot".to_owned()
                }
            };
            if pace.now() >= limit {
                return Err(Failure::new(format!(
                    "{node} is not back: {because} (waited {} s); look at its console, then run this again",
                    limit.as_secs()
                )));
            }
            pace.say(format!("{node} is back"), because, limit).await;
            pace.pause().await;
        }
        self.wait_for_kubelet(&node, index, &pace, limit).await?;
        let changes = Map::from_iter([(node.clone(), json!("rebooted"))]);
        Ok((changes, format!("{node} has rebooted")))
    }

    /// A fact that this step has recorded.
    fn noted(&self, index: usize, fact: &str) -> Option<String> {
        let detail = self.recorder.detail(index);
        Some(detail.get(fact)?.as_str()?.to_owned())
    }

    /// Makes the job that starts the reboot. A job may be sent twice, so the command does nothing
    /// in any boot other than the recorded one.
    async fn order_reboot(
        &self,
        minion: &MinionId,
        boot: &str,
        index: usize,
    ) -> Result<JobId, Failure> {
        let line = format!(
            "test \"$(cat /proc/sys/kernel/random/boot_id)-$(cut -d ' ' -f 22 /proc/1/stat)\" != '{boot}' || \
             systemd-run --quiet --collect --on-active=1 --timer-property=AccuracySec=100ms systemctl reboot"
        );
        let new = NewJob {
            function: "cmd.run".to_owned(),
            args: json!({"arg": [line], "cmd": line}),
            operator: format!("run:{}", self.run.id),
            target: minion.to_string(),
            timeout: ORDER,
            ..NewJob::default()
        };
        let minions = std::slice::from_ref(minion);
        self.new_job(index, &new, minions).await
    }

    /// Fails if the command that starts the reboot has failed; returns `false` if it was lost or
    /// interrupted.
    async fn check_order(&self, order: &JobId) -> Result<bool, Failure> {
        if !self.jobs.pending(order).is_empty() {
            return Ok(true);
        }
        let (_, rows) = self.jobs.wait(order).await.map_err(failed)?;
        let bad = rows
            .iter()
            .find(|row| row.state == RowState::Returned && row.retcode == Some(1));
        match bad {
            None if rows.iter().any(was_cancelled) => Err(Failure::new(format!(
                "cannot reboot the host: the job {order} was cancelled; run the same command again"
            ))),
            None => Ok(rows.iter().all(succeeded)),
            Some(row) => Err(Failure::new(format!(
                "cannot reboot {}: the command failed; `ctl job show {order}` shows its output",
                row.minion
            ))),
        }
    }

    /// Waits until the kubelet has renewed its lease after the minion's return: until then the API
    /// shows the node's condition before the boot.
    async fn wait_for_kubelet(
        &self,
        node: &str,
        index: usize,
        pace: &StepPace<'_>,
        limit: Duration,
    ) -> Result<(), Failure> {
        let snapshot = self.jobs.declarations().load().await.map_err(failed)?;
        let declared = snapshot.declaration().nodes.get(node);
        let runs = declared.is_some_and(|node| node.runs_containers());
        // The kubelet of a control plane that never joined knows no API yet.
        let is_node =
            declared.is_some_and(|node| !node.has(Role::ControlPlane) || node.serves_api());
        if !runs || !is_node {
            return Ok(());
        }
        let api = self.jobs.clusters().api(&snapshot).await.map_err(failed)?;
        loop {
            let because = match (renewal(api.as_ref(), node).await, self.noted(index, LEASE)) {
                (Ok(None), _) => return Ok(()),
                (Ok(Some(now)), Some(before)) if now != before => return Ok(()),
                (Ok(Some(now)), None) => {
                    self.recorder.note(index, LEASE, json!(now)).await?;
                    "its kubelet has not renewed its lease since the boot".to_owned()
                }
                (Ok(Some(_)), Some(_)) => {
                    "its kubelet has not renewed its lease since the boot".to_owned()
                }
                (Err(error), _) => chain(&error),
            };
            if pace.now() >= limit {
                return Err(Failure::new(format!(
                    "{node} has booted, but {because} (waited {} s); `journalctl -u kubelet` there shows more",
                    limit.as_secs()
                )));
            }
            pace.say(format!("the kubelet of {node} is back"), because, limit)
                .await;
            pace.pause().await;
        }
    }
}

/// The time of the kubelet's last lease renewal, as it wrote it; `None` for a host without a node.
async fn renewal(api: &dyn Api, node: &str) -> Result<Option<String>, ApiError> {
    let lease = ObjectRef {
        api_version: "coordination.k8s.io/v1".to_owned(),
        kind: "Lease".to_owned(),
        namespace: "kube-node-lease".to_owned(),
        name: node.to_owned(),
    };
    let found = api.get(&lease).await?;
    let time = |lease: Value| Some(lease["spec"]["renewTime"].as_str()?.to_owned());
    Ok(found.and_then(time))
}
