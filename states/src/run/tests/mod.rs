//! Tests of the engine: scripted modules, and the helpers that run chunks on them.

mod listeners;
mod prereq;
mod requisites;
mod triggers;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::run;
use crate::engine::{Applied, Checked, Failure, Modules, RunOptions};
use crate::low::{Chunk, Controls, FORMAT, LowState, Requisites, RunReturn};

/// Modules that act as the chunk's arguments say (`fail`, `change`, `mod_watch`, `only_enables`,
/// `fail_times`, `fails_halfway`, `slow_check`, `slow`, `hang`) and log each call.
#[derive(Default)]
struct Scripted {
    log: Mutex<Vec<String>>,
    /// Pending triggers: ids of the changed state and of the watcher.
    pending: Mutex<BTreeSet<(String, String)>>,
    /// The reason to end the run, if there is one.
    stop: watch::Sender<Option<String>>,
}

impl Scripted {
    fn record(&self, what: &str, chunk: &Chunk) {
        self.log
            .lock()
            .unwrap()
            .push(format!("{what} {}", chunk.id));
    }

    fn says(chunk: &Chunk, what: &str) -> bool {
        chunk
            .args
            .get(what)
            .and_then(Value::as_bool)
            .unwrap_or(false)
    }
}

impl Modules for Scripted {
    type Diff = ();

    fn includes_watch(&self, chunk: &Chunk, (): &()) -> bool {
        !Self::says(chunk, "only_enables")
    }

    async fn check(&self, chunk: &Chunk) -> Result<Checked<()>, Failure> {
        self.record("check", chunk);
        let tries = self
            .log
            .lock()
            .unwrap()
            .iter()
            .filter(|line| **line == format!("check {}", chunk.id))
            .count();
        let fail_times = chunk
            .args
            .get("fail_times")
            .and_then(Value::as_u64)
            .unwrap_or(0) as usize;
        if Self::says(chunk, "fail") || tries <= fail_times {
            return Err(Failure::new("Failure!"));
        }
        if Self::says(chunk, "slow_check") {
            yield_once().await;
        }
        let mut checked = Checked {
            comment: "Success!".into(),
            ..Checked::default()
        };
        let applied = format!("apply {}", chunk.id);
        let is_done =
            Self::says(chunk, "fails_halfway") && self.log.lock().unwrap().contains(&applied);
        if Self::says(chunk, "change") && !is_done {
            checked
                .changes
                .insert("predicted".into(), json!("secret text"));
        }
        Ok(checked)
    }

    async fn apply(&self, chunk: &Chunk, _: &()) -> Result<Applied, Failure> {
        self.record("apply", chunk);
        if Self::says(chunk, "fails_halfway") {
            return Err(Failure::new("failed after the change"));
        }
        if Self::says(chunk, "slow") {
            yield_once().await;
        }
        if Self::says(chunk, "hang") {
            std::future::pending::<()>().await;
        }
        match chunk.args.get("applied") {
            Some(Value::Object(changes)) => Ok(Applied {
                changes: changes.clone(),
                comment: "done".into(),
            }),
            _ => Ok(Applied::default()),
        }
    }

    async fn predict(&self, chunk: &Chunk, _: &()) {
        self.record("predict", chunk);
    }

    async fn watch(&self, chunk: &Chunk) -> Option<Result<Checked<()>, Failure>> {
        Self::says(chunk, "mod_watch").then(|| {
            self.record("watch", chunk);
            let changes = json!({"restarted": true});
            Ok(Checked {
                changes: changes.as_object().cloned().unwrap_or_default(),
                comment: "Watch statement fired.".into(),
                diff: (),
            })
        })
    }

    async fn condition(&self, _: &Chunk, condition: &Value) -> Result<bool, Failure> {
        Ok(condition == "true")
    }

    async fn exists(&self, path: &str) -> bool {
        path == "/there"
    }

    fn record_trigger(&self, chunk: &Chunk, watchers: &[&Chunk]) -> Result<(), Failure> {
        if Self::says(chunk, "disk_full") && !watchers.is_empty() {
            return Err(Failure::new("no space left"));
        }
        let pairs = watchers
            .iter()
            .map(|watcher| (chunk.id.clone(), watcher.id.clone()));
        self.pending.lock().unwrap().extend(pairs);
        Ok(())
    }

    fn is_pending(&self, chunk: &Chunk, watcher: &Chunk) -> bool {
        self.pending
            .lock()
            .unwrap()
            .contains(&(chunk.id.clone(), watcher.id.clone()))
    }

    fn clear_trigger(&self, chunk: &Chunk, watcher: &Chunk) {
        self.pending
            .lock()
            .unwrap()
            .remove(&(chunk.id.clone(), watcher.id.clone()));
    }

    async fn stopped(&self) -> String {
        let mut stop = self.stop.subscribe();
        let reason = stop.wait_for(Option::is_some).await.unwrap();
        reason.clone().unwrap()
    }
}

/// Yields once, like a state that waits.
async fn yield_once() {
    let mut first = true;
    std::future::poll_fn(move |context| {
        if std::mem::take(&mut first) {
            context.waker().wake_by_ref();
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            return value;
        }
    }
}

fn chunk(id: &str, args: Value) -> Chunk {
    Chunk {
        state: "test".into(),
        fun: "state".into(),
        id: id.into(),
        name: id.into(),
        sls: "s".into(),
        source: crate::low::Position::default(),
        args: args.as_object().cloned().unwrap_or_default(),
        requisites: Requisites::default(),
        controls: Controls::default(),
        sensitive: false,
    }
}

fn go(chunks: Vec<Chunk>, test: bool) -> (RunReturn, Vec<String>, Vec<String>) {
    let low = LowState {
        format: FORMAT,
        minion: "m".into(),
        chunks,
    };
    let modules = Scripted::default();
    let mut reported = Vec::new();
    let result = block_on(run(&low, &modules, RunOptions { test }, |state| {
        reported.push(state.id.clone())
    }));
    (result, modules.log.into_inner().unwrap(), reported)
}

fn results(run: &RunReturn) -> Vec<(&str, Option<bool>, bool)> {
    run.states
        .iter()
        .map(|s| (s.id.as_str(), s.result, s.ran))
        .collect()
}
