//! Rollouts of Deployments, StatefulSets and DaemonSets, as `kubectl rollout status` judges them
//! (kubectl's `pkg/polymorphichelpers/rollout_status.go`).

use halite_core::clock::millis;
use halite_store::Millis;
use serde_json::Value;

use super::pod_facts::RESTARTED;

/// The kinds that `kubectl rollout restart` restarts.
pub(super) const RESTARTABLE: [&str; 3] = ["DaemonSet", "Deployment", "StatefulSet"];

fn number(object: &Value, pointer: &str) -> Option<u64> {
    object.pointer(pointer).and_then(Value::as_u64)
}

/// The number of pods that a workload wants.
fn wanted(object: &Value) -> u64 {
    number(object, "/spec/replicas")
        .or_else(|| number(object, "/status/desiredNumberScheduled"))
        .unwrap_or_default()
}

/// The reason why the controller of a workload still has pods to replace; `None` if it has none.
pub(super) fn replacement_left(object: &Value) -> Option<String> {
    let number = |pointer: &str| number(object, pointer);
    if number("/metadata/generation") != number("/status/observedGeneration") {
        return Some("its controller has not seen the last change".to_owned());
    }
    let updated = number("/status/updatedReplicas")
        .or_else(|| number("/status/updatedNumberScheduled"))
        .unwrap_or_default();
    let to_update = wanted(object).saturating_sub(kept(object));
    (updated < to_update).then(|| format!("{updated} of {to_update} pods are replaced"))
}

/// The reason why the rollout of a workload has not ended; `None` if it has.
pub(super) fn rollout_left(object: &Value) -> Option<String> {
    if let Some(why) = replacement_left(object) {
        return Some(why);
    }
    let number = |pointer: &str| number(object, pointer);
    let wanted = wanted(object);
    let available = number("/status/availableReplicas")
        .or_else(|| number("/status/numberAvailable"))
        .unwrap_or_default();
    if available < wanted {
        return Some(format!("{available} of {wanted} pods are available"));
    }
    let all = number("/status/replicas").unwrap_or_default();
    let ends = all.saturating_sub(wanted);
    let is_deployment = object.pointer("/spec/strategy").is_some();
    (is_deployment && ends > 0).then(|| format!("{ends} old pods have not ended"))
}

/// The accepted difference between the clocks of two hosts: the checks of hosts refuse a greater
/// one.
const CLOCKS_DIFFER: Millis = 30_000;

/// Returns whether a restart of a workload replaces pods that were created before this time, and
/// that no earlier restart replaces.
///
/// Clocks differ, so pods of a restart shortly after this time may count as created before it. Once
/// the accepted difference has passed, such a workload is restarted again.
pub(super) fn takes_restart(object: &Value, since: Millis, now: Millis) -> bool {
    let by_operator = object
        .pointer("/spec/updateStrategy/type")
        .is_some_and(|kind| kind == "OnDelete");
    let is_paused = object.pointer("/spec/paused") == Some(&Value::Bool(true));
    let may_be_early = now > since + CLOCKS_DIFFER && kept(object) == 0;
    let since = if may_be_early {
        since + CLOCKS_DIFFER
    } else {
        since
    };
    // Another restart would replace the new pods, not those below a partition.
    let is_done = restarted_at(object) > Some(since);
    !by_operator && !is_paused && !is_done
}

/// The number of pods of a StatefulSet that a rollout leaves as they are.
fn kept(object: &Value) -> u64 {
    number(object, "/spec/updateStrategy/rollingUpdate/partition").unwrap_or_default()
}

/// The time of the last restart.
pub(super) fn restarted_at(object: &Value) -> Option<Millis> {
    let annotations = object.pointer("/spec/template/metadata/annotations")?;
    millis(annotations.get(RESTARTED)?.as_str()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rollout_ends_when_all_pods_are_replaced_and_available_and_no_old_one_is_left() {
        let of = |generation: u64, status: Value| {
            let object = json!({"metadata": {"generation": 2},
                "spec": {"replicas": 3, "strategy": {"type": "RollingUpdate"}}, "status": status});
            let mut object = object;
            object["status"]["observedGeneration"] = json!(generation);
            rollout_left(&object)
        };
        let status = |updated: u64, available: u64, all: u64| json!({"updatedReplicas": updated, "availableReplicas": available, "replicas": all});
        for (generation, given, wanted) in [
            (1, status(3, 3, 3), Some("has not seen the last change")),
            (2, status(1, 3, 4), Some("1 of 3 pods are replaced")),
            (2, status(3, 2, 4), Some("2 of 3 pods are available")),
            (2, status(3, 3, 4), Some("1 old pods have not ended")),
            (2, status(3, 3, 3), None),
        ] {
            let left = of(generation, given);
            match wanted {
                Some(wanted) => assert!(left.unwrap().contains(wanted), "{wanted}"),
                None => assert_eq!(left, None),
            }
        }
        let set = json!({"status": {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1}});
        assert_eq!(rollout_left(&set).unwrap(), "1 of 2 pods are available");
        let partition = json!({"spec": {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}},
            "status": {"updatedReplicas": 1, "availableReplicas": 3}});
        assert_eq!(rollout_left(&partition), None);
    }

    #[test]
    fn workloads_whose_pods_a_restart_does_not_replace_take_none() {
        let takes = |spec: Value| takes_restart(&json!({"spec": spec}), 0, 0);
        assert!(takes(json!({})));
        assert!(!takes(json!({"updateStrategy": {"type": "OnDelete"}})));
        assert!(!takes(json!({"paused": true})));
        let partition = |annotations: Value| {
            takes(
                json!({"updateStrategy": {"rollingUpdate": {"partition": 2}},
                "template": {"metadata": {"annotations": annotations}}}),
            )
        };
        assert!(partition(json!({})));
        assert!(!partition(json!({RESTARTED: "2026-11-29T00:00:00Z"})));
        let ends =
            json!({"template": {"metadata": {"annotations": {RESTARTED: "2026-11-29T00:00:00Z"}}}});
        assert!(!takes(ends));
    }

    #[test]
    fn a_restart_that_may_have_been_too_early_is_repeated_once_if_no_partition_keeps_pods() {
        let takes = |restarted: &str, now: Millis, partition: u64| {
            let object = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": partition}},
                "template": {"metadata": {"annotations": {RESTARTED: restarted}}}}});
            takes_restart(&object, 0, now)
        };
        let (early, late) = ("1970-01-01T00:00:10Z", "1970-01-01T00:00:31Z");
        assert!(!takes(early, 20_000, 0));
        assert!(takes(early, 31_000, 0));
        assert!(!takes(early, 31_000, 1));
        assert!(!takes(late, 600_000, 0));
    }
}
