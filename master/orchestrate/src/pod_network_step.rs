//! `halite.pod_network`: checks that a new pod on a node gets the declared network and reaches its
//! required targets. A node is Ready when its kubelet says so, which knows less.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use halite_cluster::kubernetes::drain::is_under_maintenance;
use halite_cluster::kubernetes::node::reference;
use halite_cluster::kubernetes::{Api, ApiError, ObjectRef};
use halite_cluster::pod_network::question::{question, ready_replicas};
use halite_cluster::pod_network::{Fault, daemons, judge};
use halite_core::declared::Snapshot;
use halite_errors::chain;
use halite_fleet::jobs::Unanswered;
use halite_host_reports::pod_network::{FUNCTION, PodNetworkReport, Question};
use halite_pillar::cluster::Cluster;
use halite_proto::identity::IdentityError;
use halite_proto::ids::MinionId;
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::pace::StepPace;
use super::step_runner::{StepOutcome, StepRunner, failed, timeout};

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);
/// The time for the minion to answer.
const ANSWER: Duration = Duration::from_secs(6);
/// The seconds after which the kubelet ends the pod, in case no master is left to remove it.
const LIFE: u64 = 600;
const NAMESPACE: &str = "kube-system";

impl StepRunner<'_> {
    /// Starts a pod on the node and checks its network, until all checks pass or the time is over.
    /// The pod is removed in any case; a pod left by an earlier attempt, whose master died, is
    /// removed before the first check.
    pub(super) async fn pod_network(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        let node = Args::new(chunk).required("node")?;
        if self.run.test {
            let comment = format!("a real run starts a pod on {node} and tests its network");
            return Ok((Map::new(), comment));
        }
        if let Some(left_out) = self.left_out(chunk, &node, index).await? {
            return Ok(left_out);
        }
        let minion: MinionId =
            (node.parse()).map_err(|error: IdentityError| Failure::new(chain(&error)))?;
        let snapshot = self.jobs.declarations().load().await.map_err(failed)?;
        let api = self.jobs.clusters().api(&snapshot).await.map_err(failed)?;
        let trial = Trial {
            runner: self,
            pod: pod(&node, &image(&snapshot, &minion)?),
            node,
            minion,
            api,
            cluster: &snapshot.declaration().cluster,
            needs_dns: Args::new(chunk).flag("dns", false)?,
            only_in_maintenance: Args::new(chunk).flag("maintenance", false)?,
        };
        let outcome = trial.run(chunk, index).await;
        trial.remove().await;
        // A cancelled run ends here.
        self.recorder.leave_if_cancelled(index).await;
        outcome
    }
}

/// The pod's image: the sandbox image of every pod, which the host already has.
fn image(snapshot: &Snapshot, minion: &MinionId) -> Result<String, Failure> {
    let bundle = snapshot.bundle_for(minion).map_err(failed)?;
    let image = bundle.images.get("pause").cloned();
    image.ok_or_else(|| {
        Failure::new("the bundle has no image `pause`; add one with `ctl bundle add`")
    })
}

/// An idle pod on this node, whatever its taints.
fn pod(node: &str, image: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": format!("halite-pod-network-{node}"), "namespace": NAMESPACE},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LIFE,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65535, "runAsGroup": 65535, "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "pause",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
                },
            }],
        },
    })
}

/// One run of the step.
struct Trial<'a, 'b> {
    runner: &'a StepRunner<'b>,
    node: String,
    minion: MinionId,
    pod: Value,
    api: Arc<dyn Api>,
    cluster: &'a Cluster,
    /// `true` if the cluster's DNS must have a ready replica; otherwise it is tested only if there
    /// is one.
    needs_dns: bool,
    /// `true` if only a node is tested that a drain has cordoned for the work on its host.
    only_in_maintenance: bool,
}

