use futures_util::StreamExt as _;
use halite_orchestrate::follow;
use halite_proto::v1;
use halite_store::{RunStatus, Step, StepStatus};
use serde_json::{Value, json};

use crate::backend::fixture::{Life, ScriptedMinion, Site, refused_again};

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*':\n    - one\n"),
    (
        "one.sls",
        "one:\n  file.managed:\n    - name: /one\n    - contents: x\n",
    ),
    (
        "two.sls",
        "two:\n  file.managed:\n    - name: /two\n    - contents: x\n",
    ),
    (
        "objects.sls",
        "settings:\n  kubernetes.object:\n    - manifest:\n        apiVersion: v1\n        kind: ConfigMap\n        metadata: {name: settings, namespace: kube-system}\n        data: {a: '1'}\n",
    ),
    (
        "orchestrate/demo.sls",
        "enrolled:\n  halite.wait_for_minion:\n    - id: {{ pillar.node }}\n    - timeout: 300\n\
         host:\n  halite.state:\n    - tgt: {{ pillar.node }}\n    - sls: [one]\n    - require: [{halite: enrolled}]\n\
         network:\n  halite.state:\n    - tgt: master\n    - sls: objects\n    - require: [{halite: host}]\n\
         kubelet:\n  halite.state:\n    - tgt: {{ pillar.node }}\n    - sls: [two]\n    - require: [{halite: network}]\n\
         ready:\n  halite.wait_for_node:\n    - node: {{ pillar.node }}\n    - timeout: 0\n    - require: [{halite: kubelet}]\n",
    ),
];

/// The operator's own orchestration: a step on one host, and one that requires it.
const OWN: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*': []\n"),
    (
        "custom/one.sls",
        "one:\n  file.managed:\n    - name: /one\n    - contents: x\n",
    ),
    (
        "custom/roll.sls",
        "first:\n  halite.state:\n    - tgt: worker-1\n    - sls: [custom.one]\n\
         second:\n  halite.state:\n    - tgt: worker-1\n    - sls: [custom.one]\n    - require: [{halite: first}]\n",
    ),
];

fn request() -> v1::OrchestrateRequest {
    v1::OrchestrateRequest {
        sls: "orchestrate.demo".into(),
        pillar_json: r#"{"node": "worker-1"}"#.into(),
        ..Default::default()
    }
}

