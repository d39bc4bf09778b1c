//! The pods that a node needs for pods and Services: they belong to DaemonSets that are critical
//! for the node, like kube-proxy and all pod networks.

use std::collections::BTreeSet;

use halite_pillar::programs::CniPlugin;
use serde_json::Value;

use super::Fault;
use crate::kubernetes::{Api, ApiError};

/// The priority class of pods that are critical for a node.
const CRITICAL: &str = "system-node-critical";
/// kube-proxy, and Halite's pod network, by namespace and name.
const PROXY: (&str, &str) = ("kube-system", "kube-proxy");
const FLANNEL: (&str, &str) = ("kube-flannel", "kube-flannel-ds");

/// The pods that do not run on these nodes, which are Ready. If all pods of the DaemonSets are
/// ready, only the DaemonSets are listed.
///
/// # Errors
/// The API failed.
pub async fn inspect(
    api: &dyn Api,
    plugin: CniPlugin,
    nodes: &BTreeSet<&str>,
) -> Result<Vec<Fault>, ApiError> {
    let all = api.list("apps/v1", "DaemonSet", "", "").await?;
    let own = [
        Some(PROXY),
        (plugin == CniPlugin::Flannel).then_some(FLANNEL),
    ];
    let own: Vec<(&str, &str)> = own.into_iter().flatten().collect();
    let missing = own
        .iter()
        .filter(|own| !all.iter().any(|set| id(set) == **own));
    let mut faults: Vec<Fault> = missing
        .map(|(namespace, name)| {
            Fault::on(
                "",
                format!("there is no DaemonSet {namespace}/{name}"),
                "`ctl highstate` makes it again",
            )
        })
        .collect();
    for set in all
        .iter()
        .filter(|set| is_critical(set) && !is_complete(set))
    {
        let (namespace, name) = id(set);
        let pods = api.list("v1", "Pod", namespace, "").await?;
        let pods: Vec<&Value> = pods.iter().filter(|pod| is_of(pod, name)).collect();
        for node in nodes {
            let mut here = pods.iter().filter(|pod| pod["spec"]["nodeName"] == **node);
            let found = match here.next() {
                Some(pod) => not_ready(pod).map(|why| {
                    let pod = pod["metadata"]["name"].as_str().unwrap_or_default();
                    let remedy = format!(
                        "`kubectl -n {namespace} describe pod {pod}` and its logs say why; `ctl highstate {node}` repairs what it \
                         needs on the host"
                    );
                    (format!("{pod} does not run on {node}: {why}"), remedy)
                }),
                // A DaemonSet of an operator may skip nodes.
                None => own.contains(&(namespace, name)).then(|| {
                    let events = format!("kubectl -n {namespace} describe daemonset {name}");
                    let remedy = format!("`{events}` shows why; its pod starts by itself once the cause is gone");
                    (format!("{namespace}/{name} has no pod on {node}"), remedy)
                }),
            };
            faults.extend(found.map(|(message, remedy)| Fault::on(node, message, remedy)));
        }
    }
    Ok(faults)
}

/// The namespace and name of an object.
fn id(object: &Value) -> (&str, &str) {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

fn is_critical(set: &Value) -> bool {
    set["spec"]["template"]["spec"]["priorityClassName"] == CRITICAL
}

fn is_complete(set: &Value) -> bool {
    let number = |key: &str| set["status"][key].as_u64().unwrap_or_default();
    number("numberReady") >= number("desiredNumberScheduled")
}

fn is_of(pod: &Value, set: &str) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    owners.any(|owner| owner["kind"] == "DaemonSet" && owner["name"] == set)
}

/// The reason why a pod is not ready.
fn not_ready(pod: &Value) -> Option<String> {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    if conditions.any(|one| one["type"] == "Ready" && one["status"] == "True") {
        return None;
    }
    let statuses = ["initContainerStatuses", "containerStatuses"];
    let mut containers = statuses.iter().flat_map(|key| {
        let statuses = pod["status"][*key].as_array();
        statuses.into_iter().flatten()
    });
    let waiting = containers.find_map(|container| {
        let name = container["name"].as_str()?;
        let reason = container["state"]["waiting"]["reason"].as_str()?;
        let code = container["lastState"]["terminated"]["exitCode"].as_i64();
        let code = code.map_or_else(String::new, |code| format!(", after the exit code {code}"));
        Some(format!("its container {name} waits: {reason}{code}"))
    });
    Some(waiting.unwrap_or_else(|| "it is not ready".to_owned()))
}
