//! The step that starts a pod on a node and tests its network.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::fixture::{orchestrate, request};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*': []\n"),
    (
        "orchestrate/reach.sls",
        "reach:\n  halite.pod_network:\n    - node: worker-1\n    - dns: {{ pillar.dns }}\n    - timeout: 0\n",
    ),
    (
        "orchestrate/maintained.sls",
        "maintained:\n  halite.pod_network:\n    - node: worker-1\n    - maintenance: True\n    - offline: skip\n    - timeout: 0\n",
    ),
];
const POD: &str = "halite-pod-network-worker-1";
const REMOVED: &str = "delete Pod kube-system/halite-pod-network-worker-1";

/// A minion with this answer, and the questions that it received.
fn answering(answer: Value) -> (ScriptedMinion, Arc<Mutex<Vec<Value>>>) {
    let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
    let questions = Arc::clone(&asked);
    let minion = ScriptedMinion::new("worker-1").on(move |job| {
        let is_asked = job.function == "halite.pod_network";
        is_asked.then(|| {
            let question = serde_json::from_str(&job.args_json).unwrap();
            questions.lock().unwrap().push(question);
            answer.clone()
        })
    });
    (minion, asked)
}

fn reach(life: &Life, dns: bool) -> (i32, String) {
    let pillar = json!({"dns": if dns { "True" } else { "False" }});
    orchestrate(life, request("orchestrate.reach", &pillar))
}

/// The ready replica of the cluster's DNS on the first host.
fn replica() -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "kube-dns-x", "namespace": "kube-system", "labels": {"kubernetes.io/service-name": "kube-dns"}},
        "endpoints": [{"nodeName": "bootstrap-1", "addresses": ["10.233.5.2"], "conditions": {"ready": true}}]})
}

#[test]
fn a_pod_of_its_own_is_asked_from_and_is_gone_afterwards() {
    let site = Site::new(TREE);
    site.api.put(replica());
    // A dead master has left one.
    site.api.put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD, "namespace": "kube-system"},
        "status": {"phase": "Failed", "reason": "DeadlineExceeded"}}));
    let life = site.live();
    let (worker, asked) = answering(json!({"source": "10.233.0.9"}));
    life.connect(&worker);
    let (retcode, data) = reach(&life, true);
    assert_eq!(retcode, 0, "{data}");
    assert!(
        data.contains("pods of worker-1 reach their required targets"),
        "{data}"
    );
    let questions = asked.lock().unwrap();
    assert_eq!(questions[0]["targets"], json!([]), "before there is a pod");
    let question = &questions[1];
    assert_eq!(question["sources"], json!(["10.233.0.9"]));
    let targets = question["targets"].as_array().unwrap();
    let addresses: Vec<&str> = targets
        .iter()
        .filter_map(|one| one["address"].as_str())
        .collect();
    assert_eq!(addresses, ["10.233.5.2", "10.96.0.1", "10.96.0.10"]);
    assert!(site.api.object("Pod", POD).is_none());
    let applied = format!("apply Pod kube-system/{POD}");
    assert_eq!(
        *site.api.writes.lock().unwrap(),
        [REMOVED, &applied, REMOVED]
    );
    life.kill();
}

/// A damage of a Ready node, with the answer of its minion.
struct Damage {
    name: &'static str,
    answer: Value,
    /// Objects of the API that differ.
    objects: Vec<Value>,
    message: &'static str,
    remedy: &'static str,
}

impl Damage {
    /// The minion does not reach the target with this number.
    fn missed(
        name: &'static str,
        target: usize,
        interface: &str,
        message: &'static str,
        remedy: &'static str,
    ) -> Self {
        let no_route = interface.is_empty();
        Self {
            name,
            answer: json!({"source": "10.233.0.9", "faults": [
                {"target": target, "reason": "no answer within 2 s", "no_route": no_route, "interface": interface},
            ]}),
            objects: Vec::new(),
            message,
            remedy,
        }
    }

