//! Pending triggers across runs, over a host in memory.

use std::sync::Arc;

use halite_minion::host::Stop;
use halite_minion::journal::{Directory, RecordStore as _};
use halite_minion::pending_triggers::PendingTriggers;
use halite_minion::runner::Runner;
use halite_minion_fake::FakeHost;
use halite_states::engine::RunOptions;
use halite_states::low::{Chunk, FORMAT, LowState};
use halite_states::run::run;
use serde_json::{Value, json};

fn chunk(state: &str, fun: &str, name: &str, args: Value) -> Chunk {
    let source = json!({"file": "test.sls", "line": 1, "column": 1});
    let all = json!({"state": state, "fun": fun, "id": name, "name": name, "sls": "test", "source": source,
        "args": args});
    serde_json::from_value(all).unwrap()
}

#[tokio::test]
async fn a_service_restarts_in_the_next_run_when_this_one_ends_after_its_file() {
    let host = FakeHost::new();
    host.state().put_unit("a.service", true, true);
    let mut service = chunk("service", "running", "a", json!({}));
    service.requisites.watch = vec![0];
    let file = chunk("file", "managed", "/etc/a", json!({"contents": "new"}));
    let low = LowState {
        format: FORMAT,
        minion: "m".into(),
        chunks: vec![file, service],
    };
    let dir = tempfile::tempdir().unwrap();
    let records = Directory(dir.path().join("pending-triggers"));
    let runner =
        || Runner::new(&host).with_pending(Some(PendingTriggers::open(records.clone()).unwrap()));
    let starts = || {
        host.state()
            .starts
            .get("a.service")
            .copied()
            .unwrap_or_default()
    };
    let stop = Arc::new(Stop::default());
    let first = runner().stoppable(Arc::clone(&stop));
    let cut = run(&low, &first, RunOptions::default(), |_| {
        stop.request("the power goes")
    })
    .await;
    assert!(!cut.succeeded() && host.text("/etc/a").is_some());
    assert_eq!(starts(), 0);
    let [name] = &records.names().unwrap()[..] else {
        panic!("one record")
    };
    let wanted = "file_|-/etc/a_|-/etc/a_|-managed in test triggers service_|-a_|-a_|-running\n";
    assert_eq!(records.get(name).unwrap().unwrap(), wanted.as_bytes());
    for wanted in [1, 1] {
        let again = run(&low, &runner(), RunOptions::default(), |_| {}).await;
        assert!(again.succeeded());
        assert_eq!(starts(), wanted);
    }
    assert!(records.names().unwrap().is_empty());
}
