//! Tests of what grows with the number of minions and jobs, by counting.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use halite_core::clock::ManualClock;
use halite_core::names::minion;
use halite_proto::ids::MinionId;
use halite_proto::v1;
use serde_json::json;

use super::fixture::{Life, ScriptedMinion, Site, WATCHDOG};

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*-1':\n    - host\n"),
    (
        "host.sls",
        "motd:\n  file.managed:\n    - name: /etc/motd\n    - contents: welcome\n",
    ),
];

/// Declares more workers.
fn declare(site: &Site, names: &[&str]) {
    for (number, name) in names.iter().enumerate() {
        let document = format!(
            "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [worker]\naddress: 10.10.1.{}\n",
            100 + number
        );
        let path = site.path().join(format!("etc/nodes/{name}.yaml"));
        std::fs::write(path, document).unwrap();
    }
}

/// The jobs that the session of a minion remembers.
async fn remembered(life: &Life, minion: &MinionId) -> usize {
    let lane = life.backend.jobs().lane(minion);
    let session = lane.lock().await;
    let unstored = session.unstored.as_ref().map_or(0, BTreeSet::len);
    session.sent.len() + session.running.len() + session.cancelled.len() + unstored
}

#[test]
fn a_session_remembers_no_job_whose_part_has_ended() {
    let site = Site::new(TREE);
    let life = site.live();
    let worker = ScriptedMinion::new("worker-1");
    life.connect(&worker);
    for _ in 0..10 {
        life.run("test.ping", "worker-1", json!({}), false);
        life.run("state.apply", "worker-1", json!({"sls": "host"}), false);
    }
    life.runtime.block_on(async {
        // The last step of the end of a job takes the session.
        let none = async {
            while remembered(&life, &worker.id).await > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(WATCHDOG, none).await.is_err() {
            let left = remembered(&life, &worker.id).await;
            panic!("20 jobs have ended, and the session remembers {left}");
        }
    });
    life.kill();
}

#[test]
fn workers_share_the_automaton_of_their_secrets() {
    let site = Site::new(TREE);
    declare(&site, &["worker-2", "worker-3"]);
    let life = site.live();
    life.runtime.block_on(async {
        let declarations = life.backend.jobs().declarations();
        let of = async |name: &str| declarations.redactor(&minion(name)).await.unwrap();
        let first = of("worker-1").await;
        for name in ["worker-2", "worker-3", "worker-1"] {
            assert!(Arc::ptr_eq(&first, &of(name).await), "{name}");
        }
        assert!(!Arc::ptr_eq(&first, &of("bootstrap-1").await));
        assert_eq!(first.text(super::fixture::CANARY), "(secret)");
    });
    life.kill();
}

#[test]
fn the_check_for_expired_parts_reads_no_low_state() {
    let site = Site::new(TREE);
    let clock = Arc::new(ManualClock::at(1_800_000_000_000));
    let life = site.live_at(clock.clone());
    life.accept("worker-1");
    life.runtime.block_on(async {
        let request = v1::RunRequest {
            target: "worker-1".into(),
            function: "state.apply".into(),
            args_json: json!({"sls": "host"}).to_string(),
            ..v1::RunRequest::default()
        };
        let _events = life.backend.run("root", request).await.unwrap();
        let columns: &[&str] = &["low_json"];
        let tables = [("job_rows", columns), ("low_states", columns)];
        life.store.spoil(&tables).await;
        let jobs = life.backend.jobs();
        jobs.expire_parts().await.unwrap();
        // It is not connected: its part ends.
        clock.advance(3_600_000);
        jobs.expire_parts().await.unwrap();
        let job = life.store.jobs(1).await.unwrap().remove(0);
        assert_eq!(job.retcode, Some(1));
    });
    life.kill();
}

#[test]
fn hosts_that_are_away_end_with_few_commits() {
    let site = Site::new(TREE);
    let names: Vec<String> = (0..100).map(|number| format!("away-{number}")).collect();
    let clock = Arc::new(ManualClock::at(1_800_000_000_000));
    let life = site.live_at(clock.clone());
    for name in &names {
        life.accept(name);
    }
    life.runtime.block_on(async {
        let request = v1::RunRequest {
            target: "away-*".into(),
            function: "test.ping".into(),
            ..v1::RunRequest::default()
        };
        let _events = life.backend.run("root", request).await.unwrap();
        let commits = life.store.count_commits().await;
        clock.advance(3_600_000);
        // A part that is being sent at this moment is checked again.
        let mut retcode = None;
        for _ in 0..100 {
            life.backend.jobs().expire_parts().await.unwrap();
            retcode = life.store.jobs(1).await.unwrap().remove(0).retcode;
            if retcode.is_some() {
                break;
            }
            // Each round with a new loss is a commit, so the others get time to be sent.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(retcode, Some(1));
        let commits = commits.load(Ordering::SeqCst);
        assert!(commits <= 50, "100 lost parts took {commits} commits");
    });
    life.kill();
}

#[test]
fn a_target_that_matches_nothing_does_not_name_all_minions() {
    let site = Site::new(TREE);
    let life = site.live();
    let names: Vec<String> = (0..300).map(|number| format!("worker-{number}")).collect();
    for name in &names {
        life.accept(name);
    }
    let request = v1::RunRequest {
        target: "tpyo".into(),
        function: "test.ping".into(),
        ..v1::RunRequest::default()
    };
    let refused = life.runtime.block_on(life.backend.run("root", request));
    let message = refused.err().unwrap().message;
    assert!(message.contains("\"tpyo\" (glob)"), "{message}");
    assert!(message.ends_with("and 280 more"), "{message}");
    assert!(message.len() < 500, "{message}");
    life.kill();
}