fn site() -> Site {
    let site = Site::new(TREE);
    site.api.put(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    site
}

fn orchestrate(life: &Life) -> Vec<v1::Event> {
    let stream = life
        .runtime
        .block_on(life.backend.orchestrate("root", request()))
        .unwrap();
    life.collect(stream)
}

fn statuses(events: &[v1::Event]) -> Vec<(String, String)> {
    let done: Value = serde_json::from_str(&events.last().unwrap().data_json).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    done["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| (text(&step["name"]), text(&step["status"])))
        .collect()
}

#[test]
fn steps_run_in_order_and_are_told_with_the_events_of_their_jobs() {
    let (site, worker) = (site(), ScriptedMinion::new("worker-1"));
    let life = site.live();
    life.connect(&worker);
    let events = orchestrate(&life);
    assert_eq!(
        events.last().unwrap().retcode,
        0,
        "{}",
        events.last().unwrap().data_json
    );
    let names: Vec<String> = statuses(&events).into_iter().map(|(id, _)| id).collect();
    assert_eq!(names, ["enrolled", "host", "network", "kubelet", "ready"]);
    let done: Value = serde_json::from_str(&events.last().unwrap().data_json).unwrap();
    assert_eq!(
        done["steps"][0]["detail"]["fingerprint"], "00:worker-1",
        "an operator compares it with the host's"
    );
    assert!(
        events
            .iter()
            .any(|event| event.tag.starts_with("halite/job/")
                && event.tag.ends_with("/ret/worker-1"))
    );
    assert_eq!(events.iter().filter(|event| event.last).count(), 1);
    assert_eq!(worker.journal.lock().unwrap().applied, ["one", "two"]);
    assert!(site.api.object("ConfigMap", "settings").is_some());

    // After the end of a run, the next request starts a new one.
    assert_eq!(orchestrate(&life).last().unwrap().retcode, 0);
    assert_eq!(worker.journal.lock().unwrap().applied.len(), 4);
}

#[test]
fn a_failure_names_minion_state_and_comment_and_stops_what_requires_it() {
    let (site, worker) = (site(), ScriptedMinion::new("worker-1"));
    let life = site.live();
    worker.journal.lock().unwrap().failing.insert("one".into());
    life.connect(&worker);
    let events = orchestrate(&life);
    assert_eq!(events.last().unwrap().retcode, 1);
    let text = &events.last().unwrap().data_json;
    assert!(
        text.contains("worker-1: one (file.managed, one): it broke"),
        "{text}"
    );
    let after: Vec<String> = statuses(&events)
        .into_iter()
        .skip(2)
        .map(|(_, status)| status)
        .collect();
    assert_eq!(after, ["skipped", "skipped", "skipped"]);
}

#[test]
fn a_failure_of_an_own_orchestration_counts() {
    let (site, worker) = (Site::new(OWN), ScriptedMinion::new("worker-1"));
    let life = site.live();
    worker.journal.lock().unwrap().failing.insert("one".into());
    life.connect(&worker);
    let own = v1::OrchestrateRequest {
        sls: "custom.roll".into(),
        ..Default::default()
    };
    let stream = life
        .runtime
        .block_on(life.backend.orchestrate("root", own))
        .unwrap();
    let events = life.collect(stream);
    assert_eq!(events.last().unwrap().retcode, 1);
    let step = |id: &str, status: &str| (id.to_owned(), status.to_owned());
    assert_eq!(
        statuses(&events),
        [step("first", "failed"), step("second", "skipped")]
    );
}

#[test]
fn a_minion_that_was_killed_in_a_step_gets_a_new_job() {
    let (site, worker) = (site(), ScriptedMinion::new("worker-1"));
    let life = site.live();
    worker.journal.lock().unwrap().interrupt_next = true;
    life.connect(&worker);
    assert_eq!(orchestrate(&life).last().unwrap().retcode, 0);
    assert_eq!(worker.journal.lock().unwrap().applied, ["one", "two"]);
}

#[test]
fn a_node_without_room_is_not_accepted() {
    let (site, worker) = (site(), ScriptedMinion::new("worker-1"));
    site.api.put(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"},
            {"type": "DiskPressure", "status": "True", "reason": "KubeletHasDiskPressure",
             "message": "kubelet has disk pressure"}]}}),
    );
    let life = site.live();
    life.connect(&worker);
    let events = orchestrate(&life);
    assert_eq!(events.last().unwrap().retcode, 1);
    let text = &events.last().unwrap().data_json;
    assert!(
        text.contains("DiskPressure=True") && text.contains("kubelet.config.evictionHard"),
        "{text}"
    );
    assert_eq!(statuses(&events).last().unwrap().1, "failed");
}

#[test]
fn a_host_that_is_down_does_not_hold_up_another() {
    let mut tree = TREE.to_vec();
    let step = "peers:\n  halite.state:\n    - tgt: '*'\n    - sls: [one]\n    - offline: skip\n";
    let strict =
        "peers:\n  halite.state:\n    - tgt: '*'\n    - sls: [one]\n    - offline: maybe\n";
    tree.extend([
        ("orchestrate/peers.sls", step),
        ("orchestrate/strict.sls", strict),
    ]);
    let (site, worker) = (Site::new(&tree), ScriptedMinion::new("worker-1"));
    let life = site.live();
    life.accept("bootstrap-1");
    life.connect(&worker);
    let run = |sls: &str| {
        let request = v1::OrchestrateRequest {
            sls: sls.into(),
            ..Default::default()
        };
        life.collect(
            life.runtime
                .block_on(life.backend.orchestrate("root", request))
                .unwrap(),
        )
    };
    let events = run("orchestrate.peers");
    let done: Value = serde_json::from_str(&events.last().unwrap().data_json).unwrap();
    assert_eq!(events.last().unwrap().retcode, 0, "{done}");
    assert_eq!(
        done["steps"][0]["detail"]["leftOut"],
        json!(["bootstrap-1"])
    );
    let comment = done["steps"][0]["detail"]["comment"].as_str().unwrap();
    assert!(
        comment.contains("worker-1: done") && comment.contains("left out: bootstrap-1"),
        "{comment}"
    );
    assert_eq!(worker.journal.lock().unwrap().applied, ["one"]);

    let events = run("orchestrate.strict");
    assert!(
        events
            .last()
            .unwrap()
            .data_json
            .contains("neither `fail` nor `skip`")
    );
}

