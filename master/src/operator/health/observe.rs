//! Queries the cluster: the Kubernetes API, each API server, the members of etcd, the minions. All
//! are queried in parallel, each within [`LIMIT`], so that a cluster of which half is silent is
//! seen as fast as a healthy one. Pod networks are queried after that, with the API's data.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use halite_api::KubernetesNode;
use halite_cluster::kubernetes::access::ApiServer;
use halite_cluster::kubernetes::node::overview;
use halite_cluster::kubernetes::{Api, ApiError, ObjectRef};
use halite_cluster::pod_network::daemons;
use halite_cluster::pod_network::question::{question, ready_replicas, strangers};
use halite_cluster::pod_network::{Fault, Replica};
use halite_core::declared::Snapshot;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_etcd::{EtcdError, Overview};
use halite_fleet::jobs::Jobs;
use halite_host_reports::health::HostHealth;
use halite_host_reports::pod_network::{PodNetworkReport, Question};
use halite_names::NodeName;
use halite_pillar::etcd::Mode;
use halite_pillar::programs::CniPlugin;
use serde_json::Value;

/// The timeout of each query.
pub(in crate::operator) const LIMIT: Duration = Duration::from_secs(3);
/// The static pods of a control plane, and of an etcd member.
const CONTROL_PLANE: [&str; 3] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
];
const MEMBER: &str = "etcd";

/// A part of the cluster that does not answer.
#[derive(Debug, thiserror::Error)]
pub(in crate::operator) enum Silence {
    /// It did not answer within [`LIMIT`].
    #[error("{asked} did not answer within {} s", LIMIT.as_secs())]
    Late {
        /// The part.
        asked: &'static str,
    },
    /// It cannot be asked.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The Kubernetes API fails.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// etcd fails.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

/// The answers of the cluster.
#[derive(Default)]
pub(in crate::operator) struct ClusterAnswers {
    /// The reason why the API does not answer; `None` if it does.
    pub api_fault: Option<Silence>,
    /// The Kubernetes nodes by name.
    pub nodes: BTreeMap<String, KubernetesNode>,
    /// The hosts with a ready replica of the cluster's DNS; `None` if the API did not answer.
    pub dns: Option<BTreeSet<String>>,
    /// The components of the control planes.
    pub components: Vec<Component>,
    /// The API servers, each with the reason why it is not ready.
    pub servers: Vec<(NodeName, Option<String>)>,
    /// The members of etcd, or the reason why none answers; `None` if none is declared.
    pub etcd: Option<Result<Overview, Silence>>,
    /// `true` if etcd is not on hosts of the cluster.
    pub etcd_is_external: bool,
    /// The answers of the minions.
    pub minions: BTreeMap<NodeName, HostHealth>,
    /// The pods of kube-proxy and of the pod network that do not run.
    pub daemons: Vec<Fault>,
    /// The DNS pods whose addresses come from another network.
    pub strangers: Vec<Fault>,
    /// The pod network, as declared.
    pub plugin: CniPlugin,
    /// The queries to minions about the pod network on their hosts, and their answers.
    pub pods: BTreeMap<NodeName, (Question, PodNetworkReport)>,
}

/// A static pod that a host should run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::operator) struct Component {
    /// The host.
    pub host: NodeName,
    /// The component: `kube-scheduler`, …
    pub name: &'static str,
    /// The reason why it is not ready; `None` if it is.
    pub fault: Option<String>,
}

/// Queries the whole cluster.
pub(in crate::operator) async fn observe(jobs: &Jobs, snapshot: &Snapshot) -> ClusterAnswers {
    let (objects, servers, etcd, minions) = tokio::join!(
        objects(jobs, snapshot),
        servers(jobs, snapshot),
        etcd(jobs, snapshot),
        jobs.host_health(snapshot.declaration().nodes.keys(), LIMIT),
    );
    let (objects, api_fault) = match objects {
        Ok(found) => (found, None),
        Err(fault) => (Objects::default(), Some(fault)),
    };
    let replicas = objects.dns.as_deref().unwrap_or_default();
    let pods = pods(jobs, snapshot, replicas, &minions).await;
    let strangers = strangers(&snapshot.declaration().cluster, replicas);
    let hosts = |replicas: Vec<Replica>| replicas.into_iter().map(|one| one.host).collect();
    ClusterAnswers {
        api_fault,
        nodes: objects.nodes,
        dns: objects.dns.map(hosts),
        components: objects.components,
        servers,
        etcd,
        etcd_is_external: snapshot.declaration().cluster.external_etcd().is_some(),
        minions,
        daemons: objects.daemons,
        strangers,
        plugin: snapshot.declaration().cluster.cni.plugin,
        pods,
    }
}

/// Queries the pod network on each host that runs containers and whose minion has just answered: a
/// silent minion costs no further wait.
async fn pods(
    jobs: &Jobs,
    snapshot: &Snapshot,
    replicas: &[Replica],
    minions: &BTreeMap<NodeName, HostHealth>,
) -> BTreeMap<NodeName, (Question, PodNetworkReport)> {
    let declaration = snapshot.declaration();
    let nodes = declaration.nodes.iter();
    let nodes = nodes.filter(|(host, node)| node.runs_containers() && minions.contains_key(*host));
    let ask = |host: &NodeName| question(&declaration.cluster, host.as_str(), &[], replicas);
    let mut questions: BTreeMap<NodeName, Question> =
        nodes.map(|(host, _)| (host.clone(), ask(host))).collect();
    let answers = jobs.pod_networks(&questions, LIMIT).await;
    let pair = |(host, answer)| {
        let question = questions.remove(&host)?;
        Some((host, (question, answer)))
    };
    answers.into_iter().filter_map(pair).collect()
}

