//! Reads for a job and its messages, and reads that must not happen: documents, facts and returns.

use std::sync::atomic::Ordering;

use halite_core::names::minion;
use halite_core::refusal::RefusalKind;
use halite_proto::ids::JobId;
use halite_proto::v1;
use halite_proto::v1::minion_message::Body;
use halite_store::{Event, JobStatus};
use serde_json::json;
use tokio::sync::broadcast::Receiver;

use super::fixture::{Life, Site};

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*':\n    - host\n"),
    ("host.sls", "nothing:\n  test.nop: []\n"),
];
const ADDED: &str = "added-between-two-messages";

fn request(target_kind: &str, target: &str, function: &str) -> v1::RunRequest {
    v1::RunRequest {
        target: target.into(),
        target_kind: target_kind.into(),
        function: function.into(),
        args_json: json!({"sls": ["host"], "cmd": "true"}).to_string(),
        ..Default::default()
    }
}

/// Makes a job and returns its id.
async fn made(life: &Life, target: &str, function: &str) -> JobId {
    let request = request("list", target, function);
    let _watched = life.backend.run("root", request).await.unwrap();
    life.store.jobs(1).await.unwrap()[0].job_id.clone()
}

async fn say(life: &Life, id: &str, body: Body) {
    let message = v1::MinionMessage { body: Some(body) };
    life.backend.on_message(&minion(id), message).await.unwrap();
}

fn progress(job_id: &JobId, text: &str) -> Body {
    Body::Progress(v1::JobProgress {
        job: job_id.to_string(),
        index: 1,
        total: 1000,
        state_json: json!({
            "index": 0, "__id__": "motd", "name": "/etc/motd", "function": "file.managed", "__sls__": "host",
            "result": true, "changes": {}, "comment": text, "start_time": "2026-11-21T00:00:00Z", "duration": 1.0,
            "__run_num__": 0, "__state_ran__": true,
        })
        .to_string(),
    })
}

fn returned(job_id: &JobId, text: &str) -> Body {
    Body::Returned(v1::JobReturn {
        job: job_id.to_string(),
        retcode: 0,
        return_json: json!({"comment": text}).to_string(),
        error: String::new(),
    })
}

/// The comment of the next progress.
async fn shown(events: &mut Receiver<Event>) -> String {
    loop {
        let event = events.recv().await.unwrap();
        if event.tag.contains("/prog/") {
            return event.data_json;
        }
    }
}

/// Adds a secret to the cluster document, in place and without changing its size.
fn add_secret(site: &Site) {
    let path = site.path().join("etc/cluster.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, after) = text.split_once("secrets:\n").unwrap();
    let added = format!("secrets:\n  added: {{value: {ADDED}, roles: [worker]}}\n");
    std::fs::write(&path, format!("{before}{added}{after}")).unwrap();
}

#[test]
fn the_messages_of_a_job_look_at_no_document() {
    let site = Site::new(TREE);
    let (life, looks) = site.live_counting();
    let minions = ["worker-1", "bootstrap-1"];
    for id in minions {
        life.accept(id);
    }
    life.runtime.block_on(async {
        // The first look starts the watch, and the first job writes the addresses of the nodes.
        let job_id = made(&life, "worker-1,bootstrap-1", "state.apply").await;
        for id in minions {
            say(&life, id, returned(&job_id, "done")).await;
        }
        looks.store(0, Ordering::SeqCst);
        let job_id = made(&life, "worker-1,bootstrap-1", "state.apply").await;
        assert_eq!(looks.load(Ordering::SeqCst), 1, "one for the job");
        for id in minions {
            let hello = v1::MinionHello {
                protocol: 1,
                grains_json: json!({"id": id}).to_string(),
                ..Default::default()
            };
            let here = std::net::Ipv4Addr::LOCALHOST.into();
            let (_connection, mut messages) = life.app.connections.join(&minion(id), here);
            life.backend
                .on_connected(&minion(id), &hello)
                .await
                .unwrap();
            assert!(messages.recv().await.is_some(), "the job is sent");
            for _ in 0..100 {
                say(&life, id, progress(&job_id, "done")).await;
            }
            say(&life, id, returned(&job_id, "done")).await;
        }
        let job = life.store.job(&job_id).await.unwrap().unwrap();
        assert_eq!(job.status, JobStatus::Finished);
        assert_eq!(looks.load(Ordering::SeqCst), 1, "none for its messages");

        let job_id = made(&life, "worker-1,bootstrap-1", "pillar.items").await;
        let job = life.store.job(&job_id).await.unwrap().unwrap();
        assert_eq!(job.status, JobStatus::Finished);
        assert_eq!(looks.load(Ordering::SeqCst), 2, "one for two pillars");
    });
}

#[test]
fn a_secret_that_is_added_between_two_messages_is_removed_from_the_second() {
    let site = Site::new(TREE);
    let (life, looks) = site.live_counting();
    life.accept("worker-1");
    life.runtime.block_on(async {
        let job_id = made(&life, "worker-1", "state.apply").await;
        let mut events = life.app.events.subscribe();
        for message in 0..100 {
            say(&life, "worker-1", progress(&job_id, ADDED)).await;
            let shown = shown(&mut events).await;
            assert!(shown.contains(ADDED), "{message}: it is not secret yet");
        }
        let before = looks.load(Ordering::SeqCst);
        add_secret(&site);
        for _ in 0..100 {
            say(&life, "worker-1", progress(&job_id, ADDED)).await;
            let shown = shown(&mut events).await;
            assert!(
                !shown.contains(ADDED) && shown.contains("(secret)"),
                "{shown}"
            );
        }
        let after = looks.load(Ordering::SeqCst);
        assert_eq!(after - before, 1, "one for the change");
        say(&life, "worker-1", returned(&job_id, ADDED)).await;
        let row = life.store.row(&job_id, &minion("worker-1")).await.unwrap();
        let stored = row.unwrap().return_json.unwrap();
        assert!(!stored.contains(ADDED), "{stored}");
    });
}

#[test]
fn documents_that_are_refused_are_read_once_for_all_messages() {
    let site = Site::new(TREE);
    let (life, looks) = site.live_counting();
    life.accept("worker-1");
    life.runtime.block_on(async {
        let job_id = made(&life, "worker-1", "state.apply").await;
        life.backend.jobs().declarations().load().await.unwrap();
        let path = site.path().join("etc/cluster.yaml");
        let sound = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, "{ this is not a document").unwrap();
        let before = looks.load(Ordering::SeqCst);
        for _ in 0..100 {
            say(&life, "worker-1", progress(&job_id, "done")).await;
        }
        assert_eq!(looks.load(Ordering::SeqCst) - before, 1);
        std::fs::write(&path, sound).unwrap();
        add_secret(&site);
        let mut events = life.app.events.subscribe();
        say(&life, "worker-1", progress(&job_id, ADDED)).await;
        assert!(!shown(&mut events).await.contains(ADDED));
    });
}

