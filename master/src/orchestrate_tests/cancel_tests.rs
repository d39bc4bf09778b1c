//! Runs that an operator ends: in each kind of wait, while a job runs, and over a restart of the
//! master.

use std::sync::Arc;

use futures_util::StreamExt as _;
use halite_api::{RunCancellation, RunList, RunStatus as RunEnd};
use halite_core::event_stream::EventStream;
use halite_core::refusal::{Refusal, RefusalKind};
use halite_proto::ids::JobId;
use halite_proto::v1;
use halite_proto::v1::minion_message::Body;
use halite_store::{Run, RunStatus};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::fixture::{newest_run, orchestrate, request, resumed};
use super::stall_fixture::{begin, site};
use crate::backend::fixture::{Life, ScriptedMinion};
use crate::backend::wire::Wire;

fn cancel(life: &Life, run: &JobId) -> Result<RunCancellation, Refusal> {
    life.runtime.block_on(life.backend.cancel_run(run, "alice"))
}

/// The same, in the background: it waits for the end of the run.
fn cancelling(life: &Life, run: &JobId) -> JoinHandle<Result<RunCancellation, Refusal>> {
    let (backend, run) = (Arc::clone(&life.backend), run.clone());
    life.runtime
        .spawn(async move { backend.cancel_run(&run, "alice").await })
}

/// The return code of a run, and the data of its last event.
fn end(life: &Life, events: EventStream) -> (i32, Value) {
    let events = life.collect(events);
    let last = events.last().unwrap();
    (last.retcode, serde_json::from_str(&last.data_json).unwrap())
}

/// The end of a run that was cancelled in its last started step; the step's only error is the
/// cancellation.
fn assert_cancelled(data: &Value, step: &str) {
    assert_eq!(data["status"], "cancelled", "{data}");
    assert_eq!(data["cancelledBy"], "alice", "{data}");
    let steps = data["steps"].as_array().unwrap();
    let own = steps.iter().find(|own| own["name"] == step).unwrap();
    assert_eq!(own["status"], "failed", "{data}");
    assert_eq!(own["detail"]["error"], "cancelled by alice", "{data}");
}

fn stored(life: &Life, run: &JobId) -> Run {
    let run = life.runtime.block_on(life.store.run(run));
    run.unwrap().unwrap()
}

#[test]
fn each_wait_ends_when_its_run_is_cancelled() {
    let site = site();
    let life = site.live();
    for sls in ["disk", "dns", "quorum", "enrol", "pdb"] {
        let (run, events) = life.runtime.block_on(begin(&life, sls));
        let answer = cancel(&life, &run).unwrap();
        assert_eq!(answer.status, RunEnd::Cancelled, "{sls}: {answer:?}");
        let (retcode, data) = end(&life, events);
        assert_eq!(retcode, 1, "{sls}: {data}");
        assert_cancelled(&data, "step");
        let stored = stored(&life, &run);
        assert_eq!(stored.status, RunStatus::Cancelled);
        assert_eq!(stored.cancelled_by.as_deref(), Some("alice"));
    }
    // The drain had started. The same command continues it when the budget allows.
    let node = site.api.object("Node", "worker-1").unwrap();
    assert_eq!(node["spec"]["unschedulable"], true, "{node}");
    assert!(site.api.object("Pod", "web").is_some());
    site.api.held.lock().unwrap().clear();
    let again = request("orchestrate.pdb", &json!({}));
    let (retcode, data) = orchestrate(&life, again);
    assert_eq!(retcode, 0, "{data}");
    assert!(site.api.object("Pod", "web").is_none());
    life.kill();
}

#[test]
fn a_step_is_not_tried_again_when_its_run_is_cancelled() {
    let site = site();
    let life = site.live();
    let (run, events) = life.runtime.block_on(async {
        let (run, mut events) = begin(&life, "again").await;
        loop {
            let event = events.next().await.expect("it waits").unwrap();
            let data: Value = serde_json::from_str(&event.data_json).unwrap();
            if data["step"]["status"] == "failed" {
                return (run, events);
            }
        }
    });
    let answer = cancel(&life, &run).unwrap();
    assert_eq!(answer.status, RunEnd::Cancelled, "{answer:?}");
    let (retcode, data) = end(&life, events);
    assert_eq!(retcode, 1, "{data}");
    life.kill();
}