/// Limits a query to [`LIMIT`].
async fn limited<T>(
    asked: &'static str,
    question: impl Future<Output = Result<T, Silence>>,
) -> Result<T, Silence> {
    let answer = tokio::time::timeout(LIMIT, question).await;
    answer.unwrap_or(Err(Silence::Late { asked }))
}

/// Objects of the API.
#[derive(Default)]
struct Objects {
    nodes: BTreeMap<String, KubernetesNode>,
    dns: Option<Vec<Replica>>,
    components: Vec<Component>,
    daemons: Vec<Fault>,
}

async fn objects(jobs: &Jobs, snapshot: &Snapshot) -> Result<Objects, Silence> {
    let plugin = snapshot.declaration().cluster.cni.plugin;
    let asked = async {
        let api = jobs.clusters().api(snapshot).await?;
        let api = api.as_ref();
        let nodes = overview(api).await?;
        let ready = nodes.iter().filter(|(_, node)| node.ready);
        let ready: BTreeSet<&str> = ready.map(|(name, _)| name.as_str()).collect();
        let (dns, components, daemons) = tokio::join!(
            ready_replicas(api),
            join_all(wanted(snapshot).map(|(host, name)| component(api, host, name))),
            daemons::inspect(api, plugin, &ready),
        );
        Ok(Objects {
            dns: dns.ok(),
            components,
            daemons: daemons.unwrap_or_default(),
            nodes,
        })
    };
    limited("the Kubernetes API", asked).await
}

/// The components that hosts should run, without hosts that have not joined yet.
fn wanted(snapshot: &Snapshot) -> impl Iterator<Item = (&NodeName, &'static str)> {
    let pods = snapshot.declaration().cluster.etcd.mode == Mode::StaticPod;
    let nodes = snapshot.declaration().nodes.iter();
    nodes.flat_map(move |(host, node)| {
        let plane = node.serves_api().then_some(CONTROL_PLANE);
        let member = (pods && node.is_member()).then_some(MEMBER);
        let names = plane.into_iter().flatten().chain(member);
        names.map(move |name| (host, name))
    })
}

async fn component(api: &dyn Api, host: &NodeName, name: &'static str) -> Component {
    let reference = ObjectRef {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: "kube-system".to_owned(),
        name: format!("{name}-{host}"),
    };
    let fault = match api.get(&reference).await {
        Ok(Some(pod)) if is_ready(&pod) || starts(&pod) => None,
        Ok(Some(_)) => Some("its pod is not ready".to_owned()),
        Ok(None) => Some("it has no pod: no manifest, or a kubelet that does not run".to_owned()),
        Err(error) => Some(chain(&error)),
    };
    Component {
        host: host.clone(),
        name,
        fault,
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Returns whether the container of a static pod runs, and its startup probe has not succeeded yet:
/// kubeadm's asks only every 10 s, so this is usual after each change of the manifest. The kubelet
/// ends a container for which it does not succeed; the next one does not count as starting.
fn starts(pod: &Value) -> bool {
    let container = &pod["status"]["containerStatuses"][0];
    container["started"] == false
        && container["state"]["running"].is_object()
        && container["lastState"]["terminated"].is_null()
}

async fn servers(jobs: &Jobs, snapshot: &Snapshot) -> Vec<(NodeName, Option<String>)> {
    // An API that cannot be asked at all is another check's finding.
    let servers = jobs.clusters().servers(snapshot).await.unwrap_or_default();
    let ask = |server: ApiServer| async move {
        let ready = async { Ok(server.api.ready().await?) };
        let silence = limited("/readyz", ready).await.err();
        (server.host, silence.map(|silence| chain(&silence)))
    };
    join_all(servers.into_iter().map(ask)).await
}

async fn etcd(jobs: &Jobs, snapshot: &Snapshot) -> Option<Result<Overview, Silence>> {
    let declaration = snapshot.declaration();
    let is_external = declaration.cluster.external_etcd().is_some();
    let has_members = declaration.nodes.values().any(|node| node.is_member());
    (is_external || has_members).then_some(())?;
    let asked = async {
        let members = jobs.clusters().etcd().members(snapshot).await?;
        Ok(Overview::take(members.as_ref()).await?)
    };
    Some(limited("etcd", asked).await)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_component_that_starts_for_the_first_time_has_no_fault() {
        let pod = |container: Value| json!({"status": {"containerStatuses": [container]}});
        let running = json!({"running": {"startedAt": "2026-11-30T16:54:31Z"}});
        let ended = json!({"terminated": {"exitCode": 1}});
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let starting = json!({"started": false, "state": running, "lastState": {}});
        assert!(starts(&pod(starting)));
        for other in [
            json!({"started": true, "state": running, "lastState": {}}),
            json!({"started": false, "state": running, "lastState": ended}),
            json!({"started": false, "state": waiting, "lastState": {}}),
        ] {
            assert!(!starts(&pod(other.clone())), "{other}");
        }
        assert!(!starts(&json!({"status": {}})));
    }
}
