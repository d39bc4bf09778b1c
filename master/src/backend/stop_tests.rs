//! Jobs that are ended early or held up by one of their minions.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use halite_core::clock::ManualClock;
use halite_core::event_stream::EventStream;
use halite_core::names::minion;
use halite_proto::v1;
use halite_proto::v1::minion_message::Body as ToMaster;
use halite_store::RowState;
use serde_json::{Value, json};

use super::fixture::{Life, ScriptedMinion, Site, WATCHDOG};
use super::wire::Wire;

const TREE: &[(&str, &str)] = &[
    (
        "top.sls",
        "base:\n  'bootstrap-*':\n    - host\n  'worker-*':\n    - host\n  master:\n    - objects\n",
    ),
    (
        "objects.sls",
        "settings:\n  kubernetes.object:\n    - manifest:\n        apiVersion: v1\n        kind: ConfigMap\n        metadata: {name: settings, namespace: kube-system}\n        data: {a: '1'}\n",
    ),
    (
        "host.sls",
        "motd:\n  file.managed:\n    - name: /etc/motd\n    - contents: welcome\n",
    ),
];

fn start(life: &Life, function: &str, target: &str, args: Value, seconds: u32) -> EventStream {
    let request = v1::RunRequest {
        target: target.into(),
        function: function.into(),
        args_json: args.to_string(),
        timeout_seconds: seconds,
        ..v1::RunRequest::default()
    };
    life.runtime
        .block_on(life.backend.run("root", request))
        .unwrap()
}

fn summary(events: &[v1::Event]) -> Value {
    serde_json::from_str(&events.last().unwrap().data_json).unwrap()
}

/// The `error` of a minion's `ret` event.
fn error_of(events: &[v1::Event], minion: &str) -> String {
    let end = format!("/ret/{minion}");
    let event = events
        .iter()
        .find(|event| event.tag.ends_with(&end))
        .unwrap();
    let data: Value = serde_json::from_str(&event.data_json).unwrap();
    data["error"].as_str().unwrap().to_owned()
}

#[test]
fn an_ordered_run_stops_at_the_first_host_that_fails() {
    let site = Site::new(TREE);
    let life = site.live();
    let (first, worker) = (
        ScriptedMinion::new("bootstrap-1"),
        ScriptedMinion::new("worker-1"),
    );
    life.connect(&first);
    life.connect(&worker);
    first.journal.lock().unwrap().failing.insert("motd".into());
    let events = life.run("state.highstate", "", json!({}), false);
    let done = summary(&events);
    assert_eq!(
        (&done["failed"], &done["lost"]),
        (&json!(["bootstrap-1"]), &json!(["master", "worker-1"]))
    );
    assert!(
        error_of(&events, "worker-1").contains("not started, because bootstrap-1 failed before it"),
        "{}",
        error_of(&events, "worker-1")
    );
    assert!(worker.journal.lock().unwrap().received.is_empty());

    // A test run changes nothing; its output is complete.
    let done = summary(&life.run("state.highstate", "", json!({}), true));
    assert_eq!(done["lost"], json!([]), "{done}");
    assert_eq!(worker.journal.lock().unwrap().received.len(), 1);
}

#[test]
fn a_run_that_stopped_at_a_failure_stays_stopped_after_a_restart() {
    let site = Site::new(TREE);
    let life = site.live();
    let wire = Wire::connect(&life, "bootstrap-1");
    life.accept("worker-1");
    let stream = start(&life, "state.highstate", "", json!({}), 600);
    drop((stream, wire));
    let job_id = life.runtime.block_on(async {
        let job = life.store.jobs(1).await.unwrap().remove(0);
        let host = minion("bootstrap-1");
        let lost = life.store.mark_lost(&job.job_id, &host, "gone", 1);
        assert!(lost.await.unwrap());
        job.job_id
    });
    life.kill();
    let life = site.live();
    let rows = life.runtime.block_on(life.store.parts(&job_id)).unwrap();
    let errors: Vec<&str> = rows.iter().map(|row| row.error.as_str()).collect();
    assert!(
        errors[1..]
            .iter()
            .all(|error| error.starts_with("not started, because bootstrap-1")),
        "{errors:?}"
    );
}

