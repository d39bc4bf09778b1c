//! The health of a whole master's cluster, and queries to minions.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use halite_cluster::kubernetes::ObjectRef;
use halite_core::names::minion;
use halite_fleet::jobs::Unanswered;
use halite_proto::v1;
use halite_proto::v1::master_message::Body as ToMinion;
use halite_proto::v1::minion_message::Body as ToMaster;
use serde_json::{Value, json};

use super::fixture::{Life, ScriptedMinion, Site};

fn put_node(site: &Site, name: &str) {
    site.api.put(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    );
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "kube-system"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

/// A site whose API has everything that a healthy cluster has.
fn sound_site() -> Site {
    let site = Site::new(&[("top.sls", "base:\n  '*': []\n")]);
    put_node(&site, "bootstrap-1");
    put_node(&site, "worker-1");
    for component in [
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "etcd",
    ] {
        site.api.put(pod(&format!("{component}-bootstrap-1")));
    }
    for (namespace, name) in [
        ("kube-system", "kube-proxy"),
        ("kube-flannel", "kube-flannel-ds"),
    ] {
        site.api
            .put(json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": name, "namespace": namespace}}));
    }
    let endpoint = |node: &str, address: &str| json!({"nodeName": node, "addresses": [address], "conditions": {"ready": true}});
    site.api.put(
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "kube-dns-x", "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"}},
        "endpoints": [endpoint("bootstrap-1", "10.233.0.2"), endpoint("worker-1", "10.233.1.2")]}),
    );
    site
}

fn status(life: &Life) -> Value {
    halite_api::to_value(&life.runtime.block_on(life.backend.status()).unwrap())
}

/// The checks of a status that found something, with their first finding; without the check of the
/// first backup, which a new cluster still waits for.
fn findings(status: &Value) -> Vec<(&str, &Value)> {
    let checks = status["health"]["checks"].as_array().unwrap();
    let found = |check: &&Value| check["state"] != "good" && check["name"] != "backup-first";
    let failing = checks.iter().filter(found);
    failing
        .map(|check| (check["name"].as_str().unwrap(), &check["findings"][0]))
        .collect()
}

#[test]
fn a_component_without_its_pod_makes_the_cluster_unhealthy() {
    let site = sound_site();
    let life = site.live();
    for name in ["bootstrap-1", "worker-1"] {
        life.connect(&ScriptedMinion::new(name));
    }
    let before = status(&life);
    assert_eq!(findings(&before), [], "{before:#}");
    assert_eq!(before["health"]["healthy"], true);
    assert_eq!(before["etcd"]["quorum"], "1 member, none may fail");
    let dns = json!({"replicas": ["bootstrap-1", "worker-1"], "without": []});
    assert_eq!(before["dns"], dns);

    let scheduler = ObjectRef::of(&pod("kube-scheduler-bootstrap-1")).unwrap();
    site.api.objects.lock().unwrap().remove(&scheduler);
    let after = status(&life);
    assert_eq!(after["health"]["healthy"], false);
    let found = findings(&after);
    let [("control-plane-pods", finding)] = found.as_slice() else {
        panic!("{found:?}");
    };
    let text = |key: &str| finding[key].as_str().unwrap();
    assert!(text("message").starts_with("kube-scheduler on bootstrap-1 does not run"));
    assert!(text("remedy").contains("`ctl highstate bootstrap-1`"));
    // However often an operator looks, nothing of it is stored.
    assert_eq!(life.runtime.block_on(life.store_jobs()), 0);
    life.kill();
}

/// The minions are asked with the API's data; an unreachable pod is named.
#[test]
fn pods_that_do_not_reach_another_node_make_the_cluster_unhealthy() {
    let site = sound_site();
    let life = site.live();
    let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
    let answered = Arc::clone(&asked);
    let fault = json!({"target": 0, "reason": "no answer within 2 s", "no_route": false, "interface": "flannel.1"});
    let answer = json!({"source": "10.233.1.2", "faults": [fault]});
    life.connect(&ScriptedMinion::new("bootstrap-1"));
    life.connect(&ScriptedMinion::new("worker-1").on(move |job| {
        let is_asked = job.function == "halite.pod_network";
        is_asked.then(|| {
            let question = serde_json::from_str(&job.args_json).unwrap();
            answered.lock().unwrap().push(question);
            answer.clone()
        })
    }));
    let status = status(&life);
    let found = findings(&status);
    let [("pod-network", finding)] = found.as_slice() else {
        panic!("{found:?}");
    };
    let text = |key: &str| finding[key].as_str().unwrap();
    let message = "pods of worker-1 do not reach those of bootstrap-1 at 10.233.0.2:53";
    assert!(text("message").starts_with(message), "{finding}");
    assert!(text("remedy").contains("UDP port 8472"), "{finding}");
    assert_eq!(finding["host"], "worker-1");
    let questions = asked.lock().unwrap();
    let question = &questions[0];
    assert_eq!(question["sources"], json!(["10.233.1.2"]));
    assert_eq!(
        question["targets"].as_array().unwrap().len(),
        3,
        "{question}"
    );
    life.kill();
}

