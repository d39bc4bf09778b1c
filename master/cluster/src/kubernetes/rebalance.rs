//! Spreads a Deployment's pods over nodes that joined after the pods were created.
//!
//! The scheduler considers a pod only once, when it places it: the replicas of a Deployment that
//! were created while there was one node stay on that node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use halite_errors::chain;
use halite_etcd::{Pace, Wait};
use serde_json::Value;

use super::{Api, ApiError, ObjectRef};

/// The time for the pods of DaemonSets on a new node, including its network, to become ready. One
/// that never does must not prevent the spread.
const NETWORK: Duration = Duration::from_secs(60);

/// The error of a spread.
#[derive(Debug, thiserror::Error)]
pub enum RebalanceError {
    /// The successor of an evicted pod is not ready.
    #[error(
        "cannot spread deployment/{deployment} within {} s: {left}; `kubectl -n {namespace} get pods -o wide` shows its pods",
        limit.as_secs()
    )]
    Late {
        /// The namespace.
        namespace: String,
        /// The Deployment.
        deployment: String,
        /// The missing parts.
        left: String,
        /// The time limit.
        limit: Duration,
    },
    /// The API refuses a request.
    #[error("cannot spread deployment/{deployment}")]
    Api {
        /// The Deployment.
        deployment: String,
        /// The API's answer.
        source: ApiError,
    },
}

/// A spread of one Deployment.
pub struct Rebalance<'a> {
    /// The API.
    pub api: &'a dyn Api,
    /// Time, pauses and reports.
    pub pace: &'a dyn Pace,
    /// The namespace.
    pub namespace: &'a str,
    /// The Deployment.
    pub deployment: &'a str,
    /// The time limit.
    pub limit: Duration,
}

/// The pods of the Deployment.
#[derive(Debug, Default)]
struct Pods {
    /// The ready pods by node, with name and uid.
    ready: BTreeMap<String, BTreeSet<(String, String)>>,
    /// The number of replicas that are not ready.
    missing: u64,
}

