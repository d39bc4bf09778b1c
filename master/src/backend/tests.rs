use std::sync::Arc;

use futures_util::StreamExt;
use halite_api::{EventData, JobList};
use halite_core::names::minion;
use halite_core::refusal::RefusalKind;
use halite_proto::ids::JobId;
use halite_proto::v1;
use halite_store::{JobStatus, RowState};
use serde_json::{Value, json};

use super::fixture::{CANARY, JournalEntry, Life, ScriptedMinion, Site};

const TREE: &[(&str, &str)] = &[
    (
        "top.sls",
        "base:\n  'bootstrap-*':\n    - host\n  'worker-*':\n    - host\n    - secret\n  master:\n    - objects\n",
    ),
    (
        "host/init.sls",
        "motd:\n  file.managed:\n    - name: /etc/motd\n    - contents: welcome\n",
    ),
    (
        "secret.sls",
        "key:\n  file.managed:\n    - name: /etc/key\n    - contents: '{{ pillar.halite.secrets.canary }}'\n",
    ),
    (
        "payload.sls",
        "payload:\n  file.managed:\n    - name: /opt/payload\n    - source: bundle://files/payload\ncert:\n  x509.certificate:\n    - name: /etc/pki/x.crt\n    - ca: kubernetes\n    - common_name: x\n    - client_auth: true\noperator:\n  x509.certificate:\n    - name: /etc/pki/operator.crt\n    - ca: halite\n    - common_name: x\n    - client_auth: true\n",
    ),
    (
        "objects.sls",
        "settings:\n  kubernetes.object:\n    - manifest:\n        apiVersion: v1\n        kind: ConfigMap\n        metadata: {name: settings, namespace: kube-system}\n        data: {a: '1'}\n",
    ),
    ("broken.sls", "x:\n  file.mnaged:\n    - name: /x\n"),
];

fn both(life: &Life) -> (ScriptedMinion, ScriptedMinion) {
    let minions = (
        ScriptedMinion::new("bootstrap-1"),
        ScriptedMinion::new("worker-1"),
    );
    life.connect(&minions.0);
    life.connect(&minions.1);
    minions
}

fn tags(events: &[v1::Event]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event.tag.splitn(4, '/').last().unwrap())
        .collect()
}

fn last(events: &[v1::Event]) -> (i32, Value) {
    let event = events.last().unwrap();
    assert!(event.last);
    (
        event.retcode,
        serde_json::from_str(&event.data_json).unwrap(),
    )
}

#[test]
fn a_ping_is_answered_by_its_targets() {
    let site = Site::new(TREE);
    let life = site.live();
    both(&life);
    let events = life.run("test.ping", "*", json!({}), false);
    assert_eq!(tags(&events)[0], "new");
    let (retcode, data) = last(&events);
    assert_eq!(
        (retcode, &data["succeeded"]),
        (0, &json!(["bootstrap-1", "worker-1"]))
    );
    let (_, data) = last(&life.run("test.ping", "worker-*", json!({}), false));
    assert_eq!(data["succeeded"], json!(["worker-1"]));
    // The request is stored before it is sent, and its end with its answer: two writes, none in
    // between.
    life.runtime.block_on(async {
        let jobs = life.store.jobs(9).await.unwrap();
        assert_eq!(jobs.len(), 2);
        assert!(
            jobs.iter()
                .all(|job| job.status == JobStatus::Finished && job.retcode == Some(0)),
            "{jobs:?}"
        );
        assert_eq!(
            life.store
                .row(&jobs[0].job_id, &minion("worker-1"))
                .await
                .unwrap()
                .unwrap()
                .sent,
            None
        );
        assert!(
            life.store
                .events("halite/job/", 0, 9)
                .await
                .unwrap()
                .is_empty()
        );
    });

    let refused = |target: &str, function: &str| {
        let request = v1::RunRequest {
            target: target.into(),
            function: function.into(),
            ..Default::default()
        };
        life.runtime
            .block_on(life.backend.run("root", request))
            .map(|_| ())
            .unwrap_err()
    };
    assert_eq!(refused("", "test.ping").kind, RefusalKind::Invalid);
    assert_eq!(refused("missing", "test.ping").kind, RefusalKind::NotFound);
    assert_eq!(refused("*", "no.such").kind, RefusalKind::Invalid);
}

