//! Drains of a node on the fake API.

mod returning;
mod unready;

use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use halite_etcd::{Moment, Pace, Wait};
use serde_json::{Value, json};

use super::drain::{Cordon, Drain, DrainError, Drained, Options, set_cordon};
use super::fake::FakeApi;
use super::{Api, ApiError, ApiFuture, FieldConflict, ObjectRef, Served};

/// Time that passes only in pauses of one second each.
#[derive(Default)]
pub(super) struct Virtual(pub(super) Mutex<(Duration, Vec<String>)>);

impl Pace for Virtual {
    fn now(&self) -> Duration {
        self.0.lock().unwrap().0
    }
    fn pause(&self) -> Moment<'_> {
        self.0.lock().unwrap().0 += Duration::from_secs(1);
        Box::pin(std::future::ready(()))
    }
    fn report<'a>(&'a self, wait: &'a Wait) -> Moment<'a> {
        self.0.lock().unwrap().1.push(wait.to_string());
        Box::pin(std::future::ready(()))
    }
}

/// A pod on `worker-1`, created by a controller of this kind.
fn pod(name: &str, controller: &str) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"nodeName": "worker-1"}, "status": {"phase": "Running"}});
    if !controller.is_empty() {
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": controller, "name": name, "controller": true}]);
    }
    pod
}

/// An API with two nodes, and pods of each kind on the first.
fn api() -> FakeApi {
    let api = FakeApi::default();
    for name in ["worker-1", "worker-2"] {
        api.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"podCIDR": "10.1.0.0/24"}}));
    }
    api.put(pod("web", "StatefulSet"));
    api.put(pod("api", "ReplicaSet"));
    api.put(json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": "api", "namespace": "default",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "front", "controller": true}]}}));
    api.put(pod("logs", "DaemonSet"));
    api.put(json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "logs", "namespace": "default"}}));
    let mut mirror = pod("etcd", "");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    api.put(mirror);
    let mut elsewhere = pod("elsewhere", "StatefulSet");
    elsewhere["spec"]["nodeName"] = json!("worker-2");
    api.put(elsewhere);
    let mut finished = pod("done", "");
    finished["status"]["phase"] = json!("Succeeded");
    api.put(finished);
    api
}

fn drain_with(api: &dyn Api, options: Options) -> (Result<Drained, DrainError>, Vec<String>) {
    let pace = Virtual::default();
    let drain = Drain {
        api,
        pace: &pace,
        node: "worker-1",
        options,
        limit: Duration::from_secs(60),
        maintenance: false,
        cleaned: None,
    };
    let drained = finish(drain.run()).expect("the fake never waits");
    let reports = pace.0.into_inner().unwrap().1;
    (drained, reports)
}

fn drain(api: &dyn Api) -> (Result<Drained, DrainError>, Vec<String>) {
    drain_with(api, Options::default())
}

/// Polls a future that is ready at once, unless its API has stopped it.
pub(super) fn finish<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

pub(super) fn writes(api: &FakeApi) -> Vec<String> {
    api.writes.lock().unwrap().clone()
}

const WHOLE: [&str; 4] = [
    "replace Node worker-1",
    "evict Pod default/api",
    "evict Pod default/done",
    "evict Pod default/web",
];

#[test]
fn pods_leave_and_those_of_daemon_sets_and_manifests_stay() {
    let api = api();
    let drained = drain(&api).0.unwrap();
    assert!(drained.is_registered);
    let evicted: Vec<&str> = drained.evicted.iter().map(String::as_str).collect();
    assert_eq!(evicted, ["default/api", "default/done", "default/web"]);
    assert_eq!(writes(&api), WHOLE);
    for stays in ["logs", "etcd", "elsewhere"] {
        assert!(api.object("Pod", stays).is_some(), "{stays}");
    }
    let node = api.object("Node", "worker-1").unwrap();
    assert_eq!(node["spec"]["unschedulable"], true);

    // A drained node needs no work, and neither does an unregistered one.
    let again = drain(&api).0.unwrap();
    assert!(again.evicted.is_empty() && again.is_registered);
    assert_eq!(writes(&api).len(), WHOLE.len());
    let unknown = drain(&FakeApi::default()).0.unwrap();
    assert_eq!(unknown, Drained::default());
}

