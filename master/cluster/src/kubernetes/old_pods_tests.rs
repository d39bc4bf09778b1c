//! Tests of the wait for old pods.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use halite_core::clock::{ManualClock, rfc3339};
use halite_errors::chain;
use halite_etcd::{Moment, Pace, Wait};
use halite_store::Millis;
use serde_json::{Value, json};

use super::drain_tests::{Virtual, finish};
use super::fake::FakeApi;
use super::old_pods::*;
use super::pod_facts::{RESTARTED, ROOT_CA, key_id};
use super::rollout::restarted_at;

/// Some time.
const NOON: Millis = 1_795_910_400_000;

fn at(seconds: i64) -> String {
    rfc3339(NOON + seconds * 1000)
}

/// A cluster whose namespace got both CAs at second 0.
fn cluster(content: &str) -> FakeApi {
    let api = FakeApi::default();
    api.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}));
    api.put(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"ca.crt": content},
        "metadata": {"name": ROOT_CA, "namespace": "default", "creationTimestamp": at(0)}}),
    );
    api
}

fn pod(api: &FakeApi, name: &str, created: i64, owner: Option<(&str, &str)>) {
    let owners: Vec<Value> = (owner.iter())
        .map(|(kind, name)| json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": true}))
        .collect();
    api.put(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": at(created), "ownerReferences": owners},
        "spec": {"volumes": [{"projected": {"sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607}}, {"configMap": {"name": ROOT_CA}}]}}]}}));
}

fn deployment(api: &FakeApi, updated: u64) {
    let web = json!({"name": "web", "namespace": "default"});
    api.put(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": web,
        "spec": {"replicas": 1, "template": {"metadata": {}}}, "status": {"updatedReplicas": updated, "availableReplicas": updated}}));
    api.put(json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": "web-1", "namespace": "default", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "controller": true}]}}));
}

fn run(api: &FakeApi, replaced: &Replaced, restart: bool, now: i64) -> Result<Vec<String>, String> {
    run_at(api, replaced, restart, NOON + now * 1000)
}

fn run_at(
    api: &FakeApi,
    replaced: &Replaced,
    restart: bool,
    now: Millis,
) -> Result<Vec<String>, String> {
    let (pace, clock) = (Virtual::default(), ManualClock::at(now));
    let wait = OldPods {
        api,
        pace: &pace,
        clock: &clock,
        replaced,
        restart,
        limit: Duration::from_secs(20),
    };
    let found = finish(wait.run()).expect("the fake never waits");
    found
        .map(|restarted| restarted.into_iter().collect())
        .map_err(|error| chain(&error))
}

fn both() -> Replaced {
    Replaced::Ca(vec!["new\n".to_owned(), "old\n".to_owned()])
}

#[test]
fn pods_that_were_created_before_their_namespace_had_both_cas_are_named_by_owner() {
    let api = cluster("old\nnew\n");
    deployment(&api, 1);
    pod(&api, "young", 60, Some(("DaemonSet", "young")));
    assert_eq!(run(&api, &both(), false, 60).unwrap(), Vec::<String>::new());
    pod(&api, "web-1-a", -60, Some(("ReplicaSet", "web-1")));
    pod(&api, "web-1-b", 1, Some(("ReplicaSet", "web-1")));
    pod(&api, "alone", -60, None);
    let error = run(&api, &both(), false, 60).unwrap_err();
    assert!(
        error.ends_with("Deployment default/web (2 pods), Pod default/alone (1 pod)")
            || error.ends_with("Pod default/alone (1 pod), Deployment default/web (2 pods)"),
        "{error}"
    );
    assert!(api.writes.lock().unwrap().is_empty());
}

#[test]
fn a_namespace_without_the_new_ca_delays_the_rotation() {
    let api = cluster("old\n");
    let error = run(&api, &both(), true, 60).unwrap_err();
    assert!(
        error.contains("does not have the present CAs yet in default"),
        "{error}"
    );
}

#[test]
fn old_pods_are_restarted_through_their_workload() {
    let api = cluster("old\nnew\n");
    deployment(&api, 1);
    pod(&api, "web-1-a", -60, Some(("ReplicaSet", "web-1")));
    pod(&api, "job-1", -60, Some(("Job", "job")));
    // Too early: a pod that is created now could still read the old file.
    run(&api, &both(), true, 1).unwrap_err();
    assert!(api.writes.lock().unwrap().is_empty());
    run(&api, &both(), true, 60).unwrap_err();
    let stored = api.object("Deployment", "web").unwrap();
    let annotation = &stored["spec"]["template"]["metadata"]["annotations"][RESTARTED];
    assert_eq!(annotation, &json!(at(60)));
    let api = cluster("old\nnew\n");
    deployment(&api, 0);
    pod(&api, "web-1-a", -60, Some(("ReplicaSet", "web-1")));
    run(&api, &both(), true, 60).unwrap_err();
    assert!(
        api.writes.lock().unwrap().is_empty(),
        "its pods are being replaced"
    );
}

/// A pod that is created at second 2 and some milliseconds has the creation time of second 2, and
/// counts as old.
#[test]
fn no_workload_is_restarted_in_the_last_second_whose_pods_count_as_old() {
    let api = cluster("old\nnew\n");
    deployment(&api, 1);
    pod(&api, "web-1-a", -60, Some(("ReplicaSet", "web-1")));
    pod(&api, "web-1-b", 2, Some(("ReplicaSet", "web-1")));
    let error = run_at(&api, &both(), true, NOON + 2_140).unwrap_err();
    assert!(error.contains("Deployment default/web (2 pods)"), "{error}");
    assert!(api.writes.lock().unwrap().is_empty());
}

/// The clock of the API server is 20 s behind that of the master.
#[test]
fn a_workload_whose_new_pods_count_as_old_is_restarted_once_more() {
    let api = cluster("old\nnew\n");
    deployment(&api, 1);
    let mut web = api.object("Deployment", "web").unwrap();
    web["spec"]["template"]["metadata"]["annotations"] = json!({RESTARTED: at(20)});
    api.put(web);
    pod(&api, "web-1-a", 1, Some(("ReplicaSet", "web-1")));
    let restarted = || restarted_at(&api.object("Deployment", "web").unwrap());
    // Another one could be too early as well.
    run(&api, &both(), true, 30).unwrap_err();
    assert_eq!(restarted(), Some(NOON + 20_000));
    run(&api, &both(), true, 40).unwrap_err();
    assert_eq!(restarted(), Some(NOON + 40_000));
    // The pod is one that no restart replaces.
    run(&api, &both(), true, 600).unwrap_err();
    assert_eq!(restarted(), Some(NOON + 40_000));
}

#[test]
fn a_workload_is_not_restarted_for_pods_that_are_ending() {
    let api = cluster("old\nnew\n");
    deployment(&api, 1);
    pod(&api, "web-1-a", -60, Some(("ReplicaSet", "web-1")));
    let mut ending = api.object("Pod", "web-1-a").unwrap();
    ending["metadata"]["deletionTimestamp"] = json!(at(10));
    api.put(ending);
    let error = run(&api, &both(), true, 60).unwrap_err();
    assert!(error.contains("Deployment default/web (1 pod)"), "{error}");
    assert!(api.writes.lock().unwrap().is_empty());
}

/// A StatefulSet with an old pod, whose rollout has got this far.
fn set(api: &FakeApi, name: &str, strategy: &str, replaced: u64) {
    api.put(json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 1, "updateStrategy": {"type": strategy}, "template": {"metadata": {}}},
        "status": {"updatedReplicas": replaced, "availableReplicas": 1}}));
    pod(api, name, -60, Some(("StatefulSet", name)));
}

/// The controller of the sets takes one step of their rollouts at each report of the wait.
struct Controller<'a>(&'a FakeApi, Virtual);

impl Pace for Controller<'_> {
    fn now(&self) -> Duration {
        self.1.now()
    }
    fn pause(&self) -> Moment<'_> {
        self.1.pause()
    }
    fn report<'a>(&'a self, wait: &'a Wait) -> Moment<'a> {
        for name in ["a", "b"] {
            let mut set = self.0.object("StatefulSet", name).unwrap();
            if restarted_at(&set).is_none() {
                continue;
            }
            let of = |field: &str| set["status"][field].as_u64().unwrap();
            let (updated, available) = match (of("updatedReplicas"), of("availableReplicas")) {
                (1, 1) if !is_young(self.0, name) => (0, 1),
                (0, 1) => {
                    pod(self.0, name, 61, Some(("StatefulSet", name)));
                    (1, 0)
                }
                _ => (1, 1),
            };
            set["status"] = json!({"updatedReplicas": updated, "availableReplicas": available});
            self.0.put(set);
        }
        self.1.report(wait)
    }
}