#[test]
fn a_target_by_name_reads_no_grains() {
    let site = Site::new(TREE);
    let life = site.live();
    life.accept("worker-1");
    life.runtime.block_on(async {
        life.store.spoil(&[("facts", &["grains_json"])]).await;
        for (kind, target) in [
            ("", "*"),
            ("glob", "worker-*"),
            ("list", "worker-1,other"),
            ("pcre", "worker-[0-9]"),
            ("compound", "L@worker-1 or E@other-.*"),
        ] {
            let request = request(kind, target, "test.ping");
            let asked = life.backend.run("root", request).await;
            assert!(asked.is_ok(), "{kind} {target}");
        }
        for (kind, target) in [
            ("grain", "os:Debian"),
            ("compound", "worker-1 and G@os:Debian"),
        ] {
            let request = request(kind, target, "test.ping");
            let refusal = life
                .backend
                .run("root", request)
                .await
                .map(drop)
                .unwrap_err();
            assert_eq!(refusal.kind, RefusalKind::Internal, "{refusal}");
        }
        // A typing mistake is an error even without a minion that could match.
        let request = request("globb", "*", "test.ping");
        let refusal = life
            .backend
            .run("root", request)
            .await
            .map(drop)
            .unwrap_err();
        assert!(
            refusal.message.contains("did you mean `glob`?"),
            "{refusal}"
        );
    });
}

#[test]
fn the_end_of_a_job_reads_no_low_state_and_no_return() {
    let site = Site::new(TREE);
    let life = site.live();
    for id in ["worker-1", "bootstrap-1"] {
        life.accept(id);
    }
    for function in ["state.apply", "test.ping"] {
        life.runtime.block_on(async {
            let job_id = made(&life, "worker-1,bootstrap-1", function).await;
            say(&life, "worker-1", returned(&job_id, "done")).await;
            let columns: &[&str] = &["low_json", "return_json"];
            let low_states: &[&str] = &["low_json"];
            let tables = [("job_rows", columns), ("low_states", low_states)];
            life.store.spoil(&tables).await;
            let mut events = life.app.events.subscribe();
            say(&life, "bootstrap-1", returned(&job_id, "done")).await;
            let done = loop {
                let event = events.recv().await.unwrap();
                if event.last {
                    break event.data_json;
                }
            };
            let done: serde_json::Value = serde_json::from_str(&done).unwrap();
            assert_eq!(
                done["succeeded"],
                json!(["bootstrap-1", "worker-1"]),
                "{function}"
            );
            let job = life.store.job(&job_id).await.unwrap().unwrap();
            assert_eq!(job.retcode, Some(0));
        });
    }
}
