//! Cordon, drain and uncordon, as kubectl does them (`pkg/drain`).
//!
//! A drain is a loop, like a change of etcd's members: it lists the pods that have to leave the
//! node, asks for the eviction of each, and lists them again. It keeps nothing between two rounds,
//! so a killed drain is repaired by running it again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use halite_core::clock::Clock;
use halite_errors::chain;
use halite_etcd::{Pace, Wait};
use serde_json::{Value, json};

use super::drain_pods::{Plan, Pod, plan};
use super::drain_unready::Patience;
use super::node::{missing, reference};
use super::{Api, ApiError, budgets};

pub use super::drain_pods::Options;

/// The number of pods that a message names.
const NAMED: usize = 5;
/// The annotation of a node that is cordoned only until the work on its host has ended.
const MAINTENANCE: &str = "halite/maintenance";
/// The taint of a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// How often an update that lost a race against another writer is made again from the new object.
const CONFLICTS: u32 = 5;

/// The reason why a node is not drained.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// Pods that a drain ends only with an option that says so; none was touched.
    #[error("cannot drain {node}: it has {pods}")]
    Refused {
        /// The node.
        node: String,
        /// Pods by reason.
        pods: String,
    },
    /// Pods are still there.
    #[error(
        "cannot drain {node} within {} s: {left}; scale up the owner, change the budget, or give it more time \
         (--timeout), then run this again; the node takes no new pods until `ctl node uncordon {node}`",
        limit.as_secs()
    )]
    Late {
        /// The node.
        node: String,
        /// Pods with owner and reason.
        left: String,
        /// Time that it took.
        limit: Duration,
    },
    /// The API refuses.
    #[error("cannot drain {node}")]
    Api {
        /// The node.
        node: String,
        /// The API's answer.
        source: ApiError,
    },
}

/// A finished drain.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// The node is registered in the API.
    pub is_registered: bool,
    /// Pods that were evicted, `namespace/name`.
    pub evicted: BTreeSet<String>,
    /// Pods that are still ending, and are not waited for.
    pub not_waited_for: BTreeSet<String>,
}

impl Drained {
    /// Names the pods that are not waited for; none if there are none.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        let pods: Vec<String> = self.not_waited_for.iter().cloned().collect();
        (!pods.is_empty()).then(|| {
            format!(
                "not waited for, because the node is not Ready and they end with the host: {}",
                some(&pods)
            )
        })
    }
}

/// A drain of one node.
pub struct Drain<'a> {
    /// The API.
    pub api: &'a dyn Api,
    /// Time, pauses and reports.
    pub pace: &'a dyn Pace,
    /// The node's name.
    pub node: &'a str,
    /// Pods that it may end.
    pub options: Options,
    /// Time until it fails.
    pub limit: Duration,
    /// The cordon ends with the work on the host, unless an operator set it before.
    pub maintenance: bool,
    /// The time of day, where the host is cleaned after the drain, which ends all containers there:
    /// while the node is not Ready, pods are not waited for beyond their grace period.
    pub cleaned: Option<&'a dyn Clock>,
}

/// A change of a node that takes new pods, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cordon {
    /// No new pods, until an operator says otherwise.
    On,
    /// No new pods until the work on the host has ended. The mark is on the node, so that a run
    /// after an interrupted one knows that no operator has cordoned it.
    Maintenance,
    /// New pods.
    Off,
    /// New pods, unless an operator wants none.
    AfterMaintenance,
}

impl Cordon {
    /// Whether the node is cordoned, and marked, after the change.
    fn wanted(self, cordoned: bool, marked: bool) -> (bool, bool) {
        match self {
            Self::On => (true, false),
            Self::Maintenance => (true, marked || !cordoned),
            Self::Off => (false, false),
            Self::AfterMaintenance => (cordoned && !marked, false),
        }
    }
}