fn is_young(api: &FakeApi, name: &str) -> bool {
    api.object("Pod", name).unwrap()["metadata"]["creationTimestamp"] == json!(at(61))
}

#[test]
fn workloads_are_restarted_one_after_the_other() {
    let api = cluster("old\nnew\n");
    set(&api, "a", "RollingUpdate", 1);
    set(&api, "b", "RollingUpdate", 1);
    let (pace, clock) = (
        Controller(&api, Virtual::default()),
        ManualClock::at(NOON + 60_000),
    );
    let replaced = both();
    let wait = OldPods {
        api: &api,
        pace: &pace,
        clock: &clock,
        replaced: &replaced,
        restart: true,
        limit: Duration::from_secs(20),
    };
    let restarted = finish(wait.run()).unwrap().unwrap();
    let both = ["StatefulSet default/a", "StatefulSet default/b"];
    assert_eq!(Vec::from_iter(restarted), both);
    let said = pace.1.0.into_inner().unwrap().1;
    let first = |text: &str| said.iter().position(|line| line.contains(text)).unwrap();
    let last = |text: &str| said.iter().rposition(|line| line.contains(text)).unwrap();
    let rollout = |name: &str| format!("the rollout of StatefulSet default/{name} has not ended");
    assert!(last(&rollout("a")) < first(&rollout("b")), "{said:#?}");
    assert!(
        said[first(&rollout("a"))].contains("StatefulSet default/b (1 pod)"),
        "{said:#?}"
    );
    assert!(
        said.iter()
            .any(|line| line.contains("0 of 1 pods are available")),
        "{said:#?}"
    );
}