#[test]
fn pods_that_need_a_flag_are_named_before_anything_is_touched() {
    let api = api();
    api.put(pod("alone", ""));
    // Its DaemonSet was removed without its pods.
    api.put(pod("orphan", "DaemonSet"));
    let mut scratch = pod("scratch", "StatefulSet");
    scratch["spec"]["volumes"] = json!([{"name": "a", "emptyDir": {}}]);
    api.put(scratch);
    let text = drain(&api).0.unwrap_err().to_string();
    for part in [
        "(--force ends them): default/alone, default/orphan",
        "(--delete-emptydir-data ends them): default/scratch",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(writes(&api).is_empty());

    let options = Options {
        force: true,
        delete_emptydir_data: true,
        grace_period: Some(3),
    };
    let drained = drain_with(&api, options).0.unwrap();
    assert_eq!(drained.evicted.len(), 6, "{drained:?}");
    assert!(writes(&api).contains(&"evict Pod default/alone in 3 s".to_owned()));
}

#[test]
fn a_drain_waits_for_a_budget_and_names_it_with_pod_and_owner() {
    let api = api();
    let budget = |name: &str, app: &str| {
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"currentHealthy": 2, "desiredHealthy": 2}})
    };
    api.put(budget("api-budget", "api"));
    api.put(budget("another", "db"));
    api.held.lock().unwrap().insert("api".into(), 3);
    let (drained, reports) = drain(&api);
    assert!(drained.unwrap().evicted.contains("default/api"));
    let wanted = "default/api (Deployment front): the PodDisruptionBudget default/api-budget holds it \
                  (2 healthy, 2 required)";
    assert!(reports[1].contains(wanted), "{reports:?}");
    assert!(!reports[1].contains("another"), "{reports:?}");

    let api = self::api();
    api.put(budget("api-budget", "api"));
    api.held.lock().unwrap().insert("api".into(), u32::MAX);
    let text = drain(&api).0.unwrap_err().to_string();
    for part in [
        "cannot drain worker-1 within 60 s",
        wanted,
        "ctl node uncordon worker-1",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(api.object("Pod", "web").is_none(), "the others have left");
}

#[test]
fn a_pod_that_does_not_end_is_named() {
    let api = api();
    api.stubborn.lock().unwrap().push("web".into());
    let text = drain(&api).0.unwrap_err().to_string();
    assert!(
        text.contains("default/web (StatefulSet web): it is ending"),
        "{text}"
    );
    let evictions = writes(&api);
    let evictions = evictions.iter().filter(|write| write.ends_with("/web"));
    assert_eq!(evictions.count(), 1);
}

#[test]
fn a_drain_waits_for_a_silent_api() {
    let api = api();
    api.silent_for.store(5, Ordering::SeqCst);
    let (drained, reports) = drain(&api);
    assert_eq!(drained.unwrap().evicted.len(), 3);
    assert!(reports[0].contains("does not answer"), "{reports:?}");
}

#[test]
fn cordon_and_uncordon_change_only_what_differs_and_try_again_after_a_lost_race() {
    let api = api();
    api.conflicts.store(2, Ordering::SeqCst);
    let set = |cordon| {
        finish(set_cordon(&api, "worker-1", cordon))
            .unwrap()
            .unwrap()
    };
    assert_eq!(
        [
            set(Cordon::On),
            set(Cordon::On),
            set(Cordon::Off),
            set(Cordon::Off)
        ],
        [true, false, true, false]
    );
    let node = api.object("Node", "worker-1").unwrap();
    assert_eq!(node["spec"], json!({"podCIDR": "10.1.0.0/24"}));
    let unknown = finish(set_cordon(&api, "worker-9", Cordon::On)).unwrap();
    assert!(
        unknown
            .unwrap_err()
            .to_string()
            .contains("worker-9 is not registered")
    );
}