#[test]
fn a_return_that_finds_no_room_is_not_acknowledged_and_taken_later() {
    let site = Site::new(TREE);
    let life = site.live();
    life.accept("worker-1");
    life.runtime.block_on(async {
        let request = |note: &str| v1::RunRequest {
            target: "worker-1".into(),
            function: "state.apply".into(),
            args_json: json!({"sls": ["host"], "note": note}).to_string(),
            ..v1::RunRequest::default()
        };
        let large = "x".repeat(200_000);
        let _watched = life.backend.run("root", request("")).await.unwrap();
        let job_id = life.store.jobs(1).await.unwrap()[0].job_id.clone();
        let (_connection, mut messages) = life.app.connections.join(&minion("worker-1"), std::net::Ipv4Addr::LOCALHOST.into());
        let text = json!({"text": large}).to_string();
        let answer = v1::JobReturn { job: job_id.to_string(), retcode: 0, return_json: text, error: String::new() };
        let hand_in = async || {
            let body = Some(v1::minion_message::Body::Returned(answer.clone()));
            life.backend.on_message(&minion("worker-1"), v1::MinionMessage { body }).await
        };
        let limit = life.store.limit_pages(None).await;
        let refusal = hand_in().await.unwrap_err();
        assert!(refusal.message.contains("out of space"), "{refusal}");
        assert!(messages.try_recv().is_err(), "not stored, so not acknowledged");
        let refusal = life.backend.run("root", request(&large)).await.map(|_| ()).unwrap_err();
        assert!(refusal.message.contains("Free space"), "{refusal}");
        assert!(life.backend.status().await.is_ok(), "looking still works");

        let asked = messages.try_recv().unwrap().body;
        assert!(matches!(asked, Some(v1::master_message::Body::Job(question)) if question.function == "halite.health"));
        life.store.limit_pages(Some(limit)).await;
        hand_in().await.unwrap();
        let acknowledged = messages.try_recv().unwrap().body;
        assert!(matches!(acknowledged, Some(v1::master_message::Body::Stored(stored)) if job_id == stored.job.as_str()));
        assert_eq!(life.store.row(&job_id, &minion("worker-1")).await.unwrap().unwrap().state, RowState::Returned);
    });
}

#[test]
fn a_highstate_of_everybody_goes_in_a_safe_order_and_no_secret_stays_behind() {
    let site = Site::new(TREE);
    let life = site.live();
    let (_, worker) = both(&life);
    let events = life.run("state.highstate", "", json!({}), false);
    let (retcode, data) = last(&events);
    assert_eq!(retcode, 0, "{data}");
    let returns: Vec<&str> = tags(&events)
        .into_iter()
        .filter_map(|tag| tag.strip_prefix("ret/"))
        .collect();
    assert_eq!(returns, ["bootstrap-1", "master", "worker-1"]);
    assert!(site.api.object("ConfigMap", "settings").is_some());

    let sent = worker.journal.lock().unwrap().received[0].low_json.clone();
    assert!(sent.contains(CANARY), "the host needs the real secret");
    assert!(!sent.contains("halite-secret"));
    let told = events
        .iter()
        .map(|event| event.data_json.as_str())
        .collect::<String>();
    assert!(!told.contains(CANARY), "events");
    assert!(!life.everything_stored(&site).contains(CANARY), "the store");
    for what in ["low", "files", "pillar"] {
        let request = v1::ShowRequest {
            what: what.into(),
            target: "worker-1".into(),
            sls: vec![],
            pillar_json: String::new(),
        };
        let shown = life
            .runtime
            .block_on(life.backend.show(request))
            .unwrap()
            .json;
        assert!(
            !shown.contains(CANARY) && shown.contains("halite-secret::secrets.canary::"),
            "{what}"
        );
    }
    let (retcode, data) = last(&life.run("state.highstate", "*", json!({}), true));
    assert_eq!(retcode, 0, "{data}");
}

#[test]
fn a_job_that_does_not_compile_is_not_sent() {
    let site = Site::new(TREE);
    let life = site.live();
    let (_, worker) = both(&life);
    let request = v1::RunRequest {
        target: "*".into(),
        function: "state.apply".into(),
        args_json: json!({"sls": ["host", "broken"]}).to_string(),
        ..Default::default()
    };
    let refusal = life
        .runtime
        .block_on(life.backend.run("root", request))
        .map(|_| ())
        .unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Invalid);
    assert!(
        refusal.message.contains("broken.sls:2") && refusal.message.contains("nothing was sent"),
        "{refusal}"
    );
    assert!(worker.journal.lock().unwrap().received.is_empty());
    assert_eq!(
        life.runtime.block_on(life.backend.list_jobs(10)).unwrap(),
        JobList::default()
    );
}

