//! Pods that no kubelet ends, in the drain of a host that is cleaned next.

use halite_core::clock::{Clock, Steady};
use halite_store::Millis;

use super::*;

/// The end of the grace period of a stubborn pod in the fake API.
const OVER: Millis = 1_767_225_600_000;

/// The time of day of a drain that starts ten seconds before that.
struct Day<'a>(&'a Virtual);

impl Clock for Day<'_> {
    fn now(&self) -> Millis {
        OVER - 10_000 + Millis::try_from(self.0.now().as_millis()).unwrap()
    }
    fn steady(&self) -> Steady {
        Steady::default()
    }
    fn boot(&self) -> &'static str {
        ""
    }
}

/// An API whose first node has this condition `Ready`, and where the pod `web` does not end.
fn api_with(ready: &str) -> FakeApi {
    let api = api();
    let mut node = api.object("Node", "worker-1").unwrap();
    node["status"] = json!({"conditions": [{"type": "Ready", "status": ready}]});
    api.put(node);
    api.stubborn.lock().unwrap().push("web".into());
    api
}

/// Drains the first node; returns the reports, and the seconds that passed.
fn drain_before(
    api: &dyn Api,
    is_cleaned: bool,
) -> (Result<Drained, DrainError>, Vec<String>, u64) {
    let pace = Virtual::default();
    let day = Day(&pace);
    let clock: &dyn Clock = &day;
    let drain = Drain {
        api,
        pace: &pace,
        node: "worker-1",
        options: Options::default(),
        limit: Duration::from_secs(60),
        maintenance: false,
        cleaned: is_cleaned.then_some(clock),
    };
    let drained = finish(drain.run()).expect("the fake never waits");
    let seconds = pace.now().as_secs();
    (drained, pace.0.into_inner().unwrap().1, seconds)
}

#[test]
fn a_host_that_is_cleaned_is_not_held_up_by_pods_that_no_kubelet_ends() {
    for ready in ["Unknown", "False"] {
        let api = api_with(ready);
        let (drained, reports, seconds) = drain_before(&api, true);
        let drained = drained.unwrap();
        // The ten seconds of the grace period, and thirty more.
        assert_eq!(seconds, 40, "{reports:?}");
        assert_eq!(drained.evicted.len(), 3, "{drained:?}");
        assert_eq!(Vec::from_iter(&drained.not_waited_for), ["default/web"]);
        let remark = drained.remark().unwrap();
        assert!(
            remark.contains("the node is not Ready") && remark.ends_with(": default/web"),
            "{remark}"
        );
        let wanted = "default/web (StatefulSet web): it is ending, and the node is not Ready: waiting at most 31 s more";
        assert!(reports[10].contains(wanted), "{reports:?}");
        assert!(api.object("Pod", "web").is_some());
        let evictions = writes(&api);
        let evictions = evictions.iter().filter(|write| write.ends_with("/web"));
        assert_eq!(evictions.count(), 1);
    }
}

/// The taint of an unreachable node ends pods after minutes, before any drain.
#[test]
fn each_pod_has_its_own_grace_period_also_when_it_was_ending_before() {
    let api = api_with("Unknown");
    for (name, over) in [
        ("past", "2025-12-31T23:00:00Z"),
        ("long", "2026-01-01T00:00:05Z"),
    ] {
        let mut pod = pod(name, "StatefulSet");
        pod["metadata"]["deletionTimestamp"] = json!(over);
        api.put(pod);
    }
    let (drained, reports, seconds) = drain_before(&api, true);
    let drained = drained.unwrap();
    assert_eq!(seconds, 45, "{reports:?}");
    assert_eq!(
        Vec::from_iter(&drained.not_waited_for),
        ["default/long", "default/past", "default/web"]
    );
    assert!(!drained.evicted.contains("default/past"), "{drained:?}");
    // While it waits for one pod, it also names the other.
    assert!(
        reports[0].contains("they end with the host: default/past"),
        "{reports:?}"
    );
}

/// A working kubelet ends them, and a host that stays keeps their containers.
#[test]
fn elsewhere_the_drain_waits_until_each_pod_is_gone() {
    for (ready, is_cleaned) in [("True", true), ("Unknown", false), ("False", false)] {
        let (drained, reports, _) = drain_before(&api_with(ready), is_cleaned);
        let text = drained.unwrap_err().to_string();
        assert!(
            text.contains("default/web (StatefulSet web): it is ending;"),
            "{ready}: {text}"
        );
        assert!(!reports.concat().contains("not Ready"), "{reports:?}");
    }
}

#[test]
fn a_budget_holds_its_pod_on_such_a_node_too() {
    let api = api_with("Unknown");
    api.held.lock().unwrap().insert("api".into(), u32::MAX);
    let text = drain_before(&api, true).0.unwrap_err().to_string();
    for part in [
        "default/api (Deployment front)",
        "they end with the host: default/web",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
