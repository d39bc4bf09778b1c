//! The master's documents and events, as `ctl` receives them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use halite_api::{Event, HandOver};
use halite_core::clock::ManualClock;
use halite_core::event_bus::message;
use halite_core::names::minion;
use halite_core::roster::FollowState;
use halite_etcd::fake::FakeCluster;
use halite_fleet::keys;
use halite_fleet::keys::{KeyOrder, NewOperator, TokenRequest};
use halite_proto::pki::PrivateKey;
use halite_proto::v1;
use halite_proto::v1::HandOverRequest;
use halite_store::{Audit, KeyState};
use serde_json::json;

use super::contract::{check, check_answer, check_document, check_event};
use super::fixture::{Life, ScriptedMinion, Site};
use crate::operator::{audit, kubeconfig};
use crate::orchestrate_tests::upgrade_fixture;

pub(super) const NOW: i64 = 1_800_000_000_000;

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*-1':\n    - host\n"),
    (
        "host.sls",
        "motd:\n  file.managed:\n    - name: /etc/motd\n    - contents: welcome\n    - mode: '0644'\n",
    ),
    (
        "custom/enrolled.sls",
        "enrolled:\n  halite.wait_for_minion:\n    - id: worker-1\n    - timeout: 600\n",
    ),
    (
        "custom/roll.sls",
        "first:\n  halite.state:\n    - tgt: worker-1\n    - sls: [host]\n",
    ),
    (
        "custom/two.sls",
        "first:\n  halite.state:\n    - tgt: worker-1\n    - sls: [host]\n\
         second:\n  halite.state:\n    - tgt: worker-1\n    - sls: [host]\n    - require: [{halite: first}]\n",
    ),
];

pub(super) fn site() -> Site {
    let mut site = Site::new(TREE);
    let members = Arc::new(FakeCluster::new(&["bootstrap-1"]));
    site.etcd = Some((members, Duration::from_secs(1)));
    site.servers = vec!["bootstrap-1"];
    site.api.put(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "bootstrap-1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.36.3"}},
    }));
    site
}

pub(super) fn life(site: &Site) -> Life {
    site.live_at(Arc::new(ManualClock::at(NOW)))
}

fn show(life: &Life, what: &str, target: &str) -> v1::Document {
    let request = v1::ShowRequest {
        what: what.to_owned(),
        target: target.to_owned(),
        sls: Vec::new(),
        pillar_json: String::new(),
    };
    life.runtime.block_on(life.backend.show(request)).unwrap()
}

/// The event of this kind.
fn of_kind<'a>(events: &'a [v1::Event], kind: &str) -> &'a v1::Event {
    let mut events = events.iter();
    let found = events.find(|event| event.tag.split('/').nth(3) == Some(kind));
    found.unwrap_or_else(|| panic!("there is no event of the kind {kind}"))
}

#[test]
fn jobs_and_their_events() {
    let site = site();
    let life = life(&site);
    let worker = ScriptedMinion::new("worker-1");
    life.connect(&worker);
    let events = life.run("state.highstate", "worker-1", json!({}), false);
    for (name, kind) in [
        ("event-job-new", "new"),
        ("event-job-start", "start"),
        ("event-job-ret", "ret"),
        ("event-job-done", "done"),
    ] {
        check_event(name, of_kind(&events, kind));
    }
    let jobs = life.runtime.block_on(life.backend.list_jobs(10)).unwrap();
    check_document("jobs", &jobs);
    let job = jobs.jobs[0].job.clone();
    let job = life.runtime.block_on(life.backend.show_job(&job)).unwrap();
    check_document("job", &job);
    check_document(
        "status",
        &life.runtime.block_on(life.backend.status()).unwrap(),
    );
    life.kill();
}

#[test]
fn a_run_that_waits_and_is_cancelled() {
    let site = site();
    let clock = Arc::new(ManualClock::at(NOW));
    let life = site.live_at(clock.clone());
    life.accept("worker-1");
    let request = v1::OrchestrateRequest {
        sls: "custom.enrolled".to_owned(),
        ..v1::OrchestrateRequest::default()
    };
    life.runtime.block_on(async {
        let mut events = life.backend.orchestrate("root", request).await.unwrap();
        let run = life.store.runs(1).await.unwrap()[0].id.clone();
        let cancelled = life.backend.cancel_run(&run, "alice").await.unwrap();
        check_document("run-cancellation", &cancelled);
        loop {
            let event = events.next().await.unwrap().unwrap();
            if event.tag.ends_with("/cancel") {
                break check_event("event-run-cancel", &event);
            }
        }
    });
    life.kill();
}

