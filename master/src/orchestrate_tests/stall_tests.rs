//! Injected stalls of steps: each is reported after ten seconds, with its own text and remedy.

use std::net::IpAddr;
use std::sync::Arc;

use futures_util::StreamExt as _;
use halite_core::clock::ManualClock;
use halite_core::connections::ConnectionGuard;
use halite_core::event_stream::EventStream;
use halite_core::names::minion;
use halite_proto::v1;
use halite_proto::v1::master_message::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

use super::stall_fixture::{begin, site};
use crate::backend::fixture::Life;

/// The first wait report of an orchestration's step.
async fn report(life: &Life, sls: &str) -> Value {
    let (_, mut events) = begin(life, sls).await;
    next_report(&mut events).await
}

async fn next_report(events: &mut EventStream) -> Value {
    loop {
        let event = events.next().await.expect("it waits").unwrap();
        assert!(!event.last, "it ended: {}", event.data_json);
        if event.tag.ends_with("/wait") {
            return serde_json::from_str(&event.data_json).unwrap();
        }
    }
}

/// Connects the worker, which then does nothing by itself.
async fn connect_worker(life: &Life) -> (ConnectionGuard, Receiver<v1::MasterMessage>) {
    let (worker, address) = (minion("worker-1"), IpAddr::from([10, 10, 1, 12]));
    let connected = life.app.connections.join(&worker, address);
    let hello = v1::MinionHello {
        protocol: 1,
        grains_json:
            json!({"id": "worker-1", "os": "Debian", "ip4_interfaces": {"host0": ["10.10.1.12"]}})
                .to_string(),
        ..v1::MinionHello::default()
    };
    life.backend.on_connected(&worker, &hello).await.unwrap();
    connected
}

/// The id of the next job that a minion gets.
async fn next_job(messages: &mut Receiver<v1::MasterMessage>) -> String {
    loop {
        if let Some(Body::Job(job)) = messages.recv().await.unwrap().body {
            return job.job;
        }
    }
}

#[test]
fn each_stall_is_reported_after_ten_seconds_with_its_text_and_a_verb() {
    let site = site();
    let life = site.live();
    life.accept("worker-1");
    life.accept("worker-2");
    // Its minion is connected, and never answers.
    life.accept("bootstrap-1");
    let address = IpAddr::from([10, 10, 0, 11]);
    let _silent = life.app.connections.join(&minion("bootstrap-1"), address);
    let kinds = [
        "host", "disk", "dns", "quorum", "enrol", "pdb", "lock", "facts",
    ];
    let (reports, holder) = life.runtime.block_on(async {
        let (connection, mut messages) = connect_worker(&life).await;
        // It has the lock that another one waits for.
        let (holder, _) = begin(&life, "enrol").await;
        // The worker gets its job, and is never heard from again.
        let dies = async {
            next_job(&mut messages).await;
            drop(connection);
        };
        let waits = futures_util::future::join_all(kinds.map(|sls| report(&life, sls)));
        let ((), waits) = tokio::join!(dies, waits);
        (waits, holder)
    });
    let other = format!("ctl orchestrate cancel {holder}");
    let told: [(&str, &str, &[&str]); 8] = [
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
            &["ctl orchestrate cancel"],
        ),
        (
            "the pods of worker-1 have left",
            "the PodDisruptionBudget default/web-budget holds it",
            &["change the budget", "kubectl delete pod"],
        ),
        (
            "the lock etcd-members is free",
            "(orchestrate.enrol) holds it",
            &[&other],
        ),
        (
            "bootstrap-1 has answered what the preflight asks",
            "its disk is measured",
            &["journalctl -u halite-minion"],
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
        let abort = format!(
            "`ctl orchestrate cancel {}` ends this run",
            report["run"].as_str().unwrap()
        );
        assert!(!verbs.is_empty() && remedy.ends_with(&abort), "{report}");
        let seconds = report["seconds"].as_u64().unwrap();
        assert!((10..20).contains(&seconds), "{report}");
    }
    life.kill();
}

#[test]
fn a_step_behind_another_job_names_that_job() {
    let site = site();
    let clock = Arc::new(ManualClock::at(1_800_000_000_000));
    let life = site.live_at(clock.clone());
    life.accept("worker-1");
    life.runtime.block_on(async {
        let (_connection, mut messages) = connect_worker(&life).await;
        let request = v1::RunRequest {
            target: "worker-1".into(),
            function: "state.apply".into(),
            args_json: json!({"sls": ["one"]}).to_string(),
            timeout_seconds: 3600,
            ..v1::RunRequest::default()
        };
        let _first = life.backend.run("root", request).await.unwrap();
        let first = next_job(&mut messages).await;
        let (_, mut events) = begin(&life, "host").await;
        let said = next_report(&mut events).await;
        let because = format!("the job {first} comes first there");
        assert_eq!(said["until"], "worker-1 has returned");
        assert!(
            said["because"].as_str().unwrap().starts_with(&because),
            "{said}"
        );
        let cancel = format!("`ctl job cancel {first}` ends it");
        let remedy = said["remedy"].as_str().unwrap();
        assert!(
            remedy.contains(&cancel) && remedy.contains("ends this step"),
            "{said}"
        );
        clock.advance(600_000);
        let mut last = String::new();
        while let Some(event) = events.next().await {
            last = event.unwrap().data_json;
        }
        let failure = format!("worker-1 has not received the job within its timeout: {because}");
        assert!(last.contains(&failure) && last.contains(&cancel), "{last}");
        assert!(!last.contains("late return"), "{last}");
    });
    life.kill();
}
