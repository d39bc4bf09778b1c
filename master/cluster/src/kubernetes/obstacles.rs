//! Pods that would hold up or stop the drain of a node, before any drain starts: those of
//! PodDisruptionBudgets that now allow no eviction, and those that a drain evicts only with a flag.

use serde_json::Value;

use super::drain::Options;
use super::{Api, ApiError, budgets, drain_pods};

/// A pod that would hold up or stop the drain of its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Obstacle {
    /// The node.
    pub node: String,
    /// `namespace/name`.
    pub pod: String,
    /// Kind and name of the object that creates it, or `no controller`.
    pub owner: String,
    /// The reason.
    pub reason: ObstacleReason,
}

/// The reason why a pod holds up or stops a drain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObstacleReason {
    /// These budgets allow no eviction now.
    Budget(String),
    /// A drain evicts it only with a flag; the text is kubectl's reason.
    Flag(&'static str),
}

/// The obstacles on these nodes.
///
/// # Errors
/// The API failed.
pub async fn obstacles(
    api: &dyn Api,
    nodes: &[String],
    options: &Options,
) -> Result<Vec<Obstacle>, ApiError> {
    if nodes.is_empty() {
        return Ok(Vec::new());
    }
    let all = api.list("policy/v1", "PodDisruptionBudget", "", "").await?;
    let closed: Vec<Value> = all.into_iter().filter(budgets::is_closed).collect();
    let mut found = Vec::new();
    for node in nodes {
        let plan = drain_pods::plan(api, node, options).await?;
        for pod in plan.leave.iter().filter(|pod| !pod.ends) {
            let Some(held) = budgets::closed_over(&closed, pod) else {
                continue;
            };
            found.push(Obstacle {
                node: node.clone(),
                pod: pod.name(),
                owner: pod.owner(api).await,
                reason: ObstacleReason::Budget(held),
            });
        }
        for (reason, pods) in plan.refused {
            for pod in pods {
                found.push(Obstacle {
                    node: node.clone(),
                    pod,
                    owner: "no controller".to_owned(),
                    reason: ObstacleReason::Flag(reason),
                });
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fake::FakeApi;
    use super::*;

    fn pod(name: &str, node: &str, owner: Option<&str>) -> Value {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
            "spec": {"nodeName": node}, "status": {"phase": "Running"}});
        if let Some(kind) = owner {
            pod["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": true}]);
        }
        pod
    }

    fn budget(name: &str, allowed: u64) -> Value {
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": name}}},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1}})
    }

    #[tokio::test]
    async fn pods_are_named_with_node_owner_and_reason() {
        let api = FakeApi::default();
        api.put(pod("web", "worker-1", Some("StatefulSet")));
        api.put(pod("free", "worker-1", Some("StatefulSet")));
        api.put(pod("bare", "worker-2", None));
        api.put(pod("other", "worker-3", None));
        api.put(budget("web", 0));
        api.put(budget("free", 1));
        let nodes = ["worker-1", "worker-2"].map(str::to_owned);
        let found = obstacles(&api, &nodes, &Options::default()).await.unwrap();
        let text = |obstacle: &Obstacle| {
            let reason = match &obstacle.reason {
                ObstacleReason::Budget(text) => text.clone(),
                ObstacleReason::Flag(text) => (*text).to_owned(),
            };
            format!(
                "{} {} ({}): {reason}",
                obstacle.node, obstacle.pod, obstacle.owner
            )
        };
        assert_eq!(
            found.iter().map(text).collect::<Vec<_>>(),
            [
                "worker-1 default/web (StatefulSet web): the PodDisruptionBudget default/web holds it (1 healthy, 1 required)",
                "worker-2 default/bare (no controller): pods that no controller would recreate (--force ends them)",
            ]
        );
        let force = Options {
            force: true,
            ..Options::default()
        };
        let found = obstacles(&api, &nodes, &force).await.unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(api.writes.lock().unwrap().is_empty(), "nothing is changed");
    }
}