/// An API whose caller dies at its write of this number, before or after it.
pub(super) struct Stopped<'a> {
    api: &'a FakeApi,
    at: usize,
    after: bool,
    writes: AtomicUsize,
}

impl<'a> Stopped<'a> {
    pub(super) fn new(api: &'a FakeApi, at: usize, after: bool) -> Self {
        Self {
            api,
            at,
            after,
            writes: AtomicUsize::new(0),
        }
    }

    fn write<'s, T: Send + 's>(&'s self, write: ApiFuture<'s, T>) -> ApiFuture<'s, T> {
        let dies = self.writes.fetch_add(1, Ordering::Relaxed) == self.at;
        Box::pin(async move {
            if dies && !self.after {
                return std::future::pending().await;
            }
            let answer = write.await;
            if dies {
                return std::future::pending().await;
            }
            answer
        })
    }
}

impl Api for Stopped<'_> {
    fn get<'a>(&'a self, reference: &'a ObjectRef) -> ApiFuture<'a, Option<Value>> {
        self.api.get(reference)
    }
    fn apply<'a>(&'a self, object: &'a Value, dry_run: bool) -> ApiFuture<'a, Value> {
        self.write(self.api.apply(object, dry_run))
    }
    fn conflicts<'a>(&'a self, object: &'a Value) -> ApiFuture<'a, Vec<FieldConflict>> {
        self.api.conflicts(object)
    }
    fn replace<'a>(&'a self, object: &'a Value, dry_run: bool) -> ApiFuture<'a, Value> {
        self.write(self.api.replace(object, dry_run))
    }
    fn delete<'a>(&'a self, reference: &'a ObjectRef) -> ApiFuture<'a, bool> {
        self.write(self.api.delete(reference))
    }
    fn evict<'a>(
        &'a self,
        pod: &'a ObjectRef,
        uid: &'a str,
        grace: Option<u64>,
    ) -> ApiFuture<'a, ()> {
        self.write(self.api.evict(pod, uid, grace))
    }
    fn ready(&self) -> ApiFuture<'_, ()> {
        self.api.ready()
    }
    fn metric<'a>(&'a self, name: &'a str) -> ApiFuture<'a, Vec<String>> {
        self.api.metric(name)
    }
    fn list<'a>(
        &'a self,
        api_version: &'a str,
        kind: &'a str,
        namespace: &'a str,
        fields: &'a str,
    ) -> ApiFuture<'a, Vec<Value>> {
        self.api.list(api_version, kind, namespace, fields)
    }
    fn kinds(&self) -> ApiFuture<'_, Vec<Served>> {
        self.api.kinds()
    }
    fn metadata<'a>(
        &'a self,
        kind: &'a Served,
        namespace: &'a str,
        labels: &'a str,
    ) -> ApiFuture<'a, Vec<Value>> {
        self.api.metadata(kind, namespace, labels)
    }
}

#[test]
fn a_node_that_never_registered_has_no_cordon_to_end() {
    let api = api();
    let ended = set_cordon(&api, "gone", Cordon::AfterMaintenance);
    assert!(!finish(ended).unwrap().unwrap());
    let uncordoned = finish(set_cordon(&api, "gone", Cordon::Off)).unwrap();
    assert!(uncordoned.is_err());
}

/// After a maintenance a node is as an operator left it, whatever was interrupted in between.
#[test]
fn the_cordon_of_a_maintenance_ends_with_it_and_that_of_an_operator_does_not() {
    use Cordon::{AfterMaintenance, Maintenance, Off, On};
    let tables: [(&[Cordon], bool); 6] = [
        (&[Maintenance, AfterMaintenance], false),
        (&[Maintenance, Maintenance, AfterMaintenance], false),
        (&[On, Maintenance, AfterMaintenance], true),
        (&[Maintenance, On, AfterMaintenance], true),
        (&[Maintenance, Off, On, AfterMaintenance], true),
        (&[AfterMaintenance], false),
    ];
    for (steps, cordoned) in tables {
        let api = api();
        for step in steps {
            finish(set_cordon(&api, "worker-1", *step))
                .unwrap()
                .unwrap();
        }
        let node = api.object("Node", "worker-1").unwrap();
        let is = node["spec"].get("unschedulable").is_some();
        assert_eq!(is, cordoned, "{steps:?}: {node}");
        let marks = node["metadata"].get("annotations");
        let marks = marks
            .and_then(|all| all.as_object())
            .map_or(0, |all| all.len());
        assert_eq!(marks, 0, "{steps:?}: {node}");
    }
}