#[test]
fn the_lock_of_a_cancelled_run_is_free_and_one_that_waits_for_it_leaves_it_alone() {
    let site = site();
    let life = site.live();
    let (holder, holds) = life.runtime.block_on(begin(&life, "enrol"));
    let (waiting, waits) = life.runtime.block_on(begin(&life, "lock"));
    cancel(&life, &waiting).unwrap();
    assert_cancelled(&end(&life, waits).1, "step");
    assert_eq!(stored(&life, &holder).status, RunStatus::Running);
    let (next, waits) = life.runtime.block_on(begin(&life, "lock"));
    assert_ne!(next, waiting, "a run that has ended is not joined");
    cancel(&life, &holder).unwrap();
    assert_cancelled(&end(&life, holds).1, "step");
    let (retcode, data) = end(&life, waits);
    assert_eq!(retcode, 0, "{data}");
    life.kill();
}

#[test]
fn the_job_of_a_step_is_cancelled_and_no_further_step_begins() {
    for (retcode, wanted) in [(1, "failed"), (0, "succeeded")] {
        let site = site();
        let life = site.live();
        let mut wire = Wire::connect(&life, "worker-1");
        let (run, events) = life.runtime.block_on(begin(&life, "two"));
        let job = wire.job();
        let cancelling = cancelling(&life, &run);
        let asked = wire.cancel();
        assert_eq!(
            (asked.job.as_str(), asked.reason.as_str(), asked.force),
            (job.as_str(), "cancelled by alice", false)
        );
        // It may have finished by then.
        wire.say(Body::Returned(v1::JobReturn {
            job,
            retcode,
            return_json: json!({"states": []}).to_string(),
            error: String::new(),
        }));
        let (code, data) = end(&life, events);
        assert_eq!((code, &data["status"]), (1, &json!("cancelled")), "{data}");
        assert_eq!(data["steps"][0]["status"], wanted, "{data}");
        assert_eq!(data["steps"][1]["status"], "skipped", "{data}");
        let answer = life.runtime.block_on(cancelling).unwrap().unwrap();
        assert_eq!(answer.status, RunEnd::Cancelled, "{answer:?}");
        let jobs = life.runtime.block_on(life.store.jobs(9)).unwrap();
        assert_eq!(jobs.len(), 1, "{jobs:?}");
        life.kill();
    }
}

#[test]
fn the_job_of_a_host_that_is_away_ends_at_once() {
    let site = site();
    let life = site.live();
    let mut wire = Wire::connect(&life, "worker-1");
    let (run, events) = life.runtime.block_on(begin(&life, "two"));
    wire.job();
    drop(wire);
    let answer = cancel(&life, &run).unwrap();
    assert_eq!(answer.status, RunEnd::Cancelled, "{answer:?}");
    let (_, data) = end(&life, events);
    let error = data["steps"][0]["detail"]["error"].as_str().unwrap();
    assert!(error.contains("worker-1: cancelled by alice"), "{data}");
    life.kill();
}

/// The request is on disk, and the master is killed before it acts on it.
#[test]
fn a_restarted_master_does_not_continue_a_cancelled_run() {
    let site = site();
    let life = site.live();
    let mut wire = Wire::connect(&life, "worker-1");
    let (on_host, _) = life.runtime.block_on(begin(&life, "two"));
    wire.job();
    let (holder, _) = life.runtime.block_on(begin(&life, "enrol"));
    let now = life.app.clock.now();
    for run in [&on_host, &holder] {
        let noted = life.store.cancel_run(run, "alice", now);
        assert!(life.runtime.block_on(noted).unwrap());
    }
    drop(wire);
    life.kill();

    let life = site.live();
    // It gets no further job.
    let worker = ScriptedMinion::new("worker-1");
    life.connect(&worker);
    for (run, step) in [(&on_host, "first"), (&holder, "step")] {
        let run = stored(&life, run);
        let (retcode, data) = resumed(&life, &run);
        let data: Value = serde_json::from_str(&data).unwrap();
        assert_eq!(retcode, 1, "{data}");
        assert_cancelled(&data, step);
    }
    assert!(worker.journal.lock().unwrap().applied.is_empty());
    // The lock is free.
    let (retcode, data) = orchestrate(&life, request("orchestrate.lock", &json!({})));
    assert_eq!(retcode, 0, "{data}");
    life.kill();
}