/// The outcome of an attempt.
enum Attempt {
    /// All checks passed, except for these that could not be tried.
    Well(Vec<String>),
    /// Not yet.
    Not(Fault),
    /// There is nothing to test: the node is not in maintenance.
    InService,
}

impl Trial<'_, '_> {
    async fn run(&self, chunk: &Chunk, index: usize) -> Result<StepOutcome, Failure> {
        let (node, recorder) = (&self.node, self.runner.recorder);
        let limit = timeout(chunk)?;
        let deadline = Instant::now() + limit;
        let pace = StepPace::new(recorder, index, PAUSE);
        self.remove().await;
        loop {
            let Fault {
                message, remedy, ..
            } = match self.attempt().await {
                Ok(Attempt::Well(untried)) => {
                    let mut comment = format!("pods of {node} reach their required targets");
                    if !untried.is_empty() {
                        comment = format!("{comment}; not tried: {}", untried.join(", "));
                    }
                    return Ok((Map::new(), comment));
                }
                Ok(Attempt::Not(fault)) => fault,
                Ok(Attempt::InService) => {
                    return Ok((Map::new(), format!("node/{node} is not in maintenance")));
                }
                Err(error) => self.fault(
                    chain(&error),
                    "`ctl health` names the API servers and members of etcd that do not serve"
                        .to_owned(),
                ),
            };
            if Instant::now() >= deadline || recorder.cancellation().by().is_some() {
                let waited = limit.as_secs();
                return Err(Failure::new(format!(
                    "{message} (waited {waited} s); {remedy}"
                )));
            }
            let until = format!("pods of {node} reach their required targets");
            pace.say_with(until, message, limit, &remedy).await;
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                _ = recorder.cancellation().requested() => {}
            }
        }
    }

    async fn attempt(&self) -> Result<Attempt, ApiError> {
        let api = self.api.as_ref();
        let (node, plugin) = (self.node.as_str(), self.cluster.cni.plugin);
        if self.only_in_maintenance {
            let live = api.get(&reference(node)).await?;
            if !live.is_some_and(|live| is_under_maintenance(&live)) {
                return Ok(Attempt::InService);
            }
        }
        // First: the kubelet retries a pod that starts too early only after ten seconds.
        let daemons = daemons::inspect(api, plugin, &[node].into()).await?;
        if let Some(fault) = daemons.into_iter().find(|fault| fault.host == node) {
            return Ok(Attempt::Not(fault));
        }
        let replicas = ready_replicas(api).await?;
        let nothing = Question {
            targets: Vec::new(),
            ..question(self.cluster, node, &[], &replicas)
        };
        let before = match self.ask(&nothing).await {
            // A minion of an earlier version lacks this function.
            Err(Unanswered::Refused(_)) => PodNetworkReport::default(),
            Err(error) => return Ok(Attempt::Not(self.unanswered(&error))),
            Ok(answer) => answer,
        };
        let setup = before.setup.as_ref();
        if let Some(fault) = setup.and_then(|setup| judge::setup(node, plugin, setup)) {
            return Ok(Attempt::Not(fault));
        }
        let address = match self.started().await? {
            Started::At(address) => address,
            Started::Not(fault) => return Ok(Attempt::Not(fault)),
        };
        let asked = question(self.cluster, node, &[address], &replicas);
        let mut untried = Vec::new();
        let answer = match self.ask(&asked).await {
            Ok(answer) => answer,
            Err(Unanswered::Refused(reason)) => {
                untried.push(format!("the targets of its pods: {reason}"));
                PodNetworkReport::default()
            }
            Err(error) => return Ok(Attempt::Not(self.unanswered(&error))),
        };
        if let Some(fault) = judge::traffic(node, plugin, &asked, &answer, |_| false) {
            return Ok(Attempt::Not(fault));
        }
        if replicas.is_empty() {
            if self.needs_dns {
                let message = "no replica of the cluster's DNS is ready".to_owned();
                let remedy = "`kubectl -n kube-system describe pods -l k8s-app=kube-dns` and `kubectl -n kube-system logs -l \
                              k8s-app=kube-dns` show why";
                return Ok(Attempt::Not(self.fault(message, remedy.to_owned())));
            }
            untried.push("the cluster's DNS, of which no replica is ready".to_owned());
        }
        Ok(Attempt::Well(untried))
    }

    fn unanswered(&self, error: &Unanswered) -> Fault {
        let remedy = "`systemctl status halite-minion` there shows more".to_owned();
        self.fault(chain(error), remedy)
    }

    async fn ask(&self, asked: &Question) -> Result<PodNetworkReport, Unanswered> {
        let jobs = &self.runner.jobs;
        let args = json!(asked);
        let answer = jobs.ask(&self.minion, FUNCTION, &args, ANSWER).await?;
        Ok(serde_json::from_value(answer)?)
    }

    /// Starts the pod if it does not exist, and inspects it.
    async fn started(&self) -> Result<Started, ApiError> {
        let (api, reference) = (self.api.as_ref(), ObjectRef::of(&self.pod)?);
        let live = match api.get(&reference).await? {
            Some(live) => live,
            None => api.apply(&self.pod, false).await?,
        };
        let (node, pods) = (&self.node, self.cluster.networks.pods);
        let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str);
        if text("/status/phase") == Some("Failed") {
            api.delete(&reference).await?;
            let reason = text("/status/message").or_else(|| text("/status/reason"));
            let message = format!("a pod on {node} fails: {}", reason.unwrap_or("no reason"));
            return Ok(Started::Not(self.fault(message, self.remedy())));
        }
        let address: Option<Ipv4Addr> =
            text("/status/podIP").and_then(|address| address.parse().ok());
        match address {
            Some(address) if pods.contains(&address) => Ok(Started::At(address)),
            Some(address) => {
                let message = format!(
                    "a new pod on {node} has the address {address}, which is not in {pods}"
                );
                let remedy = format!(
                    "`ctl cmd {node} -- 'ls /etc/cni/net.d'` shows the networks that are configured there"
                );
                Ok(Started::Not(self.fault(message, remedy)))
            }
            None => {
                let why = self.last_event(&reference).await;
                let message = format!("a new pod on {node} has no address yet{why}");
                Ok(Started::Not(self.fault(message, self.remedy())))
            }
        }
    }

    /// The kubelet's last event about the pod.
    async fn last_event(&self, pod: &ObjectRef) -> String {
        let fields = format!("involvedObject.kind=Pod,involvedObject.name={}", pod.name);
        let events = self.api.list("v1", "Event", NAMESPACE, &fields).await;
        let events = events.unwrap_or_default();
        let warnings = events.iter().filter(|event| event["type"] == "Warning");
        let last = warnings.max_by_key(|event| event["lastTimestamp"].as_str().unwrap_or_default());
        let message = last.and_then(|event| event["message"].as_str());
        message.map_or_else(String::new, |message| format!(": {message}"))
    }

    fn remedy(&self) -> String {
        let node = &self.node;
        format!(
            "`journalctl -u kubelet -u containerd` on {node} shows more; `ctl health` shows other problems there"
        )
    }

    fn fault(&self, message: String, remedy: String) -> Fault {
        Fault {
            host: self.node.clone(),
            message,
            remedy,
        }
    }

    /// Removes the pod. If the API does not answer the pod stays: it ends by itself, and the next
    /// run removes it.
    async fn remove(&self) {
        let removed = async {
            let reference = ObjectRef::of(&self.pod)?;
            self.api.delete(&reference).await
        };
        if let Err(error) = removed.await {
            tracing::warn!(
                node = self.node,
                error = chain(&error),
                "a pod of the check stays"
            );
        }
    }
}

/// The pod's progress.
enum Started {
    /// It has this address in the network of pods.
    At(Ipv4Addr),
    /// The reason why it has no address.
    Not(Fault),
}
