//! Cordons, drains and uncordons nodes, like kubectl (`pkg/drain`).
//!
//! A drain is a loop, like a change of etcd's members: it lists the pods that must leave the node,
//! requests the eviction of each, and lists them again. It keeps no state between two rounds, so
//! running it again repairs a killed drain.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use halite_core::clock::Clock;
use halite_errors::chain;
use halite_etcd::{Pace, Wait};
use serde_json::{Value, json};

use super::drain_pods::{Plan, Pod, UNSCHEDULABLE, plan};
use super::drain_unready::Patience;
use super::node::{missing, reference};
use super::{Api, ApiError, budgets};

pub use super::drain_pods::Options;

/// The number of pods that a message names.
const NAMED: usize = 5;
/// The annotation of a node that is cordoned only until the work on its host has ended.
const MAINTENANCE: &str = "halite/maintenance";
/// The number of retries of an update that lost a race against another writer.
const CONFLICTS: u32 = 5;

/// The reason why a node is not drained.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// Pods that a drain evicts only with an explicit option; nothing was changed.
    #[error("cannot drain {node}: it has {pods}")]
    Refused {
        /// The node.
        node: String,
        /// Pods by reason.
        pods: String,
    },
    /// Some pods are still there.
    #[error(
        "cannot drain {node} within {} s: {left}; scale up the owner, change the budget, or give it more time \
         (--timeout, in an upgrade --drain-timeout), then run this again; the node stays unschedulable until `ctl node uncordon {node}`",
        limit.as_secs()
    )]
    Late {
        /// The node.
        node: String,
        /// The remaining pods with owner and reason.
        left: String,
        /// The time limit.
        limit: Duration,
    },
    /// The API refuses a request.
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
    /// Pods that are still ending, whose end is not awaited.
    pub not_waited_for: BTreeSet<String>,
    /// Pods that were created on the cordoned node in place of evicted ones, because they tolerate
    /// its taint. They stay, as with kubectl, whose list of pods is made once.
    pub returned: BTreeSet<String>,
    /// The uids of the pods that were on the node when it was cordoned.
    before: Option<BTreeSet<String>>,
}

impl Drained {
    /// Names the pods that are still on the node; `None` if there are none.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        let remarks = [
            (
                "not awaited, because the node is not Ready and they end with the host",
                &self.not_waited_for,
            ),
            (
                "back on the node, because they tolerate that it is cordoned",
                &self.returned,
            ),
        ];
        let remarks = remarks.iter().filter(|(_, pods)| !pods.is_empty());
        let texts: Vec<String> = remarks
            .map(|(text, pods)| {
                let pods: Vec<String> = pods.iter().cloned().collect();
                format!("{text}: {}", some(&pods))
            })
            .collect();
        (!texts.is_empty()).then(|| texts.join("; "))
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
    /// The pods that it may evict.
    pub options: Options,
    /// Time until it fails.
    pub limit: Duration,
    /// `true` if the cordon ends with the work on the host, unless an operator set it before.
    pub maintenance: bool,
    /// The clock, if the host is cleaned after the drain, which ends all its containers: while the
    /// node is not Ready, the drain then waits for pods only for their grace period.
    pub cleaned: Option<&'a dyn Clock>,
}

/// A change of a node's schedulability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cordon {
    /// Unschedulable until an operator uncordons the node.
    On,
    /// Unschedulable until the work on the host has ended. The node is marked, so that a run after
    /// an interrupted one knows that no operator has cordoned it.
    Maintenance,
    /// Schedulable.
    Off,
    /// Schedulable, unless an operator has cordoned the node.
    AfterMaintenance,
}

impl Cordon {
    /// Returns whether the node is cordoned, and marked, after the change.
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
    /// Cordons the node, and evicts its pods. Pods of DaemonSets and of the kubelet's manifests
    /// stay; so do pods that no kubelet ends, if the host is cleaned next.
    ///
    /// # Errors
    /// Some pods require a flag, in which case nothing was changed; some pods have not left in
    /// time; or the API failed.
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

    /// Requests the eviction of each pod once; returns the remaining pods.
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
        // A cordoned node may have the mark of an interrupted maintenance.
        if cordon.wanted(is, marked) != (is, marked) {
            let cordoned = set_cordon(self.api, self.node, cordon).await;
            cordoned.map_err(|error| self.failed(error))?;
            // A pod may have arrived before the cordon.
            plan = self.plan().await?;
        }
        let uids = plan.leave.iter().map(|pod| pod.uid.clone());
        let known = drained.before.get_or_insert_with(|| uids.collect());
        let returned = |pod: &Pod| pod.tolerates_cordon && !known.contains(&pod.uid);
        drained.returned = plan
            .leave
            .iter()
            .filter(|pod| returned(pod))
            .map(Pod::name)
            .collect();
        plan.leave.retain(|pod| !returned(pod));
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
            // Some end immediately.
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

    /// Requests the eviction of a pod; returns the reason why it is still there.
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
            // The pod is gone, or a different one has its name now.
            Err(ApiError::Refused {
                code: 404 | 409, ..
            }) => Ok(ends),
            Err(ApiError::Refused { code: 429, .. }) => Ok(budgets::held_by(self.api, pod).await),
            // The server cannot decide between two budgets, and evicts nothing from a namespace
            // that is being removed: an operator or a controller must act.
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

/// The first few of several texts, and the number of the others.
fn some(texts: &[String]) -> String {
    let named = texts.iter().take(NAMED).cloned().collect::<Vec<_>>();
    match texts.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Returns whether a node is unschedulable.
fn is_cordoned(node: &Value) -> bool {
    node.pointer("/spec/unschedulable") == Some(&Value::Bool(true))
}

/// Returns whether a node is cordoned until the work on its host has ended
/// ([`Cordon::Maintenance`]).
#[must_use]
pub fn is_under_maintenance(node: &Value) -> bool {
    is_cordoned(node) && is_marked(node)
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
/// The controller manager removes it too, but tries only once: a single refused request, as during
/// a change of its leader, leaves the taint until the node changes again, which takes up to five
/// minutes (`doNodeProcessingPassWorker` in `pkg/controller/nodelifecycle`).
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

/// Cordons or uncordons a node; returns whether this changed anything.
///
/// # Errors
/// The node is not registered, or the API failed.
pub async fn set_cordon(api: &dyn Api, node: &str, cordon: Cordon) -> Result<bool, ApiError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let live = api.get(&reference(node)).await?;
        let mut wanted = match (live, cordon) {
            (Some(live), _) => live,
            // Without a node there is no cordon.
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
