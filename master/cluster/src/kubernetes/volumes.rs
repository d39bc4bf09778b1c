//! Volumes that only one node can use, such as directories on its disks.

use serde_json::Value;

use super::{Api, ApiError};

/// Names the claims, `namespace/name`, of the volumes that only this node can use: their data
/// leaves with its host. A released volume counts for its former claim.
///
/// # Errors
/// The API failed.
pub async fn claims_only_on(api: &dyn Api, node: &str) -> Result<Vec<String>, ApiError> {
    let volumes = api.list("v1", "PersistentVolume", "", "").await?;
    let mut pinned: Vec<(String, &Value)> = volumes
        .iter()
        .filter_map(|volume| Some((claim(volume)?, required(volume)?)))
        .collect();
    if pinned.is_empty() {
        return Ok(Vec::new());
    }
    let nodes = api.list("v1", "Node", "", "").await?;
    let (own, others): (Vec<&Value>, Vec<&Value>) =
        nodes.iter().partition(|other| name(other) == node);
    // An interrupted removal may have deleted the node already.
    let gone = serde_json::json!({
        "metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}}
    });
    let own = own.first().copied().unwrap_or(&gone);
    pinned.retain(|(_, terms)| {
        is_selected(terms, own) && !others.iter().any(|other| is_selected(terms, other))
    });
    let mut claims: Vec<String> = pinned.into_iter().map(|(claim, _)| claim).collect();
    claims.sort();
    Ok(claims)
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn claim(volume: &Value) -> Option<String> {
    let claim = &volume["spec"]["claimRef"];
    Some(format!(
        "{}/{}",
        claim["namespace"].as_str()?,
        claim["name"].as_str()?
    ))
}

/// The node selector of a volume; `None` if all nodes can use it.
fn required(volume: &Value) -> Option<&Value> {
    volume.pointer("/spec/nodeAffinity/required/nodeSelectorTerms")
}

/// Returns whether one of the terms of a node selector matches
/// (`component-helpers/scheduling/corev1/nodeaffinity`).
fn is_selected(terms: &Value, node: &Value) -> bool {
    let mut terms = terms.as_array().into_iter().flatten();
    terms.any(|term| {
        let list = |key: &str| term[key].as_array().map(Vec::as_slice).unwrap_or_default();
        let (labels, fields) = (list("matchExpressions"), list("matchFields"));
        let of_label = |key: &str| node["metadata"]["labels"][key].as_str();
        let of_field = |key: &str| (key == "metadata.name").then(|| name(node));
        // A term without requirements matches no node.
        !(labels.is_empty() && fields.is_empty())
            && labels.iter().all(|one| meets(one, of_label))
            && fields.iter().all(|one| meets(one, of_field))
    })
}

/// Returns whether the node's value for the key meets a requirement.
fn meets<'a>(requirement: &Value, of: impl Fn(&str) -> Option<&'a str>) -> bool {
    let found = of(requirement["key"].as_str().unwrap_or_default());
    let values = requirement["values"].as_array();
    let values: Vec<&str> = values
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = |is: fn(i64, i64) -> bool| {
        let (found, limit) = (
            found.and_then(number),
            values.first().copied().and_then(number),
        );
        found
            .zip(limit)
            .is_some_and(|(found, limit)| is(found, limit))
    };
    match requirement["operator"].as_str().unwrap_or_default() {
        "In" => found.is_some_and(|found| values.contains(&found)),
        "NotIn" => !found.is_some_and(|found| values.contains(&found)),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compared(|found, limit| found > limit),
        "Lt" => compared(|found, limit| found < limit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fake::FakeApi;
    use super::*;

    fn volume(name: &str, terms: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"claimRef": {"namespace": "default", "name": name},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}})
    }

    /// The node selector terms of a local-path volume.
    fn on(nodes: &[&str]) -> Value {
        json!([{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]}])
    }

    fn api() -> FakeApi {
        let api = FakeApi::default();
        for (name, zone) in [("worker-1", "a"), ("worker-2", "b"), ("worker-3", "b")] {
            api.put(
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name,
                "labels": {"kubernetes.io/hostname": name, "zone": zone}}}),
            );
        }
        let zone = |values: &[&str]| json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": values}]}]);
        api.put(volume("db", &on(&["worker-1"])));
        api.put(volume("both", &on(&["worker-1", "worker-2"])));
        api.put(volume("elsewhere", &on(&["worker-2"])));
        api.put(volume("zone-a", &zone(&["a"])));
        api.put(volume("zone-b", &zone(&["b"])));
        let field = json!([{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["worker-1"]}]}]);
        api.put(volume("by-name", &field));
        let mut network = volume("network", &Value::Null);
        network["spec"]["nodeAffinity"] = Value::Null;
        api.put(network);
        // It contains no data.
        let mut unclaimed = volume("unclaimed", &on(&["worker-1"]));
        unclaimed["spec"]["claimRef"] = Value::Null;
        api.put(unclaimed);
        api
    }

    #[tokio::test]
    async fn claims_whose_volume_no_other_node_can_use_are_named() {
        let api = api();
        let claims = claims_only_on(&api, "worker-1").await.unwrap();
        assert_eq!(claims, ["default/by-name", "default/db", "default/zone-a"]);
        let claims = claims_only_on(&api, "worker-2").await.unwrap();
        assert_eq!(claims, ["default/elsewhere"]);
        assert_eq!(claims_only_on(&api, "worker-3").await.unwrap(), [""; 0]);
    }

    /// Its labels are no longer known, except the one that each kubelet sets.
    #[tokio::test]
    async fn claims_of_a_node_that_was_deleted_are_named() {
        let api = api();
        api.put(volume("left", &on(&["worker-9"])));
        let claims = claims_only_on(&api, "worker-9").await.unwrap();
        assert_eq!(claims, ["default/left"]);
    }

    #[test]
    fn requirements_are_read_as_the_scheduler_reads_them() {
        let of = |key: &str| (key == "size").then_some("3");
        let meets = |key: &str, operator: &str, values: Value| {
            meets(
                &json!({"key": key, "operator": operator, "values": values}),
                of,
            )
        };
        assert!(meets("size", "Exists", Value::Null) && !meets("other", "Exists", Value::Null));
        assert!(meets("other", "DoesNotExist", Value::Null));
        assert!(meets("other", "NotIn", json!(["3"])) && !meets("size", "NotIn", json!(["3"])));
        assert!(meets("size", "Gt", json!(["2"])) && !meets("size", "Gt", json!(["3"])));
        assert!(meets("size", "Lt", json!(["4"])) && !meets("other", "Lt", json!(["4"])));
    }
}