/// The master was restarted in the middle of a rollout; and a set that its operator replaces stays.
#[test]
fn no_workload_is_restarted_while_the_rollout_of_another_one_has_not_ended() {
    let api = cluster("old\nnew\n");
    set(&api, "a", "RollingUpdate", 0);
    set(&api, "b", "RollingUpdate", 1);
    let mut begun = api.object("StatefulSet", "a").unwrap();
    begun["spec"]["template"]["metadata"]["annotations"] = json!({RESTARTED: at(30)});
    api.put(begun.clone());
    let error = run(&api, &both(), true, 60).unwrap_err();
    assert!(
        error.contains("the rollout of StatefulSet default/a has not ended (0 of 1 pods are replaced); still old: "),
        "{error}"
    );
    assert!(api.writes.lock().unwrap().is_empty());
    // An operator restarts it for a reason of its own, before the CA was published.
    begun["spec"]["template"]["metadata"]["annotations"] = json!({RESTARTED: at(-30)});
    api.put(begun);
    set(&api, "own", "OnDelete", 1);
    run(&api, &both(), true, 60).unwrap_err();
    let is_restarted =
        |name: &str| restarted_at(&api.object("StatefulSet", name).unwrap()) == Some(NOON + 60_000);
    assert!(is_restarted("b") && !is_restarted("a") && !is_restarted("own"));
}

#[test]
fn a_token_is_old_until_its_kubelet_has_renewed_it() {
    let api = cluster("");
    pod(&api, "web", -60, None);
    let token = |kid: &str| {
        let header = URL_SAFE_NO_PAD.encode(json!({"alg": "ES256", "kid": kid}).to_string());
        STANDARD.encode(format!("{header}.e30.x"))
    };
    let replaced = Replaced::Tokens {
        since: NOON,
        key_id: "new".to_owned(),
    };
    let error = run(&api, &replaced, false, 600).unwrap_err();
    assert!(error.ends_with("Pod default/web (1 pod)"), "{error}");
    assert!(run(&api, &replaced, false, 3600).is_ok());
    let secret = |name: &str, kid: &str| {
        api.put(json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": name, "namespace": "default"}, "data": {"token": token(kid)}}));
    };
    secret("renewed", "new");
    assert!(run(&api, &replaced, false, 3600).is_ok());
    secret("robot", "old");
    let error = run(&api, &replaced, false, 3600).unwrap_err();
    assert!(error.ends_with("Secret default/robot"), "{error}");
}

#[test]
fn a_key_has_the_identifier_that_kubernetes_derives() {
    // basenc --base64 --decode | openssl dgst -sha256 -binary | basenc --base64url
    let pem = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
    let wanted = "cJ6AyISHokEeHuTfufIqhhSS0gxHZRUMDHlKvXD4FHw";
    assert_eq!(key_id(pem).as_deref(), Some(wanted));
}