/// An operator's drain removes the mark of an interrupted maintenance; the next maintenance keeps
/// it.
#[test]
fn a_drain_makes_the_cordon_of_an_interrupted_maintenance_its_own() {
    for (maintenance, cordoned) in [(false, true), (true, false)] {
        let api = api();
        let set = |cordon| {
            finish(set_cordon(&api, "worker-1", cordon))
                .unwrap()
                .unwrap()
        };
        set(Cordon::Maintenance);
        let pace = Virtual::default();
        let drain = Drain {
            api: &api,
            pace: &pace,
            node: "worker-1",
            options: Options::default(),
            limit: Duration::from_secs(60),
            maintenance,
            cleaned: None,
        };
        finish(drain.run()).unwrap().unwrap();
        set(Cordon::AfterMaintenance);
        let node = api.object("Node", "worker-1").unwrap();
        let is = node["spec"].get("unschedulable").is_some();
        assert_eq!(is, cordoned, "maintenance: {maintenance}: {node}");
    }
}

/// The controller manager may leave its taint for minutes, and no pod is scheduled until it is
/// gone.
#[test]
fn the_taint_of_a_cordon_goes_with_it_and_other_taints_stay() {
    let own = json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"});
    for (kept, expected) in [(vec![own.clone()], json!([own])), (vec![], Value::Null)] {
        let api = api();
        finish(set_cordon(&api, "worker-1", Cordon::On))
            .unwrap()
            .unwrap();
        let mut node = api.object("Node", "worker-1").unwrap();
        let mut taints = vec![json!({
            "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule",
            "timeAdded": "2026-01-01T00:00:00Z",
        })];
        taints.extend(kept);
        node["spec"]["taints"] = json!(taints);
        api.put(node);
        finish(set_cordon(&api, "worker-1", Cordon::On))
            .unwrap()
            .unwrap();
        let count = |node: &Value| node["spec"]["taints"].as_array().map_or(0, Vec::len);
        assert_eq!(
            count(&api.object("Node", "worker-1").unwrap()),
            taints.len()
        );
        finish(set_cordon(&api, "worker-1", Cordon::Off))
            .unwrap()
            .unwrap();
        let node = api.object("Node", "worker-1").unwrap();
        assert_eq!(
            node["spec"].get("taints").unwrap_or(&Value::Null),
            &expected
        );
    }
}

/// The table of kill points: before and after each write of a drain.
#[test]
fn a_drain_that_was_killed_at_any_write_ends_like_one_that_was_not() {
    for at in 0..WHOLE.len() {
        for after in [false, true] {
            let api = api();
            let stopped = Stopped::new(&api, at, after);
            let pace = Virtual::default();
            let killed = Drain {
                api: &stopped,
                pace: &pace,
                node: "worker-1",
                options: Options::default(),
                limit: Duration::from_secs(60),
                maintenance: false,
                cleaned: None,
            };
            assert!(
                finish(killed.run()).is_none(),
                "it continued after write {at}"
            );
            assert_eq!(writes(&api).len(), at + usize::from(after));
            drain(&api).0.unwrap();
            assert_eq!(writes(&api), WHOLE, "killed at {at}, after: {after}");
        }
    }
}

#[test]
fn a_refusal_of_the_server_ends_the_drain() {
    let error = ApiError::Malformed("x".into());
    assert!(!error.is_transient());
    let api = api();
    api.put(pod("web", "StatefulSet"));
    api.unknown_kinds.lock().unwrap().push("Node".into());
    assert!(matches!(drain(&api).0, Err(DrainError::Api { .. })));
    assert!(writes(&api).is_empty());
}