    /// The minion finds this below the network of a new pod.
    fn setup(
        name: &'static str,
        setup: &Value,
        message: &'static str,
        remedy: &'static str,
    ) -> Self {
        Self {
            name,
            answer: json!({"setup": setup}),
            objects: Vec::new(),
            message,
            remedy,
        }
    }
}

/// The effect of a rewritten `/etc/hosts`: kube-proxy finds no API, and exits.
fn crashed_proxy() -> Vec<Value> {
    let crashed = json!({"containerStatuses": [{"name": "kube-proxy", "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1}}}]});
    vec![
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"namespace": "kube-system", "name": "kube-proxy"},
            "spec": {"template": {"spec": {"priorityClassName": "system-node-critical"}}},
            "status": {"desiredNumberScheduled": 2, "numberReady": 1}}),
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "kube-system", "name": "kube-proxy-x", "ownerReferences": [{"kind": "DaemonSet", "name": "kube-proxy"}]},
            "spec": {"nodeName": "worker-1"}, "status": crashed}),
    ]
}

/// Each damage of the trials that leaves the node Ready.
fn damages() -> Vec<Damage> {
    let flannel = json!({"path": "/etc/cni/net.d/10-flannel.conflist", "name": "cbr0", "plugins": ["flannel"]});
    let old =
        json!({"path": "/etc/cni/net.d/05-old.conflist", "name": "old", "plugins": ["bridge"]});
    vec![
        Damage::setup(
            "a file of another network",
            &json!({"forwards": true, "configuration": old}),
            "new pods on worker-1 get the network \"old\" of /etc/cni/net.d/05-old.conflist",
            "`ctl node reboot worker-1`",
        ),
        Damage::setup(
            "cni0 of another network",
            &json!({"forwards": true, "configuration": flannel, "gateway": "10.233.1.1", "bridge": ["10.244.0.1"]}),
            "cni0 on worker-1 has the address 10.244.0.1 instead of 10.233.1.1",
            "`ctl cmd worker-1 -- 'ip link delete cni0'`",
        ),
        Damage::setup(
            "no file of flannel",
            &json!({"forwards": true, "configuration": flannel}),
            "/run/flannel/subnet.env is missing on worker-1",
            "`ctl highstate worker-1` restarts flannel",
        ),
        Damage::setup(
            "no forwarding",
            &json!({"forwards": false, "configuration": flannel}),
            "net.ipv4.ip_forward is 0",
            "`ctl highstate worker-1` sets it",
        ),
        Damage::missed(
            "a lost route of flannel, with a default route",
            0,
            "eth0",
            "the route by flannel.1 is missing on worker-1 (waited 0 s)",
            "`ctl highstate worker-1` restarts flannel",
        ),
        Damage::missed(
            "all routes flushed",
            0,
            "",
            "the route by flannel.1 is missing on worker-1 (waited 0 s)",
            "`ctl highstate worker-1` restarts flannel",
        ),
        Damage::missed(
            "a blocked VXLAN port",
            0,
            "flannel.1",
            "the VXLAN packets or their answers are lost",
            "allow UDP port 8472 between worker-1 and bootstrap-1",
        ),
        // Also without a default route, if flannel or kube-proxy needed one for its pods.
        Damage::missed(
            "no rules of Services",
            1,
            "",
            "pods of worker-1 do not reach the Service of the API at 10.96.0.1:443",
            "delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=worker-1",
        ),
        Damage::missed(
            "no answer of the DNS",
            2,
            "",
            "the cluster's DNS at 10.96.0.10:53 does not answer pods of worker-1",
            "rollout restart deployment coredns",
        ),
        Damage {
            name: "a rewritten /etc/hosts",
            answer: json!({"source": "10.233.0.9"}),
            objects: crashed_proxy(),
            message: "kube-proxy-x does not run on worker-1: its container kube-proxy waits: CrashLoopBackOff",
            remedy: "`ctl highstate worker-1` repairs what it needs on the host",
        },
    ]
}