#[test]
fn files_and_signatures_are_for_the_open_job_that_names_them() {
    let site = Site::new(TREE);
    let life = site.live();
    // No minion returns: the job stays open.
    let id = &minion("worker-1");
    let idle = ScriptedMinion::new(id);
    life.connect(&idle);
    let (app, backend) = (Arc::clone(&life.app), Arc::clone(&life.backend));
    life.runtime.block_on(async {
        let (_connection, mut messages) = app
            .connections
            .join(id, std::net::Ipv4Addr::LOCALHOST.into());
        backend
            .on_connected(id, &v1::MinionHello::default())
            .await
            .unwrap();
        let request = v1::RunRequest {
            target: id.to_string(),
            function: "state.apply".into(),
            args_json: json!({"sls": "payload"}).to_string(),
            ..Default::default()
        };
        let _stream = backend.run("root", request).await.unwrap();
        let Some(v1::master_message::Body::Job(job)) = messages.recv().await.unwrap().body else {
            panic!("no job")
        };
        let job_id: JobId = job.job.parse().unwrap();
        let sha256 = halite_proto::pki::sha256_hex(b"a file of the bundle\n");
        let pieces: Vec<_> = backend
            .fetch(id, &job_id, &sha256)
            .await
            .unwrap()
            .collect()
            .await;
        assert_eq!(
            pieces
                .into_iter()
                .flat_map(Result::unwrap)
                .collect::<Vec<u8>>(),
            b"a file of the bundle\n"
        );
        let tag = "x509_|-cert_|-/etc/pki/x.crt_|-certificate";
        assert_eq!(
            backend.sign_allowed(id, &job_id, tag).await.unwrap().args["common_name"],
            "x"
        );

        let denied = |result: Result<(), halite_core::refusal::Refusal>| {
            assert_eq!(result.unwrap_err().kind, RefusalKind::Denied)
        };
        // Root on a host without a control plane does not become an operator, whatever its states
        // request.
        let operator = "x509_|-operator_|-/etc/pki/operator.crt_|-certificate";
        denied(
            backend
                .sign_allowed(id, &job_id, operator)
                .await
                .map(|_| ()),
        );
        let other = "0".repeat(64);
        denied(backend.fetch(id, &job_id, &other).await.map(|_| ()));
        denied(
            backend
                .fetch(&minion("bootstrap-1"), &job_id, &sha256)
                .await
                .map(|_| ()),
        );
        denied(
            backend
                .sign_allowed(&minion("bootstrap-1"), &job_id, tag)
                .await
                .map(|_| ()),
        );
        denied(
            backend
                .sign_allowed(id, &job_id, "file_|-payload_|-/opt/payload_|-managed")
                .await
                .map(|_| ()),
        );
        let answer = v1::JobReturn {
            job: job.job.clone(),
            return_json: "{}".into(),
            ..Default::default()
        };
        let message = v1::MinionMessage {
            body: Some(v1::minion_message::Body::Returned(answer)),
        };
        backend.on_message(id, message).await.unwrap();
        assert!(matches!(
            messages.recv().await.unwrap().body,
            Some(v1::master_message::Body::Stored(_))
        ));
        denied(backend.fetch(id, &job_id, &sha256).await.map(|_| ()));
        denied(backend.sign_allowed(id, &job_id, tag).await.map(|_| ()));
    });
}

#[test]
fn a_repeated_request_attaches_to_the_same_job() {
    let site = Site::new(TREE);
    let life = site.live();
    let (_, worker) = both(&life);
    let request = v1::RunRequest {
        target: "worker-1".into(),
        function: "state.apply".into(),
        args_json: json!({"sls": ["host"]}).to_string(),
        request_id: "r1".into(),
        ..Default::default()
    };
    let first = life
        .runtime
        .block_on(life.backend.run("root", request.clone()))
        .unwrap();
    let first = life.collect(first);
    let again = life
        .runtime
        .block_on(life.backend.run("root", request))
        .unwrap();
    let again = life.collect(again);
    assert_eq!(last(&first), last(&again));
    assert_eq!(worker.journal.lock().unwrap().received.len(), 1);
}

#[test]
fn a_job_continues_after_the_master_was_killed() {
    let site = Site::new(TREE);
    let life = site.live();
    let worker = ScriptedMinion::new("worker-1");
    life.connect(&worker);
    // Connected to the first master by a stream that no minion reads: sent, and never started.
    let job_id = life.runtime.block_on(async {
        let (_connection, _messages) = life
            .app
            .connections
            .join(&minion("worker-1"), std::net::Ipv4Addr::LOCALHOST.into());
        life.backend
            .on_connected(&minion("worker-1"), &v1::MinionHello::default())
            .await
            .unwrap();
        let request = v1::RunRequest {
            target: "worker-1".into(),
            function: "state.apply".into(),
            args_json: json!({"sls": ["host"]}).to_string(),
            ..Default::default()
        };
        let mut stream = life.backend.run("root", request).await.unwrap();
        let new = stream.next().await.unwrap().unwrap();
        match EventData::read(&new.tag, &new.data_json) {
            EventData::JobCreated(created) => created.job,
            other => panic!("{other:?}"),
        }
    });
    life.kill();
    let life = site.live();
    let bus = life.app.events.subscribe();
    life.connect(&worker);
    let stream = life
        .runtime
        .block_on(async { life.backend.jobs().follow(job_id.clone(), bus) });
    assert_eq!(last(&life.collect(stream)).0, 0);
    let journal = worker.journal.lock().unwrap();
    assert_eq!(
        (journal.received.len(), journal.applied.as_slice()),
        (1, ["motd".to_owned()].as_slice())
    );
    assert!(matches!(
        journal.entries[job_id.as_str()],
        JournalEntry::Returned | JournalEntry::Done
    ));
}

