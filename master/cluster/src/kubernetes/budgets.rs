//! The PodDisruptionBudgets that block the eviction of a pod, for the report of a waiting drain.

use halite_errors::chain;
use serde_json::{Map, Value};

use super::Api;
use super::drain_pods::Pod;

/// Describes the budgets of a pod that the server refuses to evict.
pub(super) async fn held_by(api: &dyn Api, pod: &Pod) -> String {
    let namespace = &pod.reference.namespace;
    let listed = api.list("policy/v1", "PodDisruptionBudget", namespace, "");
    let budgets = match listed.await {
        Ok(budgets) => budgets,
        Err(error) => return format!("a PodDisruptionBudget holds it ({})", chain(&error)),
    };
    let of_pod = budgets.iter().filter(|budget| selects(budget, &pod.labels));
    let texts: Vec<String> = of_pod.map(|budget| text(namespace, budget)).collect();
    if texts.is_empty() {
        return "the server currently refuses to evict it".to_owned();
    }
    texts.join(", ")
}

/// Returns whether a budget now allows no eviction of a healthy pod. One whose status its
/// controller has not written yet counts as open.
pub(super) fn is_closed(budget: &Value) -> bool {
    let allowed = budget.pointer("/status/disruptionsAllowed");
    allowed.and_then(Value::as_i64) == Some(0)
}

/// Describes the budgets among these, of all namespaces, that select a pod; `None` without one.
pub(super) fn closed_over(budgets: &[Value], pod: &Pod) -> Option<String> {
    let namespace = &pod.reference.namespace;
    let is_there = |budget: &&Value| {
        let own = budget
            .pointer("/metadata/namespace")
            .and_then(Value::as_str);
        own == Some(namespace) && selects(budget, &pod.labels)
    };
    let texts = budgets
        .iter()
        .filter(is_there)
        .map(|one| text(namespace, one));
    let texts = texts.collect::<Vec<_>>().join(", ");
    Some(texts).filter(|texts| !texts.is_empty())
}

/// Name and numbers of a budget.
fn text(namespace: &str, budget: &Value) -> String {
    let name = budget.pointer("/metadata/name").and_then(Value::as_str);
    let number = |field: &str| {
        let value = budget.get("status").and_then(|status| status.get(field));
        value.and_then(Value::as_u64).unwrap_or_default()
    };
    format!(
        "the PodDisruptionBudget {namespace}/{} holds it ({} healthy, {} required)",
        name.unwrap_or_default(),
        number("currentHealthy"),
        number("desiredHealthy")
    )
}

/// Returns whether a budget's selector matches these labels. In policy/v1 an empty selector matches
/// every pod of the namespace.
fn selects(budget: &Value, labels: &Map<String, Value>) -> bool {
    let Some(selector) = budget.pointer("/spec/selector") else {
        return false;
    };
    let pairs = selector.get("matchLabels").and_then(Value::as_object);
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    let mut pairs = pairs.into_iter().flatten();
    let mut expressions = expressions.into_iter().flatten();
    pairs.all(|(key, value)| labels.get(key) == Some(value))
        && expressions.all(|expression| is_met(expression, labels))
}

/// Returns whether labels match one of `matchExpressions`.
fn is_met(expression: &Value, labels: &Map<String, Value>) -> bool {
    let key = expression.get("key").and_then(Value::as_str);
    let label = key.and_then(|key| labels.get(key));
    let values = expression.get("values").and_then(Value::as_array);
    let listed = label.is_some_and(|label| values.is_some_and(|values| values.contains(label)));
    match expression.get("operator").and_then(Value::as_str) {
        Some("In") => listed,
        Some("NotIn") => !listed,
        Some("Exists") => label.is_some(),
        Some("DoesNotExist") => label.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_matches_labels_as_the_server_does() {
        let labels = json!({"app": "web", "tier": "front"});
        let labels = labels.as_object().unwrap();
        let expression = |key: &str, operator: &str, values: &[&str]| {
            json!({"matchExpressions":
            [{"key": key, "operator": operator, "values": values}]})
        };
        for (selector, wanted) in [
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (
                json!({"matchLabels": {"app": "web", "tier": "back"}}),
                false,
            ),
            (expression("app", "In", &["web", "db"]), true),
            (expression("app", "In", &["db"]), false),
            (expression("app", "NotIn", &["db"]), true),
            (expression("zone", "NotIn", &["a"]), true),
            (expression("tier", "Exists", &[]), true),
            (expression("tier", "DoesNotExist", &[]), false),
        ] {
            let budget = json!({"spec": {"selector": selector}});
            assert_eq!(selects(&budget, labels), wanted, "{selector}");
        }
        assert!(!selects(&json!({"spec": {}}), labels));
    }
}