#[test]
fn a_job_that_is_cancelled() {
    let site = site();
    let life = life(&site);
    life.accept("worker-1");
    let request = v1::RunRequest {
        target: "worker-1".to_owned(),
        function: "state.highstate".to_owned(),
        ..v1::RunRequest::default()
    };
    let cancelled = life.runtime.block_on(async {
        let _events = life.backend.run("root", request).await.unwrap();
        let job = life.store.jobs(1).await.unwrap()[0].job_id.clone();
        life.backend.cancel_job(&job, "alice", false).await.unwrap()
    });
    check_document("job-cancellation", &cancelled);
    life.kill();
}

#[test]
fn runs_and_their_events() {
    let site = site();
    let life = life(&site);
    let worker = ScriptedMinion::new("worker-1");
    life.connect(&worker);
    let request = || v1::OrchestrateRequest {
        sls: "custom.roll".to_owned(),
        ..v1::OrchestrateRequest::default()
    };
    let stream = life.backend.orchestrate("root", request());
    let stream = life.runtime.block_on(stream).unwrap();
    let events = life.collect(stream);
    let of_run: Vec<v1::Event> = events
        .into_iter()
        .filter(|event| event.tag.starts_with("halite/run/"))
        .collect();
    for (name, kind) in [
        ("event-run-new", "new"),
        ("event-run-job", "job"),
        ("event-run-done", "done"),
    ] {
        check_event(name, of_kind(&of_run, kind));
    }
    let steps: Vec<v1::Event> = of_run
        .into_iter()
        .filter(|event| event.tag.ends_with("/step"))
        .collect();
    check_event("event-run-step", steps.last().unwrap());
    check_answer("runs", &show(&life, "runs", ""));
    let run = life
        .runtime
        .block_on(life.store.runs(1))
        .unwrap()
        .remove(0)
        .id;
    let run = life.runtime.block_on(life.backend.show_job(&run)).unwrap();
    check_document("run", &run);
    life.kill();
}

#[test]
fn who_may_call_the_master() {
    let site = site();
    let life = life(&site);
    let app = &life.app;
    life.accept("worker-1");
    life.runtime.block_on(async {
        let mut pending = life.store.key(&minion("worker-1")).await.unwrap().unwrap();
        pending.id = minion("worker-2");
        pending.state = KeyState::Pending;
        pending.grains_json =
            json!({"fqdn": "worker-2.example", "osfinger": "Debian-12", "source": "10.10.1.13"})
                .to_string();
        life.store.put_key(&pending).await.unwrap();
        check_document("keys", &keys::list(app).await.unwrap());

        let bound = TokenRequest {
            id: "worker-1".to_owned(),
            roles: vec!["worker".to_owned()],
            ..TokenRequest::default()
        };
        let (token, _) = keys::create_token(app, "root", bound).await.unwrap();
        check_document("tokens", &keys::list_tokens(app).await.unwrap());
        let id = token.split('.').next().unwrap();
        check_document(
            "token-revocation",
            &keys::revoke_token(app, id).await.unwrap(),
        );

        let mut events = app.events.subscribe();
        let order = KeyOrder {
            id: "worker-1".to_owned(),
            action: "delete".to_owned(),
            cluster: "test".to_owned(),
            force: true,
            ..KeyOrder::default()
        };
        check_document("key-change", &keys::change(app, &order).await.unwrap());
        let event = Event::from(message(events.recv().await.unwrap()));
        check_document("event-key", &event);

        let csr_pem = PrivateKey::generate().unwrap().request("alice").unwrap();
        let alice = NewOperator {
            name: "alice".to_owned(),
            role: "viewer".to_owned(),
            days: 0,
            csr_pem: csr_pem.clone(),
        };
        keys::create_operator(app, "root", &alice).await.unwrap();
        let mut operators = keys::list_operators(app).await.unwrap();
        operators
            .operators
            .retain(|operator| operator.name == "alice");
        check_document("operators", &operators);
        check_document(
            "operator-revocation",
            &keys::revoke_operator(app, "root", "alice").await.unwrap(),
        );

        let wanted = kubeconfig::KubeconfigRequest {
            csr_pem: &csr_pem,
            ttl_seconds: 3600,
            force: false,
        };
        kubeconfig::sign(app, "alice", wanted).await.unwrap();
        check_answer(
            "kubeconfigs",
            &life
                .backend
                .show(v1::ShowRequest {
                    what: "kubeconfigs".to_owned(),
                    ..v1::ShowRequest::default()
                })
                .await
                .unwrap(),
        );

        let line = Audit {
            time: NOW,
            who: "operator:alice".to_owned(),
            method: "Operator/Run".to_owned(),
            what: "test.ping on *".to_owned(),
            outcome: "ok".to_owned(),
        };
        life.store.append_audit(&line).await.unwrap();
        let request = v1::ReadAuditRequest::default();
        check_document("audit", &audit::read(app, &request).await.unwrap());
    });
    life.kill();
}