impl Rebalance<'_> {
    /// Evicts one pod of a node that has several, while another schedulable node has none, and
    /// waits for its successor. If some pods are not ready at the start, nothing is evicted.
    /// Returns the evicted pods.
    ///
    /// # Errors
    /// A successor is not ready in time, or the API failed.
    pub async fn run(&self) -> Result<Vec<String>, RebalanceError> {
        let mut evicted = Vec::new();
        loop {
            let left = match self.round(&mut evicted).await {
                Ok(None) => return Ok(evicted),
                Ok(Some(left)) => left,
                Err(error) if error.is_transient() => chain(&error),
                Err(source) => {
                    return Err(RebalanceError::Api {
                        deployment: self.deployment.to_owned(),
                        source,
                    });
                }
            };
            let (since, limit) = (self.pace.now(), self.limit);
            if since >= limit {
                return Err(RebalanceError::Late {
                    namespace: self.namespace.to_owned(),
                    deployment: self.deployment.to_owned(),
                    left,
                    limit,
                });
            }
            let wait = Wait {
                until: format!("the pods of deployment/{} are ready", self.deployment),
                because: left,
                since,
                limit,
            };
            self.pace.report(&wait).await;
            self.pace.pause().await;
        }
    }

    /// Evicts at most one pod; returns the reason to wait, if any.
    async fn round(&self, evicted: &mut Vec<String>) -> Result<Option<String>, ApiError> {
        let Some(pods) = self.pods().await? else {
            return Ok(None);
        };
        if pods.missing > 0 {
            let left = format!("{} of its pods are not ready", pods.missing);
            return Ok((!evicted.is_empty()).then_some(left));
        }
        let mut nodes = self.nodes().await?;
        nodes.retain(|node| !pods.ready.contains_key(node));
        let count: usize = pods.ready.values().map(BTreeSet::len).sum();
        let crowded = pods.ready.values().max_by_key(|pods| pods.len());
        let (Some(empty), Some(pod)) = (nodes.first(), crowded.filter(|pods| pods.len() > 1))
        else {
            return Ok(None);
        };
        // The scheduler may have reasons to place the successor on the same node.
        if evicted.len() >= count {
            return Ok(None);
        }
        let Some((name, uid)) = pod.last() else {
            return Ok(None);
        };
        if self.pace.now() < NETWORK
            && let Some(left) = self.starting(empty).await?
        {
            return Ok(Some(left));
        }
        let reference = ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: self.namespace.to_owned(),
            name: name.clone(),
        };
        match self.api.evict(&reference, uid, None).await {
            Ok(()) => evicted.push(format!("{}/{name}", self.namespace)),
            // The pod is gone already, or a budget blocks its eviction.
            Err(ApiError::Refused {
                code: 404 | 409 | 429,
                ..
            }) => {}
            Err(error) => return Err(error),
        }
        Ok(Some(format!(
            "{name} was evicted to move a pod to another node"
        )))
    }

    /// The pods of the Deployment; `None` if it does not exist.
    async fn pods(&self) -> Result<Option<Pods>, ApiError> {
        let reference = ObjectRef {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            namespace: self.namespace.to_owned(),
            name: self.deployment.to_owned(),
        };
        let Some(deployment) = self.api.get(&reference).await? else {
            return Ok(None);
        };
        let replicas = deployment.pointer("/spec/replicas").and_then(Value::as_u64);
        let labels = deployment.pointer("/spec/selector/matchLabels");
        let labels = labels.and_then(Value::as_object);
        let mut pods = Pods::default();
        for pod in self.api.list("v1", "Pod", self.namespace, "").await? {
            let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str);
            let mut wanted = labels.into_iter().flatten();
            let is_own = wanted.all(|(key, value)| {
                let own = pod.pointer("/metadata/labels");
                own.and_then(|own| own.get(key)) == Some(value)
            });
            let ends = text("/metadata/deletionTimestamp").is_some();
            if is_own
                && !ends
                && is_ready(&pod)
                && let (Some(node), Some(name), Some(uid)) = (
                    text("/spec/nodeName"),
                    text("/metadata/name"),
                    text("/metadata/uid"),
                )
            {
                let on_node = pods.ready.entry(node.to_owned()).or_default();
                on_node.insert((name.to_owned(), uid.to_owned()));
            }
        }
        let ready: usize = pods.ready.values().map(BTreeSet::len).sum();
        pods.missing = replicas
            .unwrap_or(1)
            .saturating_sub(u64::try_from(ready).unwrap_or(u64::MAX));
        Ok(Some(pods))
    }

    /// A description of a DaemonSet's pod that is not ready on a node. A node is Ready as soon as a
    /// network is configured there, before the network's own pod runs: the kubelet would try a new
    /// pod in vain, and again only after ten seconds or more.
    async fn starting(&self, node: &str) -> Result<Option<String>, ApiError> {
        let fields = format!("spec.nodeName={node}");
        let pods = self.api.list("v1", "Pod", "", &fields).await?;
        let is_of_daemon_set = |pod: &&Value| {
            let owners = pod.pointer("/metadata/ownerReferences");
            let mut owners = owners.and_then(Value::as_array).into_iter().flatten();
            owners.any(|owner| owner["kind"] == "DaemonSet")
        };
        let mut own = pods.iter().filter(is_of_daemon_set);
        let starting = own.find(|pod| !is_ready(pod));
        let name = starting.and_then(|pod| pod.pointer("/metadata/name")?.as_str());
        Ok(name.map(|name| format!("{name} is not ready on {node}")))
    }

    /// The names of the nodes that are Ready and schedulable.
    async fn nodes(&self) -> Result<Vec<String>, ApiError> {
        let nodes = self.api.list("v1", "Node", "", "").await?;
        let take = nodes.iter().filter(|node| {
            is_ready(node) && node.pointer("/spec/unschedulable") != Some(&Value::Bool(true))
        });
        let names = take.filter_map(|node| node.pointer("/metadata/name")?.as_str());
        Ok(names.map(str::to_owned).collect())
    }
}

fn is_ready(object: &Value) -> bool {
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}
