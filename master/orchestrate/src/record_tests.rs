//! Reports of a waiting step reach those who watch its run, and a run that has ended stays ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use halite_cluster::kubernetes::access::Clusters;
use halite_core::app::App;
use halite_core::clock::SystemClock;
use halite_core::config::Config;
use halite_core::declared::Declarations;
use halite_core::init::init;
use halite_fleet::jobs::Jobs;
use halite_store::{Run, RunStatus, Step, StepStatus, Store};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Orchestrator;
use super::cancel::Cancellation;
use super::record::Recorder;
use super::steps_watch::follow;

/// The jobs of a master without minions.
async fn jobs(directory: &TempDir) -> Arc<Jobs> {
    let text = format!(
        "cluster: prod\nadvertise: [10.0.0.1]\nstate_dir: {0}/state\nconfig_dir: {0}/etc\n",
        directory.path().display()
    );
    let config = Config::parse(&text).unwrap();
    init(&config, 1_800_000_000_000).unwrap();
    let file = config.state_dir.join("store.db");
    let store = Arc::new(Store::open(&file).await.unwrap());
    let app = App::open(config, Arc::new(SystemClock), store);
    let app = app.await.unwrap();
    let declarations = Arc::new(Declarations::new(&app));
    let clusters = Arc::new(Clusters::new(Arc::clone(&app)));
    Jobs::open(app, declarations, clusters).await.unwrap()
}

/// A run of one step, and this step.
fn run() -> (Run, Vec<Step>) {
    let run = Run {
        id: "20261121000000123009".parse().unwrap(),
        sls: "orchestrate.wait".to_owned(),
        pillar_json: "{}".to_owned(),
        test: false,
        operator: "root".to_owned(),
        request_id: None,
        low_json: "{}".to_owned(),
        status: RunStatus::Running,
        current: 0,
        cancelled_by: None,
        paused_by: None,
        created: 0,
        changed: 0,
    };
    let step = Step {
        run: run.id.clone(),
        index: 0,
        name: "enrolled".to_owned(),
        status: StepStatus::Running,
        detail_json: "{}".to_owned(),
        started: Some(0),
        ended: None,
    };
    (run, vec![step])
}

#[tokio::test]
async fn those_who_watch_a_run_hear_what_a_step_waits_for() {
    let directory = tempfile::tempdir().unwrap();
    let jobs = jobs(&directory).await;
    let (run, steps) = run();
    let app = jobs.app();
    app.store.create_run(&run, &steps).await.unwrap();
    let bus = app.events.subscribe();
    let mut events = follow(Arc::clone(&jobs), run.id.clone(), bus);
    let cancellation = Arc::new(Cancellation::of_run(&run));
    let recorder = Recorder::new(Arc::clone(&jobs), run, cancellation, steps);
    let wait = halite_etcd::Wait {
        until: "worker-1 is connected".into(),
        because: "it has not enrolled".into(),
        since: Duration::from_secs(10),
        limit: Duration::from_secs(600),
    };
    let usual = Some(Duration::from_secs(4));
    let noted = recorder.note_wait(0, &wait, usual, "enrol it").await;
    noted.unwrap();
    let waits = loop {
        let event = events.next().await.unwrap().unwrap();
        if event.tag.ends_with("/wait") {
            break serde_json::from_str::<Value>(&event.data_json).unwrap();
        }
    };
    assert_eq!(waits["step"], "enrolled");
    assert_eq!(waits["until"], "worker-1 is connected");
    assert_eq!(waits["because"], "it has not enrolled");
    assert_eq!(
        (&waits["seconds"], &waits["limit"]),
        (&json!(10), &json!(600))
    );
    assert_eq!(
        (&waits["usual"], &waits["remedy"]),
        (
            &json!(4),
            &json!(format!(
                "enrol it; `ctl orchestrate cancel {}` ends this run",
                waits["run"].as_str().unwrap()
            ))
        )
    );
}

#[tokio::test]
async fn a_run_that_has_ended_since_it_was_read_is_not_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let jobs = jobs(&directory).await;
    let (mut run, mut steps) = run();
    let chunk = json!({"state": "test", "fun": "nop", "id": "enrolled", "name": "enrolled",
        "sls": run.sls, "source": {"file": "a", "line": 1, "column": 1}});
    // The steps of a test run do not wait for standbys.
    run.test = true;
    run.low_json = json!({"format": 1, "minion": "master", "chunks": [chunk]}).to_string();
    steps[0].status = StepStatus::Failed;
    let ended = Run {
        status: RunStatus::Failed,
        ..run.clone()
    };
    let store = &jobs.app().store;
    store.create_run(&ended, &steps).await.unwrap();
    let orchestrator = Orchestrator::new(Arc::clone(&jobs));
    orchestrator.begin(run);
    let mut active = orchestrator.active.subscribe();
    let idle = active.wait_for(BTreeMap::is_empty);
    let idle = tokio::time::timeout(Duration::from_secs(60), idle).await;
    idle.expect("it must end").unwrap();
    assert_eq!(store.steps(&ended.id).await.unwrap(), steps);
    assert_eq!(store.run(&ended.id).await.unwrap(), Some(ended));
}
