//! The preflight of an added host: its minion collects the facts, the master judges them.

use std::net::Ipv4Addr;
use std::sync::Arc;

use halite_core::ca::SITE;
use halite_core::clock::ManualClock;
use halite_core::names::minion;
use halite_preflight::{NodeFacts, PodNetworkTraces, Question, TOOLS, WatchedFileSystem};
use halite_proto::v1;
use halite_proto::v1::master_message::Body as ToMinion;
use halite_proto::v1::minion_message::Body as ToMaster;
use halite_store::Facts;
use serde_json::{Value, json};

use super::fixture::{Life, Site};

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*': []\n"),
    (
        "orchestrate/check.sls",
        "check:\n  halite.preflight:\n    - node: worker-1\n    - ignore: {{ pillar.ignore_preflight | json }}\n\
         changed:\n  test.succeed_with_changes:\n    - require: [{halite: check}]\n",
    ),
];
/// The master's time, in seconds.
const NOW: i64 = 1_800_000_000;
/// The machine-id of the first host.
const FIRST_ID: &str = "0123456789abcdef0123456789abcdef";

/// The facts of a bare host without problems.
fn good() -> NodeFacts {
    let watched = |signal: &str, place: &str| WatchedFileSystem {
        signal: signal.to_owned(),
        place: place.to_owned(),
        size: 40_000,
        free: 20_000,
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    NodeFacts {
        systemd: true,
        os: "debian".to_owned(),
        architecture: "x86_64".to_owned(),
        kernel: "6.1.0".to_owned(),
        free: ["/etc", "/usr", "/var/lib"]
            .map(|place| (place.to_owned(), 10_000))
            .into(),
        watched: vec![
            watched("nodefs", "/var/lib/kubelet"),
            watched("imagefs", "/var/lib/containerd"),
        ],
        container_fs: "ext4".to_owned(),
        file_systems: names(&["overlay"]),
        cgroup_version: 2,
        cgroup_controllers: names(&["cpu", "cpuset", "memory", "pids"]),
        kernel_log: true,
        tools: names(&TOOLS),
        host_name: "worker-1".to_owned(),
        machine_id: "fedcba9876543210fedcba9876543210".to_owned(),
        name_servers: vec!["10.0.0.1".to_owned()],
        now: NOW,
        ..NodeFacts::default()
    }
}

/// Connects a minion that answers with these facts, and records the questions.
fn connect(life: &Life, facts: NodeFacts) -> tokio::sync::mpsc::UnboundedReceiver<Question> {
    life.accept("worker-1");
    let (app, backend) = (Arc::clone(&life.app), Arc::clone(&life.backend));
    let (heard, questions) = tokio::sync::mpsc::unbounded_channel();
    let id = minion("worker-1");
    let (connection, mut messages) = app.connections.join(&id, Ipv4Addr::LOCALHOST.into());
    life.runtime.spawn(async move {
        let _connection = connection;
        while let Some(message) = messages.recv().await {
            let Some(ToMinion::Job(job)) = message.body else {
                continue;
            };
            assert_eq!(job.function, "halite.preflight");
            heard
                .send(serde_json::from_str(&job.args_json).unwrap())
                .unwrap();
            let answer = v1::JobReturn {
                job: job.job,
                return_json: json!(facts).to_string(),
                ..v1::JobReturn::default()
            };
            let body = Some(ToMaster::Returned(answer));
            backend
                .on_message(&id, v1::MinionMessage { body })
                .await
                .unwrap();
        }
    });
    questions
}

/// The return code of the run, and the record of its step.
fn run(life: &Life, ignored: &[&str]) -> (i32, Value) {
    let request = v1::OrchestrateRequest {
        sls: "orchestrate.check".to_owned(),
        pillar_json: json!({"ignore_preflight": ignored}).to_string(),
        ..v1::OrchestrateRequest::default()
    };
    let stream = life
        .runtime
        .block_on(life.backend.orchestrate("root", request));
    let events = life.collect(stream.unwrap());
    let last = events.last().unwrap();
    let summary: Value = serde_json::from_str(&last.data_json).unwrap();
    (last.retcode, summary["steps"][0]["detail"].clone())
}

/// A site whose first host has reported its machine-id.
fn live(site: &Site) -> Life {
    let life = site.live_at(Arc::new(ManualClock::at(NOW * 1000)));
    let facts = Facts {
        minion: minion("bootstrap-1"),
        grains_json: json!({"id": "bootstrap-1", "machine_id": FIRST_ID}).to_string(),
        version: "0.1.0".to_owned(),
        last_seen: 0,
    };
    life.runtime
        .block_on(life.app.store.put_facts(&facts))
        .unwrap();
    life
}

#[test]
fn a_host_without_problems_passes() {
    let site = Site::new(TREE);
    let life = live(&site);
    let mut questions = connect(&life, good());
    let (retcode, detail) = run(&life, &[]);
    assert_eq!(retcode, 0, "{detail:#}");
    assert!(detail["checks"].as_u64().unwrap() > 20, "{detail:#}");
    assert_eq!(detail["warnings"], Value::Null);
    let question = questions.blocking_recv().unwrap();
    // The first host is not connected: its firewall may not know the new host yet.
    assert_eq!((question.etcd, question.peers), (false, Vec::new()));
    life.kill();
}

#[test]
fn all_problems_are_in_one_report_and_stop_the_run() {
    let site = Site::new(TREE);
    let life = live(&site);
    let facts = NodeFacts {
        now: NOW - 600,
        listening: [10250].into(),
        machine_id: FIRST_ID.to_owned(),
        swaps: vec!["/swapfile".to_owned()],
        ..good()
    };
    let _questions = connect(&life, facts);
    let (retcode, detail) = run(&life, &[]);
    assert_eq!(retcode, 1);
    let error = detail["error"].as_str().unwrap();
    for wanted in [
        "worker-1 is not ready to join, and nothing was changed there",
        "ports-kubernetes: something listens on TCP 10250",
        "unique-machine-id: /etc/machine-id is the same as on bootstrap-1",
        "clock-of-master: the clock is 600 s behind the master's",
        "--ignore-preflight",
    ] {
        assert!(error.contains(wanted), "{wanted:?} is not in {error}");
    }
    let warnings = detail["warnings"].to_string();
    assert!(warnings.contains("swap is on"), "{warnings}");

    let all = ["ports-kubernetes", "unique-machine-id", "clock-of-master"];
    let (retcode, detail) = run(&life, &all);
    assert_eq!(retcode, 0, "{detail:#}");
    let warnings = detail["warnings"].to_string();
    assert!(
        warnings.contains("something listens on TCP 10250 (ignored)"),
        "{warnings}"
    );
    life.kill();
}

#[test]
fn traces_of_an_earlier_run_are_not_a_problem() {
    let site = Site::new(TREE);
    let life = live(&site);
    let facts = NodeFacts {
        listening: [10250].into(),
        kubernetes: vec!["/etc/kubernetes/kubelet.conf".to_owned()],
        pod_network: PodNetworkTraces {
            files: vec!["/etc/cni/net.d/10-flannel.conflist".to_owned()],
            interfaces: vec!["cni0".to_owned()],
        },
        ..good()
    };
    let of_another = NodeFacts {
        site_ca: "another CA".to_owned(),
        ..facts.clone()
    };
    let questions = connect(&life, of_another);
    let (retcode, detail) = run(&life, &[]);
    assert_eq!(retcode, 1);
    assert!(
        detail["error"].to_string().contains("other-kubernetes"),
        "{detail}"
    );
    drop(questions);
    let own = life.app.cas.certificate_pem(SITE).unwrap();
    // It has the CA from its enrolment: the existing files are not Halite's.
    let enrolled = NodeFacts {
        site_ca: format!("{own}\n"),
        untouched: true,
        ..facts.clone()
    };
    let questions = connect(&life, enrolled);
    let (retcode, detail) = run(&life, &[]);
    assert_eq!(retcode, 1);
    for wanted in ["other-kubernetes", "other-pod-network", "ports-kubernetes"] {
        assert!(detail["error"].to_string().contains(wanted), "{detail}");
    }
    drop(questions);
    let _questions = connect(
        &life,
        NodeFacts {
            site_ca: format!("{own}\n"),
            ..facts
        },
    );
    let (retcode, detail) = run(&life, &[]);
    assert_eq!(retcode, 0, "{detail:#}");
    life.kill();
}