impl Drain<'_> {
    /// Keeps new pods away from the node, and evicts those that are there. Pods of DaemonSets and
    /// those of the kubelet's manifests stay; so do those that no kubelet ends, where the host is
    /// cleaned next.
    ///
    /// # Errors
    /// Pods that need a flag, in which case nothing was changed; pods that have not left in time;
    /// or what the API said.
    pub async fn run(&self) -> Result<Drained, DrainError> {
        let node = self.node.to_owned();
        let mut drained = Drained::default();
        loop {
            let left = match self.round(&mut drained).await {
                Ok(left) if left.is_empty() => return Ok(drained),
                Ok(left) => match drained.remark() {
                    Some(remark) => format!("{}; {remark}", some(&left)),
                    None => some(&left),
                },
                Err(DrainError::Api { source, .. }) if source.is_transient() => chain(&source),
                Err(error) => return Err(error),
            };
            let (since, limit) = (self.pace.now(), self.limit);
            if since >= limit {
                return Err(DrainError::Late { node, left, limit });
            }
            let wait = Wait {
                until: format!("the pods of {node} have left"),
                because: left,
                since,
                limit,
            };
            self.pace.report(&wait).await;
            self.pace.pause().await;
        }
    }

    /// Asks once for the eviction of each pod; answers with those that are still there.
    async fn round(&self, drained: &mut Drained) -> Result<Vec<String>, DrainError> {
        let node = self.api.get(&reference(self.node)).await;
        let Some(node) = node.map_err(|error| self.failed(error))? else {
            return Ok(Vec::new());
        };
        drained.is_registered = true;
        let mut plan = self.plan().await?;
        let cordon = if self.maintenance {
            Cordon::Maintenance
        } else {
            Cordon::On
        };
        let (is, marked) = (is_cordoned(&node), is_marked(&node));
        // A cordoned node has the mark of a maintenance that was interrupted, perhaps.
        if cordon.wanted(is, marked) != (is, marked) {
            let cordoned = set_cordon(self.api, self.node, cordon).await;
            cordoned.map_err(|error| self.failed(error))?;
            // A pod may have come before that.
            plan = self.plan().await?;
        }
        let patience = Patience::on(&node, self.cleaned);
        drained.not_waited_for.clear();
        let (mut left, before) = (BTreeMap::new(), drained.evicted.len());
        for pod in &plan.leave {
            if patience.is_over(pod) {
                drained.not_waited_for.insert(pod.name());
                continue;
            }
            let why = self.end(pod, patience, drained).await;
            let why = why.map_err(|error| self.failed(error))?;
            let owner = pod.owner(self.api).await;
            left.insert(&pod.uid, format!("{} ({owner}): {why}", pod.name()));
        }
        if drained.evicted.len() > before {
            // Some end at once.
            let there = self.plan().await?.leave;
            left.retain(|uid, _| there.iter().any(|pod| pod.uid == **uid));
        }
        Ok(left.into_values().collect())
    }

    async fn plan(&self) -> Result<Plan, DrainError> {
        let plan = plan(self.api, self.node, &self.options).await;
        let plan = plan.map_err(|error| self.failed(error))?;
        if plan.refused.is_empty() {
            return Ok(plan);
        }
        let refused = plan.refused.iter();
        let texts = refused.map(|(reason, pods)| format!("{reason}: {}", some(pods)));
        Err(DrainError::Refused {
            node: self.node.to_owned(),
            pods: texts.collect::<Vec<_>>().join("; "),
        })
    }

    /// Asks for the eviction of a pod; answers with the reason why it is still there.
    async fn end(
        &self,
        pod: &Pod,
        patience: Patience,
        drained: &mut Drained,
    ) -> Result<String, ApiError> {
        let ends = patience.ending(pod);
        if pod.ends {
            return Ok(ends);
        }
        let grace = self.options.grace_period;
        match self.api.evict(&pod.reference, &pod.uid, grace).await {
            Ok(()) => {
                drained.evicted.insert(pod.name());
                Ok(ends)
            }
            // It has gone, or another one has its name by now.
            Err(ApiError::Refused {
                code: 404 | 409, ..
            }) => Ok(ends),
            Err(ApiError::Refused { code: 429, .. }) => Ok(budgets::held_by(self.api, pod).await),
            // The server cannot decide between two budgets, and ends nothing in a namespace that is
            // being removed: an operator or a controller does.
            Err(ApiError::Refused {
                code: 403 | 500,
                message,
                ..
            }) => Ok(message),
            Err(error) => Err(error),
        }
    }

    fn failed(&self, source: ApiError) -> DrainError {
        DrainError::Api {
            node: self.node.to_owned(),
            source,
        }
    }
}

/// The first of several texts, and how many follow.
fn some(texts: &[String]) -> String {
    let named = texts.iter().take(NAMED).cloned().collect::<Vec<_>>();
    match texts.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Whether a node takes no new pods.
fn is_cordoned(node: &Value) -> bool {
    node.pointer("/spec/unschedulable") == Some(&Value::Bool(true))
}

fn is_marked(node: &Value) -> bool {
    let annotations = node.pointer("/metadata/annotations");
    annotations.is_some_and(|all| all.get(MAINTENANCE).is_some())
}

/// Sets a field of a mapping, or removes it.
fn put(mapping: &mut Value, key: &str, value: Option<Value>) {
    match (mapping.as_object_mut(), value) {
        (Some(fields), Some(value)) => drop(fields.insert(key.to_owned(), value)),
        (Some(fields), None) => drop(fields.remove(key)),
        (None, Some(value)) => *mapping = json!({key: value}),
        (None, None) => {}
    }
}

/// Removes the taint that the controller manager puts on a cordoned node.
///
/// The controller manager removes it too, but tries once only: one refused request, as in a change of
/// its leader, leaves the taint until the node changes again, which takes up to five minutes
/// (`doNodeProcessingPassWorker` in `pkg/controller/nodelifecycle`).
fn remove_taint(node: &mut Value) {
    let taints = node.pointer_mut("/spec/taints");
    let Some(taints) = taints.and_then(Value::as_array_mut) else {
        return;
    };
    taints.retain(|taint| taint["key"] != UNSCHEDULABLE);
    if taints.is_empty() {
        put(&mut node["spec"], "taints", None);
    }
}

/// Lets a node take new pods, or not; answers whether that changed something.
///
/// # Errors
/// The node is not registered, or what the API said.
pub async fn set_cordon(api: &dyn Api, node: &str, cordon: Cordon) -> Result<bool, ApiError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let live = api.get(&reference(node)).await?;
        let mut wanted = match (live, cordon) {
            (Some(live), _) => live,
            // No cordon is left where no node is.
            (None, Cordon::AfterMaintenance) => return Ok(false),
            (None, _) => return Err(missing(node)),
        };
        let before = (is_cordoned(&wanted), is_marked(&wanted));
        let after = cordon.wanted(before.0, before.1);
        if after == before {
            return Ok(false);
        }
        put(
            &mut wanted["spec"],
            "unschedulable",
            after.0.then(|| json!(true)),
        );
        if !after.0 {
            remove_taint(&mut wanted);
        }
        let annotations = &mut wanted["metadata"]["annotations"];
        put(annotations, MAINTENANCE, after.1.then(|| json!("")));
        match api.replace(&wanted, false).await {
            // The kubelet and controllers write the same object.
            Err(ApiError::Refused { code: 409, .. }) if attempts < CONFLICTS => {}
            answer => return answer.map(|_| true),
        }
    }
}