#[test]
fn a_damage_fails_the_step_with_its_remedy_and_no_pod_stays() {
    for damage in damages() {
        let site = Site::new(TREE);
        site.api.put(replica());
        for object in damage.objects {
            site.api.put(object);
        }
        let life = site.live();
        life.connect(&answering(damage.answer).0);
        let (retcode, data) = reach(&life, false);
        let name = damage.name;
        assert_eq!(retcode, 1, "{name}: {data}");
        let said = data.replace("\\\\\"", "\"").replace("\\\"", "\"");
        assert!(said.contains(damage.message), "{name}: {said}");
        assert!(said.contains(damage.remedy), "{name}: {said}");
        assert!(site.api.object("Pod", POD).is_none(), "{name}");
        life.kill();
    }
}

#[test]
fn the_first_host_waits_for_the_dns_and_a_further_one_says_that_it_was_not_tried() {
    let site = Site::new(TREE);
    let life = site.live();
    life.connect(&answering(json!({})).0);
    let (retcode, data) = reach(&life, true);
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("no replica of the cluster's DNS is ready"),
        "{data}"
    );
    let (retcode, data) = reach(&life, false);
    assert_eq!(retcode, 0, "{data}");
    assert!(data.contains("not tried: the cluster's DNS"), "{data}");
    life.kill();
}

#[test]
fn a_minion_that_cannot_be_asked_fails_the_step_and_one_of_an_earlier_version_does_not() {
    let site = Site::new(TREE);
    let life = site.live();
    let (retcode, data) = reach(&life, false);
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("`systemctl status halite-minion` there shows more"),
        "{data}"
    );
    assert!(site.api.object("Pod", POD).is_none());
    life.connect(&ScriptedMinion {
        unknown: Some("halite.pod_network"),
        ..ScriptedMinion::new("worker-1")
    });
    let (retcode, data) = reach(&life, false);
    assert_eq!(retcode, 0, "{data}");
    assert!(
        data.contains("not tried: the targets of its pods: this minion has no function"),
        "{data}"
    );
    life.kill();
}

#[test]
fn a_test_run_starts_no_pod() {
    let site = Site::new(TREE);
    let life = site.live();
    let request = halite_proto::v1::OrchestrateRequest {
        test: true,
        ..request("orchestrate.reach", &json!({"dns": "False"}))
    };
    let (retcode, data) = orchestrate(&life, request);
    assert_eq!(retcode, 0, "{data}");
    assert!(
        data.contains("a real run starts a pod on worker-1"),
        "{data}"
    );
    assert!(site.api.writes.lock().unwrap().is_empty());
    life.kill();
}

/// After an interrupted upgrade only the nodes are tested that it has left cordoned.
#[test]
fn in_maintenance_only_a_node_that_a_drain_has_cordoned_is_tested() {
    let node = |cordoned: bool, annotations: Value| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1", "annotations": annotations},
            "spec": {"unschedulable": cordoned}})
    };
    let marked = json!({"halite/maintenance": ""});
    for (cordoned, annotations, is_tested) in [
        (false, json!({}), false),
        (true, json!({}), false),
        (true, marked, true),
    ] {
        let site = Site::new(TREE);
        site.api.put(node(cordoned, annotations));
        let life = site.live();
        let start = || orchestrate(&life, request("orchestrate.maintained", &json!({})));
        let (retcode, data) = start();
        assert_eq!(retcode, 0, "{data}");
        assert!(data.contains("left out"), "{data}");
        let (worker, asked) = answering(json!({"source": "10.233.0.9"}));
        life.connect(&worker);
        let (retcode, data) = start();
        assert_eq!(retcode, 0, "{data}");
        assert_eq!(!asked.lock().unwrap().is_empty(), is_tested, "{data}");
        life.kill();
    }
}