#[test]
fn a_minion_that_does_not_read_is_cut_and_delays_no_other() {
    let site = Site::new(TREE);
    let life = site.live();
    let deaf = Wire::connect(&life, "bootstrap-1");
    let good = ScriptedMinion::new("worker-1");
    life.connect(&good);
    let fill = async {
        while !deaf.messages.is_closed() && deaf.messages.len() < deaf.messages.max_capacity() {
            let message = v1::MasterMessage::default();
            life.app
                .connections
                .send(&minion("bootstrap-1"), message)
                .await
                .unwrap();
        }
    };
    life.runtime.block_on(fill);
    let events = life.collect(start(&life, "test.ping", "*", json!({}), 20));
    assert_eq!(summary(&events)["succeeded"], json!(["worker-1"]));
    assert!(!life.app.connections.is_connected(&minion("bootstrap-1")));
    // The minion comes back, and is served.
    let back = ScriptedMinion::new("bootstrap-1");
    life.connect(&back);
    let events = life.run("test.ping", "*", json!({}), false);
    assert_eq!(
        summary(&events)["succeeded"],
        json!(["bootstrap-1", "worker-1"])
    );
}

#[test]
fn a_job_whose_time_is_over_is_ended_on_its_minion() {
    let site = Site::new(TREE);
    let clock = Arc::new(ManualClock::at(1_800_000_000_000));
    let life = site.live_at(clock.clone());
    let mut wire = Wire::connect(&life, "worker-1");
    let hung = start(
        &life,
        "cmd.run",
        "worker-1",
        json!({"cmd": "sleep infinity"}),
        600,
    );
    let job = wire.job();
    clock.advance(600_000);
    let cancel = wire.cancel();
    assert_eq!(
        (cancel.job.as_str(), cancel.reason.as_str(), cancel.force),
        (job.as_str(), "the job's time limit has passed", false)
    );
    wire.returns(&job, "ended: the job's time limit has passed");
    let events = life.collect(hung);
    assert_eq!(summary(&events)["failed"], json!(["worker-1"]));
    assert!(error_of(&events, "worker-1").contains("time limit"));
}

#[test]
fn an_operator_ends_a_job_and_those_behind_it_continue() {
    let site = Site::new(TREE);
    let life = site.live();
    let mut wire = Wire::connect(&life, "worker-1");
    let args = json!({"sls": ["host"]});
    let first = start(&life, "state.apply", "worker-1", args.clone(), 600);
    let second = start(&life, "state.apply", "worker-1", args.clone(), 600);
    let third = start(&life, "state.apply", "worker-1", args, 600);
    let job = wire.job();
    let job_ids: Vec<_> = life.runtime.block_on(async {
        let jobs = life.store.jobs(3).await.unwrap();
        jobs.into_iter().rev().map(|job| job.job_id).collect()
    });
    let cancel = |number: usize, force: bool| {
        let cancelled = life.backend.cancel_job(&job_ids[number], "root", force);
        life.runtime.block_on(cancelled)
    };
    // The second part was not sent: it ends at once, and is not run later.
    assert_eq!(cancel(1, false).unwrap().ended, ["worker-1"]);
    let events = life.collect(second);
    assert_eq!(
        error_of(&events, "worker-1"),
        "cancelled by root before it was sent"
    );
    // The first part runs: its minion ends it.
    assert_eq!(cancel(0, false).unwrap().asked, ["worker-1"]);
    let asked = wire.cancel();
    assert_eq!(
        (asked.job, asked.reason),
        (job.clone(), "cancelled by root".to_owned())
    );
    wire.returns(&job, "cancelled by root");
    assert_eq!(summary(&life.collect(first))["failed"], json!(["worker-1"]));
    let last = wire.job();
    assert_eq!(last, job_ids[2].as_str());
    wire.returns(&last, "");
    life.collect(third);
    // An ended job is an error, unless its minions should be asked anyway.
    let refused = cancel(2, false).unwrap_err();
    assert!(refused.message.contains("has ended"), "{refused}");
    assert_eq!(cancel(2, true).unwrap().asked, ["worker-1"]);
    assert!(wire.cancel().force);
}