#[test]
fn a_repeated_step_takes_the_results_that_exist_whichever_minions_are_connected() {
    let mut tree = TREE.to_vec();
    let step = "peers:\n  halite.state:\n    - tgt: '*'\n    - sls: [one]\n    - offline: skip\n";
    tree.push(("orchestrate/peers.sls", step));
    let site = Site::new(&tree);
    let (first, worker) = (
        ScriptedMinion::new("bootstrap-1"),
        ScriptedMinion::new("worker-1"),
    );
    let life = site.live();
    life.accept("bootstrap-1");
    life.connect(&worker);
    let step = life.runtime.block_on(async {
        let request = v1::OrchestrateRequest {
            sls: "orchestrate.peers".into(),
            ..Default::default()
        };
        let mut events = life.backend.orchestrate("root", request).await.unwrap();
        while events.next().await.is_some() {}
        let run = life.store.runs(1).await.unwrap().remove(0);
        life.store.steps(&run.id).await.unwrap().remove(0)
    });
    // As if the master had been killed after the job, before the end of the step.
    let reopened = Step {
        status: StepStatus::Running,
        ..step.clone()
    };
    life.runtime.block_on(async {
        life.store.put_step(&reopened).await.unwrap();
        let open = life
            .store
            .update_run(&step.run, RunStatus::Running, 0, 1)
            .await;
        open.unwrap();
    });
    life.kill();
    // The other minion has come back: the list of targets differs.
    let life = site.live();
    life.connect(&first);
    life.connect(&worker);
    let bus = life.app.events.subscribe();
    let stream = life.runtime.block_on(async {
        let jobs = std::sync::Arc::clone(life.backend.jobs());
        follow(jobs, step.run.clone(), bus)
    });
    assert_eq!(life.collect(stream).last().unwrap().retcode, 0);
    assert_eq!(first.journal.lock().unwrap().applied, ["one"]);
    assert_eq!(worker.journal.lock().unwrap().applied, ["one"]);
}

#[test]
fn a_run_that_cannot_be_recorded_continues_when_there_is_room() {
    for what in [
        "INSERT ON steps",
        "INSERT ON steps WHEN new.status = 'running' AND new.detail_json LIKE '%jobs%'",
        "UPDATE OF status ON jobs WHEN new.status = 'finished'",
        "UPDATE OF state ON job_rows WHEN new.state = 'sent'",
        "UPDATE OF status ON runs WHEN new.status = 'succeeded'",
    ] {
        let (site, worker) = (site(), ScriptedMinion::new("worker-1"));
        let life = site.live();
        let stream = life.backend.orchestrate("root", request());
        let mut stream = life.runtime.block_on(stream).unwrap();
        // The first step waits for the minion.
        life.accept("worker-1");
        let mut refused = life.runtime.block_on(life.store.refuse(what));
        life.connect(&worker);
        let mut last = None;
        life.runtime.block_on(async {
            let end = async {
                while let Some(event) = stream.next().await {
                    last = Some(event.unwrap());
                }
            };
            tokio::select! {
                () = refused_again(&mut refused) => {}
                () = end => panic!("{what}: it ended before that was refused twice: {last:?}"),
            }
            life.store.refuse_no_more().await;
        });
        last = life.collect(stream).pop().or(last);
        assert_eq!(last.unwrap().retcode, 0, "{what}");
        let applied = worker.journal.lock().unwrap().applied.clone();
        assert_eq!(applied, ["one", "two"], "{what}");
    }
}

