//! Stalls of steps, injected: each is reported after ten seconds, with a text and a verb of its own.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use halite_etcd::fake::FakeCluster;
use halite_proto::v1;
use serde_json::{Value, json};

use crate::backend::Backend as _;
use crate::backend::fixture::{Life, Site};
use crate::names::minion;

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*': []\n"),
    (
        "one.sls",
        "one:\n  file.managed:\n    - name: /one\n    - contents: x\n",
    ),
    (
        "orchestrate/host.sls",
        "step:\n  halite.state:\n    - tgt: worker-1\n    - sls: [one]\n    - timeout: 600\n",
    ),
    (
        "orchestrate/disk.sls",
        "step:\n  halite.wait_for_node:\n    - node: full-1\n    - timeout: 600\n",
    ),
    (
        "orchestrate/dns.sls",
        "step:\n  halite.rebalance:\n    - namespace: kube-system\n    - deployment: coredns\n    - timeout: 600\n",
    ),
    (
        "orchestrate/quorum.sls",
        "step:\n  halite.etcd_quorum_allows:\n    - node: bootstrap-1\n    - timeout: 600\n",
    ),
    (
        "orchestrate/enrol.sls",
        "step:\n  halite.wait_for_minion:\n    - id: worker-2\n    - timeout: 600\n",
    ),
];

/// A node that is Ready, with a further condition that is true.
fn node(name: &str, further: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"},
            {"type": further, "status": "True", "reason": "KubeletHasDiskPressure", "message": "kubelet has disk pressure"}]}})
}

/// One member of three is away; a disk is full; both pods of the DNS are on one node, and a pod that is
/// evicted has no successor.
fn site() -> Site {
    let mut site = Site::new(TREE);
    let cluster = FakeCluster::new(&["bootstrap-1", "cp-2", "cp-3"]);
    cluster.stop("cp-2");
    site.etcd = Some((Arc::new(cluster), Duration::from_secs(600)));
    site.api.put(node("full-1", "DiskPressure"));
    site.api.put(node("bootstrap-1", "Ready"));
    site.api.put(node("worker-1", "Ready"));
    site.api
        .put(json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "coredns", "namespace": "kube-system"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"k8s-app": "kube-dns"}}}}));
    for name in ["dns-a", "dns-b"] {
        site.api.put(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
            "spec": {"nodeName": "bootstrap-1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    }
    site
}

/// The first report of the step of an orchestration that waits.
async fn report(life: &Life, sls: &str) -> Value {
    let request = v1::OrchestrateRequest {
        sls: format!("orchestrate.{sls}"),
        ..v1::OrchestrateRequest::default()
    };
    let mut events = life.backend.orchestrate("root", request).await.unwrap();
    loop {
        let event = events.next().await.expect("it waits").unwrap();
        assert!(!event.last, "{sls} ended: {}", event.data_json);
        if event.tag.ends_with("/wait") {
            return serde_json::from_str(&event.data_json).unwrap();
        }
    }
}

#[test]
fn each_stall_is_reported_after_ten_seconds_with_its_text_and_a_verb() {
    let site = site();
    let life = site.live();
    life.accept("worker-1");
    life.accept("worker-2");
    let worker = minion("worker-1");
    let (connection, mut messages) = life
        .app
        .connections
        .join(&worker, IpAddr::from([10, 10, 1, 12]));
    let kinds = ["host", "disk", "dns", "quorum", "enrol"];
    let reports = life.runtime.block_on(async {
        let hello = v1::MinionHello {
            protocol: 1,
            grains_json: json!({"id": "worker-1", "os": "Debian", "ip4_interfaces": {"host0": ["10.10.1.12"]}})
                .to_string(),
            ..v1::MinionHello::default()
        };
        life.backend.on_connected(&worker, &hello).await.unwrap();
        // The worker gets its job, and is never heard of again.
        let dies = async {
            loop {
                let message = messages.recv().await.unwrap();
                if matches!(message.body, Some(v1::master_message::Body::Job(_))) {
                    break;
                }
            }
            drop(connection);
        };
        let waits = futures_util::future::join_all(kinds.map(|sls| report(&life, sls)));
        let ((), waits) = tokio::join!(dies, waits);
        waits
    });
    let told: [(&str, &str, &[&str]); 5] = [
        (
            "worker-1 has returned",
            "worker-1 is not connected, and may still work on the job",
            &[
                "ctl job cancel",
                "ctl node replace",
                "ctl node remove --dead",
            ],
        ),
        (
            "full-1 is Ready",
            "DiskPressure=True (KubeletHasDiskPressure: kubelet has disk pressure); free some space on that host",
            &["kubectl describe node full-1"],
        ),
        (
            "the pods of deployment/coredns are ready",
            "1 of its pods are not ready",
            &["kubectl -n kube-system get pods -o wide"],
        ),
        (
            "etcd can miss bootstrap-1",
            "cp-2",
            &["ctl etcd status", "switch on the hosts"],
        ),
        (
            "worker-2 is connected",
            "accepted but not connected: check that halite-minion runs there",
            &[],
        ),
    ];
    for (report, (until, because, verbs)) in reports.iter().zip(told) {
        assert_eq!(report["until"], until, "{report}");
        let reason = report["because"].as_str().unwrap();
        assert!(reason.contains(because), "{report}");
        let remedy = report["remedy"].as_str().unwrap();
        for verb in verbs {
            assert!(remedy.contains(verb), "{report}");
        }
        let seconds = report["seconds"].as_u64().unwrap();
        assert!((10..20).contains(&seconds), "{report}");
    }
    life.kill();
}
