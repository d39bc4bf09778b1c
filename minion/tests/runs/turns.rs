//! Turns: a run asks its master before it restarts services.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use halite_minion::host::{HostFuture, HostResult, Stop};
use halite_minion::runner::Runner;
use halite_minion::turns::{Turn, Turns};
use halite_minion_fake::FakeHost;
use halite_states::engine::Modules as _;
use halite_states::low::Chunk;
use serde_json::json;

/// A state that requires a service to run.
fn running(unit: &str) -> Chunk {
    serde_json::from_value(json!({
        "state": "service", "fun": "running", "id": unit, "name": unit, "sls": "test",
        "source": {"file": "test.sls", "line": 1, "column": 1}, "args": {},
    }))
    .unwrap()
}

/// A master that gives these answers, and ends a job that asks once more.
struct Answers {
    answers: Mutex<VecDeque<Turn>>,
    stop: Arc<Stop>,
    asked: Mutex<Vec<String>>,
}

impl Answers {
    fn new(answers: impl IntoIterator<Item = Turn>) -> Arc<Self> {
        Arc::new(Self {
            answers: Mutex::new(answers.into_iter().collect()),
            stop: Arc::default(),
            asked: Mutex::default(),
        })
    }
}

impl Turns for Answers {
    fn ask<'a>(&'a self, unit: &'a str) -> HostFuture<'a, HostResult<Turn>> {
        self.asked.lock().unwrap().push(unit.to_owned());
        let answer = self.answers.lock().unwrap().pop_front();
        let answer = answer.unwrap_or_else(|| {
            self.stop.request("cancelled by root");
            Turn::Waits("1 of 1 hosts out: worker-2".to_owned())
        });
        Box::pin(std::future::ready(Ok(answer)))
    }
}

/// Restarts two services that run, and starts one that does not, with these answers for turns.
/// Returns the number of questions, the number of starts of each unit, and the failure.
async fn restart(answers: &Arc<Answers>) -> (usize, Vec<u64>, Option<String>) {
    let units = ["new.service", "containerd.service", "kubelet.service"];
    let host = FakeHost::new();
    for unit in units {
        host.state().put_unit(unit, unit != "new.service", true);
    }
    let runner = Runner::new(&host)
        .stoppable(Arc::clone(&answers.stop))
        .with_turns(Arc::clone(answers) as _);
    let mut failed = None;
    for unit in units {
        let service = running(unit);
        let found = runner.watch(&service).await.unwrap().unwrap();
        if let Err(failure) = runner.apply(&service, &found.diff).await {
            failed = Some(failure.to_string());
            break;
        }
    }
    let state = host.state();
    let starts = |unit: &&str| state.starts.get(*unit).copied().unwrap_or_default();
    let starts = units.iter().map(starts).collect();
    let asked = answers.asked.lock().unwrap();
    (asked.len(), starts, failed)
}

#[tokio::test]
async fn a_run_takes_one_turn_for_all_its_restarts() {
    let waits = || Turn::Waits("1 of 1 hosts out: worker-2".to_owned());
    let answers = Answers::new([waits(), waits(), Turn::Taken]);
    assert_eq!(restart(&answers).await, (3, vec![1, 1, 1], None));
    let asked = answers.asked.lock().unwrap();
    assert_eq!(*asked, ["containerd.service"; 3]);
}

#[tokio::test]
async fn a_service_is_not_restarted_without_a_turn() {
    let because = "not restarted: worker-2 failed after a restart".to_owned();
    let answers = Answers::new([Turn::Refused(because.clone())]);
    assert_eq!(restart(&answers).await, (1, vec![1, 0, 0], Some(because)));
}

#[tokio::test]
async fn a_run_that_waits_for_its_turn_can_be_cancelled() {
    let answers = Answers::new([]);
    let cancelled = Some("cancelled by root".to_owned());
    assert_eq!(restart(&answers).await, (1, vec![1, 0, 0], cancelled));
}