#[test]
fn a_stop_waits_for_the_states_of_the_master_itself_and_begins_no_others() {
    use std::sync::atomic::Ordering::SeqCst;
    let site = Site::new(TREE);
    let life = site.live();
    let request = || v1::RunRequest {
        target: "master".into(),
        function: "state.highstate".into(),
        ..v1::RunRequest::default()
    };
    // Its state waits for the API, which comes back while the stop waits for the state.
    let silent_for = &site.api.silent_for;
    silent_for.store(u32::MAX, SeqCst);
    let comes_back = async { silent_for.store(0, SeqCst) };
    life.runtime.block_on(async {
        let _events = life.backend.run("root", request()).await.unwrap();
        let (store, own) = (&life.app.store, [minion("master")]);
        while store.open_parts(&own).await.unwrap()[0].state != RowState::Started {
            tokio::task::yield_now().await;
        }
        let job = life.backend.list_jobs(1).await.unwrap().jobs.remove(0);
        assert_eq!(job.status.as_str(), "running");
        // The stop is polled first, and waits.
        tokio::join!(biased; life.backend.finish(), comes_back);
        let job = life.backend.list_jobs(1).await.unwrap().jobs.remove(0);
        assert_eq!((job.status.as_str(), job.retcode), ("finished", Some(0)));
        let _events = life.backend.run("root", request()).await.unwrap();
        let parts = store.open_parts(&own).await.unwrap();
        assert_eq!(parts[0].state, RowState::Queued, "left for the next life");
    });
}

#[test]
fn a_node_is_declared_once_and_its_addresses_are_recorded_when_it_comes() {
    let site = Site::new(TREE);
    let life = site.live();
    both(&life);
    let new = |name: &str, address: &str| v1::NewNode {
        name: name.into(),
        address: address.into(),
        ..v1::NewNode::default()
    };
    let request = v1::AddNodeRequest {
        nodes: vec![new("worker-2", "10.10.1.13")],
        roles: vec!["worker".into()],
        document_json: String::new(),
    };
    let add = |request: &v1::AddNodeRequest| {
        life.runtime
            .block_on(life.backend.add_node("root", request))
    };
    add(&request).unwrap();
    add(&request).unwrap();
    let other = v1::AddNodeRequest {
        nodes: vec![new("worker-2", "10.10.1.14")],
        ..request.clone()
    };
    assert_eq!(add(&other).unwrap_err().kind, RefusalKind::Conflict);
    for (name, address, wanted) in [
        ("worker-3", "192.168.0.1", "192.168.0.1"),
        ("worker-3", "10.10.1.13", "worker-2"),
    ] {
        let bad = v1::AddNodeRequest {
            nodes: vec![new("worker-4", "10.10.1.14"), new(name, address)],
            ..request.clone()
        };
        let refusal = add(&bad).unwrap_err();
        assert!(refusal.message.contains(wanted), "{refusal}");
        let written = site.path().join("etc/nodes/worker-4.yaml").exists();
        assert!(!written, "one bad node keeps all of them out");
    }
    let several = v1::AddNodeRequest {
        nodes: vec![new("worker-2", "10.10.1.13"), new("worker-5", "10.10.1.15")],
        ..request.clone()
    };
    add(&several).unwrap();
    assert!(site.path().join("etc/nodes/worker-5.yaml").exists());
    std::fs::remove_file(site.path().join("etc/nodes/worker-5.yaml")).unwrap();
    let text = std::fs::read_to_string(site.path().join("etc/nodes/worker-1.yaml")).unwrap();
    assert!(
        text.contains("resolved:\n  controlPlane: 10.10.1.12"),
        "{text}"
    );

    let status = life.runtime.block_on(life.backend.status()).unwrap();
    let nodes = &status.nodes;
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["bootstrap-1", "worker-1", "worker-2"]);
    assert!(nodes[0].connected);
    assert_eq!(nodes[2].key, None);
}