/// The state after a panic in a step.
#[test]
fn a_run_on_which_no_task_works_ends_when_it_is_cancelled() {
    let site = site();
    let life = site.live();
    let (run, events) = life.runtime.block_on(begin(&life, "disk"));
    cancel(&life, &run).unwrap();
    end(&life, events);
    let opened = life.store.update_run(&run, RunStatus::Running, 0, 1);
    life.runtime.block_on(opened).unwrap();
    let answer = cancel(&life, &run).unwrap();
    assert_eq!(answer.status, RunEnd::Cancelled, "{answer:?}");
    life.kill();
}

/// The master is killed after each event of the end in turn.
#[test]
fn an_end_that_was_killed_at_any_event_is_the_same() {
    for kill_after in 1.. {
        let site = site();
        let life = site.live();
        let (run, events) = life.runtime.block_on(begin(&life, "enrol"));
        // It waits for the end of the run, and ends with the master.
        drop(cancelling(&life, &run));
        let seen = life.runtime.block_on(events.take(kill_after).count());
        life.kill();

        let life = site.live();
        let (retcode, data) = resumed(&life, &stored(&life, &run));
        let data: Value = serde_json::from_str(&data).unwrap();
        assert_eq!(retcode, 1, "killed after {kill_after}: {data}");
        assert_cancelled(&data, "step");
        let turn = orchestrate(&life, request("orchestrate.lock", &json!({})));
        assert_eq!(turn.0, 0, "killed after {kill_after}: {}", turn.1);
        life.kill();
        if seen < kill_after {
            return;
        }
    }
}

#[test]
fn a_run_that_is_ending_is_not_joined_and_one_that_has_ended_cannot_be_cancelled() {
    let site = site();
    let life = site.live();
    let mut wire = Wire::connect(&life, "worker-1");
    let (run, events) = life.runtime.block_on(begin(&life, "two"));
    let job = wire.job();
    let cancelling = cancelling(&life, &run);
    wire.cancel();
    let other = v1::OrchestrateRequest {
        request_id: "another".to_owned(),
        ..request("orchestrate.two", &json!({}))
    };
    let joined = life
        .runtime
        .block_on(life.backend.orchestrate("root", other));
    let refused = joined.err().unwrap();
    assert_eq!(refused.kind, RefusalKind::Conflict);
    assert!(
        refused.message.contains("it was cancelled by alice"),
        "{refused}"
    );
    wire.returns(&job, "cancelled by alice");
    end(&life, events);
    life.runtime.block_on(cancelling).unwrap().unwrap();

    let refused = cancel(&life, &run).unwrap_err();
    assert!(
        refused.message.contains("it has ended (cancelled)"),
        "{refused}"
    );
    let job: JobId = job.parse().unwrap();
    let refused = cancel(&life, &job).unwrap_err();
    assert!(refused.message.contains("ctl job cancel"), "{refused}");
    let refused = cancel(&life, &JobId::from_number(1)).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::NotFound);
    let refused = life
        .runtime
        .block_on(life.backend.cancel_job(&run, "alice", false))
        .unwrap_err();
    assert!(
        refused.message.contains("ctl orchestrate cancel"),
        "{refused}"
    );
    life.kill();
}

#[test]
fn runs_are_listed_with_their_step_and_who_cancelled_them() {
    let site = site();
    let life = site.live();
    let (first, events) = life.runtime.block_on(begin(&life, "disk"));
    cancel(&life, &first).unwrap();
    end(&life, events);
    let (_, _events) = life.runtime.block_on(begin(&life, "enrol"));
    let request = v1::ShowRequest {
        what: "runs".to_owned(),
        ..v1::ShowRequest::default()
    };
    let listed = life.runtime.block_on(life.backend.show(request)).unwrap();
    let listed = halite_api::from_text::<RunList>(&listed.json).unwrap().runs;
    assert_eq!(newest_run(&life).id, listed[0].run);
    assert_eq!(
        (&listed[0].status, listed[0].step.as_deref()),
        (&RunEnd::Running, Some("step"))
    );
    assert_eq!(
        (&listed[1].status, listed[1].cancelled_by.as_deref()),
        (&RunEnd::Cancelled, Some("alice"))
    );
    assert_eq!(listed[1].step, None);
    life.kill();
}