#[test]
fn what_the_master_shows_of_a_host() {
    let site = site();
    let life = life(&site);
    life.accept("worker-1");
    for (name, what, target) in [
        ("pillar", "pillar", "worker-1"),
        ("grains", "grains", "*"),
        ("top", "top", "worker-1"),
        ("files", "files", "worker-1"),
        ("low", "low", "worker-1"),
        ("leaving", "leaving", "worker-1"),
        ("etcd", "etcd", ""),
    ] {
        check_answer(name, &show(&life, what, target));
    }
    life.kill();
}

#[test]
fn an_upgrade() {
    let site = upgrade_fixture::site();
    site.api.put(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "default", "labels": {"app": "web"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true}]},
        "spec": {"nodeName": "worker-1"}}));
    site.api.put(
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}}),
    );
    let life = life(&site);
    for name in ["bootstrap-1", "worker-1"] {
        life.connect(&ScriptedMinion::new(name));
    }
    let mut options =
        json!({"bundle": upgrade_fixture::NEXT, "batch": "25%", "backup": true, "drain": {}});
    let request = v1::ShowRequest {
        what: "upgrade".to_owned(),
        target: upgrade_fixture::NEXT.to_owned(),
        pillar_json: options.to_string(),
        ..v1::ShowRequest::default()
    };
    let plan = life.runtime.block_on(life.backend.show(request)).unwrap();
    check_answer("upgrade", &plan);
    options["backup"] = json!(false);
    options["pause_after"] = json!("control-plane");
    let request = upgrade_fixture::upgrade(&life, &options);
    let events = life
        .runtime
        .block_on(life.backend.orchestrate("root", request));
    life.collect(events.unwrap());
    check_answer("upgrade-status", &show(&life, "upgrade-status", ""));
    let request = v1::ShowRequest {
        what: "upgrade-back".to_owned(),
        pillar_json: json!({"bundle": "", "batch": "25%", "backup": false}).to_string(),
        ..v1::ShowRequest::default()
    };
    let plan = life.runtime.block_on(life.backend.show(request)).unwrap();
    check_answer("upgrade-back", &plan);
    let mut request = upgrade_fixture::upgrade(&life, &options);
    request.test = true;
    let id = upgrade_fixture::plan(&life, &options).id;
    let events = life
        .runtime
        .block_on(life.backend.orchestrate("root", request));
    life.collect(events.unwrap());
    upgrade_fixture::change_document(&site, "two");
    check_answer("upgrade-shown", &show(&life, "upgrade-shown", &id));
    life.kill();
}

#[test]
fn a_move_of_the_master() {
    let site = site();
    let node = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: cp-2}\nroles: [etcd, control-plane]\naddress: 10.10.0.12\n";
    std::fs::write(site.path().join("etc/nodes/cp-2.yaml"), node).unwrap();
    let life = life(&site);
    let number = life.app.standbys.enter("cp-2", Arc::default(), NOW);
    life.app
        .standbys
        .set("cp-2", number, FollowState::Following, "", NOW);
    let request = HandOverRequest {
        check_only: true,
        ..HandOverRequest::default()
    };
    let plan = life
        .runtime
        .block_on(life.backend.hand_over(request))
        .unwrap();
    check_document("master-move", &plan);
    let request = HandOverRequest::default();
    let begun = life.runtime.block_on(life.backend.hand_over(request));
    assert!(begun.unwrap().begun);
    let record = life.app.config.state_dir.join(HandOver::FILE);
    let record = std::fs::read_to_string(record).unwrap();
    check("hand-over", serde_json::from_str(&record).unwrap());
    life.kill();
}