#[test]
fn a_part_that_is_being_sent_when_it_is_cancelled_is_ended_on_its_minion() {
    let site = Site::new(TREE);
    let life = site.live();
    life.accept("worker-1");
    let args = json!({"sls": ["host"]});
    let stream = start(&life, "state.apply", "worker-1", args, 600);
    let (connection, messages) = life
        .app
        .connections
        .join(&minion("worker-1"), IpAddr::from([10, 10, 1, 12]));
    let mut wire = Wire::at(&life, "worker-1", connection, messages);
    let jobs = Arc::clone(life.backend.jobs());
    let (job_id, answer) = life.runtime.block_on(async {
        let job_id = life.store.jobs(1).await.unwrap().remove(0).job_id;
        let writer = life.store.hold_writer().await;
        jobs.lane(&minion("worker-1"))
            .lock()
            .await
            .connect([], None, life.app.clock.steady());
        let sending = tokio::spawn({
            let jobs = Arc::clone(&jobs);
            async move { jobs.dispatch(&minion("worker-1")).await }
        });
        // It holds the lane, and cannot record the dispatch before the writer is free.
        while jobs.lane(&minion("worker-1")).try_lock().is_ok() {
            tokio::task::yield_now().await;
        }
        let mut cancelling = tokio::spawn({
            let (jobs, job_id) = (Arc::clone(&jobs), job_id.clone());
            async move { jobs.cancel(&job_id, "root", false).await }
        });
        // Without the lane it would now read that the part was not sent.
        let early = tokio::time::timeout(Duration::from_millis(200), &mut cancelling).await;
        drop(writer);
        assert!(early.is_err());
        sending.await.unwrap().unwrap();
        (job_id, cancelling.await.unwrap().unwrap())
    });
    assert_eq!(
        (answer.asked, answer.ended),
        (vec![minion("worker-1")], Vec::new())
    );
    assert_eq!(wire.job(), job_id.as_str());
    assert_eq!(wire.cancel().job, job_id.as_str());
    wire.returns(job_id.as_str(), "cancelled by root");
    assert_eq!(
        error_of(&life.collect(stream), "worker-1"),
        "cancelled by root"
    );
}

#[test]
fn states_of_the_master_whose_time_is_over_end_before_the_next_begin() {
    use std::sync::atomic::Ordering::SeqCst;
    let site = Site::new(TREE);
    let clock = Arc::new(ManualClock::at(1_800_000_000_000));
    let life = site.live_at(clock.clone());
    let hung = &site.api.hung;
    hung.on.store(true, SeqCst);
    let questions = |count: u32| {
        let came = async {
            while hung.came.load(SeqCst) < count {
                tokio::task::yield_now().await;
            }
        };
        let limited = async { tokio::time::timeout(WATCHDOG, came).await };
        life.runtime.block_on(limited).expect("no such question");
    };
    let args = json!({"sls": ["objects"]});
    let first = start(&life, "state.apply", "master", args.clone(), 600);
    questions(1);
    clock.advance(600_000);
    let events = life.collect(first);
    assert_eq!(summary(&events)["lost"], json!(["master"]));
    let second = start(&life, "state.apply", "master", args, 600);
    questions(2);
    hung.on.store(false, SeqCst);
    hung.free.notify_one();
    let events = life.collect(second);
    assert_eq!(summary(&events)["succeeded"], json!(["master"]));
    assert_eq!(hung.most.load(SeqCst), 1);
}