/// Without the API the pods to reach are unknown, but the host itself is still checked.
#[test]
fn without_the_api_only_what_a_host_has_is_judged_and_the_rest_is_named() {
    let site = sound_site();
    site.api.silent_for.store(u32::MAX, Ordering::SeqCst);
    let life = site.live();
    let setup = json!({"configuration": {"path": "/etc/cni/net.d/05-old.conflist", "name": "old", "plugins": ["bridge"]},
        "forwards": true});
    life.connect(&ScriptedMinion::new("bootstrap-1"));
    life.connect(
        &ScriptedMinion::new("worker-1")
            .on(move |job| (job.function == "halite.pod_network").then(|| json!({"setup": setup}))),
    );
    let status = status(&life);
    let found = findings(&status);
    let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["api", "pod-network-setup"], "{found:?}");
    let message = found[0].1["message"].as_str().unwrap();
    assert!(
        message.ends_with("so nodes, their pods and the pod network are not checked"),
        "{message}"
    );
    life.kill();
}

#[test]
fn a_question_ends_with_its_answer_or_its_time() {
    let site = Site::new(&[("top.sls", "base:\n  '*': []\n")]);
    let life = site.live();
    let jobs = life.backend.jobs();
    let ask = |host: &str, limit: u64| {
        let (host, limit) = (minion(host), Duration::from_millis(limit));
        let args = json!({"a": 1});
        life.runtime
            .block_on(jobs.ask(&host, "halite.health", &args, limit))
    };
    assert!(matches!(
        ask("worker-1", 1),
        Err(Unanswered::NotConnected(_))
    ));
    life.connect(&ScriptedMinion::new("worker-1"));
    assert_eq!(ask("worker-1", 60_000).unwrap(), json!({"a": 1}));

    // A minion that receives but sends nothing until the deadline has passed.
    let silent = minion("bootstrap-1");
    let here = std::net::Ipv4Addr::LOCALHOST.into();
    let (_connection, mut messages) = life.app.connections.join(&silent, here);
    assert!(matches!(ask("bootstrap-1", 1), Err(Unanswered::Late(_))));
    let heard = messages.blocking_recv().unwrap().body;
    let Some(ToMinion::Job(job)) = heard else {
        panic!("{heard:?}");
    };
    let answer = v1::JobReturn {
        job: job.job,
        return_json: "{}".to_owned(),
        ..v1::JobReturn::default()
    };
    let message = v1::MinionMessage {
        body: Some(ToMaster::Returned(answer)),
    };
    let late = life.backend.on_message(&silent, message);
    life.runtime.block_on(late).unwrap();
    assert_eq!(life.runtime.block_on(life.store_jobs()), 0);
    life.kill();
}

#[test]
fn a_second_member_is_declared_with_a_warning() {
    let site = sound_site();
    let life = site.live();
    let request = v1::AddNodeRequest {
        nodes: vec![v1::NewNode {
            name: "cp-2".to_owned(),
            address: "10.10.0.12".to_owned(),
            ..v1::NewNode::default()
        }],
        roles: ["control-plane", "etcd"].map(str::to_owned).to_vec(),
        ..v1::AddNodeRequest::default()
    };
    let added = life
        .runtime
        .block_on(life.backend.add_node("root", &request));
    let warnings = added.unwrap();
    let [warning] = warnings.as_slice() else {
        panic!("{warnings:?}");
    };
    assert!(
        warning.contains("2 members of etcd, none may fail"),
        "{warning}"
    );
    let status = status(&life);
    let found = findings(&status);
    let own = found
        .iter()
        .find(|(name, _)| *name == "declaration-warnings");
    assert_eq!(own.unwrap().1["message"], *warning);
    assert_eq!(status["problems"], json!([]), "a warning is not a problem");
    life.kill();
}

impl Life {
    async fn store_jobs(&self) -> usize {
        self.app.store.jobs(10).await.unwrap().len()
    }
}