#[test]
fn what_is_stored_begins_although_its_event_is_refused() {
    for tag in ["halite/run/%/new", "halite/job/%/new"] {
        let (site, worker) = (site(), ScriptedMinion::new("worker-1"));
        let life = site.live();
        life.connect(&worker);
        let what = format!("INSERT ON events WHEN new.tag LIKE '{tag}'");
        let refused = life.runtime.block_on(life.store.refuse(&what));
        let events = orchestrate(&life);
        let last = events.last().unwrap();
        assert_eq!(last.retcode, 0, "{what}: {}", last.data_json);
        assert!(*refused.borrow() > 0, "{what}: nothing was refused");
        let applied = worker.journal.lock().unwrap().applied.clone();
        assert_eq!(applied, ["one", "two"], "{what}");
    }
}

#[test]
fn a_failed_step_is_not_repeated_while_the_end_of_its_run_cannot_be_recorded() {
    for what in [
        "INSERT ON events WHEN new.tag LIKE 'halite/run/%/done'",
        "UPDATE OF status ON runs WHEN new.status = 'failed'",
    ] {
        let (site, worker) = (site(), ScriptedMinion::new("worker-1"));
        let life = site.live();
        worker.journal.lock().unwrap().failing.insert("one".into());
        life.connect(&worker);
        let stream = life.runtime.block_on(async {
            let mut refused = life.store.refuse(what).await;
            let mut stream = life.backend.orchestrate("root", request()).await.unwrap();
            loop {
                let event = stream.next().await.unwrap().unwrap();
                let data: Value = serde_json::from_str(&event.data_json).unwrap();
                if data["step"]["status"] == "failed" {
                    break;
                }
            }
            refused_again(&mut refused).await;
            life.store.refuse_no_more().await;
            stream
        });
        let last = life.collect(stream).pop().unwrap();
        assert_eq!(last.retcode, 1, "{what}");
        assert!(last.data_json.contains("it broke"), "{}", last.data_json);
        let received = worker.journal.lock().unwrap().received.len();
        assert_eq!(received, 1, "{what}");
    }
}

#[test]
fn a_run_killed_at_any_event_continues_where_it_stopped() {
    for kill_after in 1.. {
        let (site, worker) = (site(), ScriptedMinion::new("worker-1"));
        let life = site.live();
        life.connect(&worker);
        let seen = life.runtime.block_on(async {
            let mut stream = life.backend.orchestrate("root", request()).await.unwrap();
            let mut seen = 0;
            while seen < kill_after && stream.next().await.is_some() {
                seen += 1;
            }
            seen
        });
        life.kill();
        let life = site.live();
        life.connect(&worker);
        let ended = life.runtime.block_on(async {
            // Resumed by itself; a new request joins it, unless it has already ended.
            let runs = life.app.store.runs(10).await.unwrap();
            assert_eq!(runs.len(), 1, "killed after {kill_after}");
            runs[0].id.clone()
        });
        let bus = life.app.events.subscribe();
        let stream = life
            .runtime
            .block_on(async { follow(std::sync::Arc::clone(life.backend.jobs()), ended, bus) });
        let events = life.collect(stream);
        assert_eq!(
            events.last().unwrap().retcode,
            0,
            "killed after {kill_after}: {}",
            events.last().unwrap().data_json
        );
        assert!(
            statuses(&events)
                .iter()
                .all(|(_, status)| status == "succeeded")
        );
        assert_eq!(
            worker.journal.lock().unwrap().applied,
            ["one", "two"],
            "killed after {kill_after}"
        );
        if seen < kill_after {
            return;
        }
    }
}