#[test]
fn a_clock_that_is_set_while_a_job_runs_changes_no_result() {
    const HOUR: i64 = 3_600_000;
    const DAY: i64 = 24 * HOUR;
    for step in [HOUR, -HOUR, DAY, -DAY] {
        let site = Site::new(TREE);
        let clock = Arc::new(ManualClock::at(1_800_000_000_000 + 2 * DAY));
        let life = site.live_at(clock.clone());
        let mut wire = Wire::connect(&life, "worker-1");
        let args = json!({"sls": ["host"]});
        drop(start(&life, "state.apply", "worker-1", args, 600));
        let job = wire.job();
        let row_of = |life: &Life| {
            let (jobs, job_id) = (Arc::clone(life.backend.jobs()), job.parse().unwrap());
            life.runtime.block_on(async {
                jobs.expire_parts().await.unwrap();
                let row = life.store.row(&job_id, &minion("worker-1")).await.unwrap();
                row.unwrap().state
            })
        };
        clock.step(step);
        assert_eq!(row_of(&life), RowState::Started, "{step}");
        assert!(wire.messages.try_recv().is_err(), "nothing to end");
        // Nor does it when the master restarts afterwards.
        drop(wire);
        life.kill();
        let life = site.live_at(clock.clone());
        assert_eq!(row_of(&life), RowState::Started);
        let mut wire = Wire::with_jobs(&life, "worker-1", &[&job], &[]);
        clock.advance(599_000);
        assert_eq!(row_of(&life), RowState::Started);
        assert!(wire.messages.try_recv().is_err(), "nothing to end");
        clock.advance(2_000);
        row_of(&life);
        assert_eq!(wire.cancel().job, job);
    }
}

#[test]
fn the_master_waits_for_an_announced_return_and_a_real_one_replaces_its_conclusion() {
    let site = Site::new(TREE);
    let clock = Arc::new(ManualClock::at(1_800_000_000_000));
    let life = site.live_at(clock.clone());
    let mut wire = Wire::connect(&life, "worker-1");
    let args = json!({"sls": ["host"]});
    let stream = start(&life, "state.apply", "worker-1", args, 600);
    let job = wire.job();
    let row = || {
        let (jobs, job_id) = (Arc::clone(life.backend.jobs()), job.parse().unwrap());
        life.runtime.block_on(async {
            jobs.expire_parts().await.unwrap();
            let row = life.store.row(&job_id, &minion("worker-1")).await.unwrap();
            row.unwrap()
        })
    };
    // The stream broke after the job had ended; its return is large and late.
    drop(wire);
    let wire = Wire::with_jobs(&life, "worker-1", &[], &[&job]);
    clock.advance(300_000);
    assert_eq!(row().state, RowState::Started);
    // A minion that does not name the job has lost its journal.
    drop(wire);
    let wire = Wire::connect(&life, "worker-1");
    let found = row();
    assert_eq!((found.state, found.retcode), (RowState::Lost, Some(2)));
    assert!(error_of(&life.collect(stream), "worker-1").contains("no longer knows it"));
    // The journal was intact after all.
    wire.say(ToMaster::Returned(v1::JobReturn {
        job: job.clone(),
        return_json: "null".into(),
        ..v1::JobReturn::default()
    }));
    let found = row();
    assert_eq!((found.state, found.retcode), (RowState::Returned, Some(0)));
    let job = life.runtime.block_on(life.store.jobs(1)).unwrap().remove(0);
    assert_eq!(job.retcode, Some(0));
}

#[test]
fn what_waited_for_a_deleted_key_does_not_go_to_the_next_host_of_that_name() {
    let site = Site::new(TREE);
    let life = site.live();
    life.accept("worker-1");
    let args = json!({"sls": ["host"]});
    let waiting = start(&life, "state.apply", "worker-1", args, 600);
    let gone = async { life.backend.on_key_gone(&minion("worker-1")).await };
    life.runtime.block_on(gone).unwrap();
    let events = life.collect(waiting);
    assert_eq!(summary(&events)["lost"], json!(["worker-1"]));
    let error = error_of(&events, "worker-1");
    assert!(error.contains("was deleted or replaced"), "{error}");
    let next = ScriptedMinion::new("worker-1");
    life.connect(&next);
    life.run("test.ping", "worker-1", json!({}), false);
    let received = next.journal.lock().unwrap().received.clone();
    assert_eq!(received.len(), 1, "only the ping: {received:?}");
}
