//! A job, from its start to the last return.

use std::collections::BTreeMap;

use halite_proto::v1;
use halite_states::low::{RunReturn, StateReturn};
use serde_json::{Value, json};

use crate::cli::Global;
use crate::client::Operator;
use crate::event_stream::{Heard, follow, kind};
use crate::output::Screen;

/// One minion's return of a job.
#[derive(Debug, Clone, Default)]
pub struct MinionReturn {
    /// True if the function succeeded.
    pub success: bool,
    /// The returned value.
    pub value: Value,
    /// The reason of a failure, if it is known.
    pub error: String,
}

impl MinionReturn {
    /// Reads a `ret` event.
    pub fn from_event(data: &Value) -> Self {
        Self {
            success: data["success"].as_bool().unwrap_or(false),
            value: data["return"].clone(),
            error: data["error"].as_str().unwrap_or_default().to_owned(),
        }
    }

    /// The value as the return of a state run.
    pub fn run(&self) -> Option<RunReturn> {
        serde_json::from_value(self.value.clone()).ok()
    }
}

/// A finished job.
#[derive(Debug, Clone, Default)]
pub struct FinishedJob {
    /// The job id.
    pub jid: String,
    /// The return code of the job.
    pub retcode: i32,
    /// The hosts that were done side by side because etcd had no quorum, with the reason; usually null.
    pub side_by_side: Value,
    /// The minions that are updated ahead of a highstate, each time with the reason and what follows.
    pub minion_updates: Vec<Value>,
    /// The returns, by minion.
    pub returns: BTreeMap<String, MinionReturn>,
}

/// Starts a job and waits for its end, and shows its progress.
///
/// # Errors
/// The master refuses the job, or does not answer any more.
pub async fn run_job(
    global: &Global,
    request: v1::RunRequest,
    screen: &mut Screen,
) -> anyhow::Result<FinishedJob> {
    run_job_with(global, request, screen, |_, _, _| {}).await
}

/// As [`run_job`]; each return is handed to `returned` with the minion's id as it comes.
///
/// # Errors
/// The master refuses the job, or does not answer any more.
pub async fn run_job_with(
    global: &Global,
    request: v1::RunRequest,
    screen: &mut Screen,
    mut returned: impl FnMut(&str, &MinionReturn, &mut Screen),
) -> anyhow::Result<FinishedJob> {
    let request = v1::RunRequest {
        request_id: uuid::Uuid::now_v7().to_string(),
        ..request
    };
    let mut watch = JobWatch::default();
    let start = async |mut operator: Operator| {
        operator
            .run(request.clone())
            .await
            .map(|answer| answer.into_inner())
    };
    let followed = follow(global, start, |heard| match heard {
        Heard::Event(event) => watch.take(event, screen, &mut returned),
        Heard::Silence(line) => {
            let mark = screen.paint().notable("!");
            screen.note(format!("{mark} {line}"));
            false
        }
    });
    followed.await?;
    screen.clear();
    Ok(watch.done)
}

/// The state of a job, collected from its events. A highstate may come after a job that updates
/// minions.
#[derive(Default)]
struct JobWatch {
    done: FinishedJob,
    /// The returns of each job, by its id; later jobs have higher ones.
    returns: BTreeMap<String, BTreeMap<String, MinionReturn>>,
    /// The reason of the last wait that was printed, by host or by step.
    waits: BTreeMap<String, String>,
}

impl JobWatch {
    /// Takes an event. Returns true for the last one.
    fn take(
        &mut self,
        event: &v1::Event,
        screen: &mut Screen,
        returned: &mut dyn FnMut(&str, &MinionReturn, &mut Screen),
    ) -> bool {
        let data: Value = serde_json::from_str(&event.data_json).unwrap_or_default();
        if let Some(jid) = data["jid"].as_str() {
            self.done.jid = jid.to_owned();
        }
        match kind(&event.tag) {
            "prog" => {
                let minion = data["minion"].as_str().unwrap_or_default();
                screen.live().set(minion, &progress(&data));
            }
            "wait" => self.wait(&data, screen),
            "repair" => self.repair(&data, screen),
            "minion" => self.minion(&data, screen),
            "ret" => {
                let minion = data["minion"].as_str().unwrap_or_default().to_owned();
                screen.live().remove(&minion);
                let job = self.returns.entry(self.done.jid.clone()).or_default();
                let new = MinionReturn::from_event(&data);
                // Events are repeated when the connection broke.
                if !job.contains_key(&minion) {
                    returned(&minion, &new, screen);
                }
                job.insert(minion, new);
            }
            _ => {}
        }
        if event.last {
            self.done.retcode = event.retcode;
            self.done.returns = whole(std::mem::take(&mut self.returns));
        }
        event.last
    }

    /// Prints that minions are updated first, or that one was not; once, if the events are repeated.
    fn minion(&mut self, data: &Value, screen: &mut Screen) {
        let update =
            json!({"hosts": data["hosts"], "because": data["because"], "then": data["then"]});
        if !self.done.minion_updates.contains(&update) {
            let mark = screen.paint().notable("!");
            screen.note(format!("{mark} {}", minion_update(&update)));
            self.done.minion_updates.push(update);
        }
    }

    /// Prints what the job waits for: one line for hosts that are reported together, and another one when
    /// their reason has changed.
    fn wait(&mut self, data: &Value, screen: &mut Screen) {
        if self.is_news(data) {
            let mark = screen.paint().notable("!");
            screen.note(format!("{mark} {}", waiting(data)));
        }
    }

    /// Notes a wait; false for one that was printed.
    fn is_news(&mut self, data: &Value) -> bool {
        let reason = data["because"].as_str().unwrap_or_default();
        let hosts = data["hosts"].as_array();
        let step = hosts.is_none().then_some(&data["step"]);
        let mut is_news = false;
        for name in hosts.into_iter().flatten().chain(step) {
            let name = name.as_str().unwrap_or_default().to_owned();
            let before = self.waits.insert(name, reason.to_owned());
            is_news |= before.as_deref() != Some(reason);
        }
        is_news
    }

    /// Prints that hosts are not done one after the other.
    fn repair(&mut self, data: &Value, screen: &mut Screen) {
        let mark = screen.paint().notable("!");
        screen.note(format!("{mark} {}", side_by_side(data)));
        self.done.side_by_side = json!({"hosts": data["hosts"], "because": data["because"]});
    }
}

/// The returns of the last job. What an earlier one changed on the same host comes first.
fn whole(jobs: BTreeMap<String, BTreeMap<String, MinionReturn>>) -> BTreeMap<String, MinionReturn> {
    let mut all = BTreeMap::new();
    for (minion, mut returned) in jobs.into_values().flatten() {
        let before: Option<MinionReturn> = all.remove(&minion);
        let states = returned.value.get_mut("states");
        if let (Some(before), Some(states)) = (before, states.and_then(Value::as_array_mut)) {
            let before = before.value["states"].as_array().cloned();
            let changed = |state: &Value| {
                let changes = state["changes"].as_object();
                state["result"] == true && changes.is_some_and(|changes| !changes.is_empty())
            };
            let before = before.into_iter().flatten().filter(changed);
            states.splice(0..0, before);
        }
        all.insert(minion, returned);
    }
    all
}

/// Formats which minions are updated first, and why.
fn minion_update(update: &Value) -> String {
    let text = |key: &str| update[key].as_str().unwrap_or_default();
    format!(
        "{}: {}; {}",
        names(&update["hosts"]),
        text("because"),
        text("then")
    )
}

fn names(hosts: &Value) -> String {
    let hosts = hosts.as_array().into_iter().flatten();
    let hosts: Vec<&str> = hosts.filter_map(Value::as_str).collect();
    hosts.join(", ")
}

/// Formats which hosts are done side by side, and why.
fn side_by_side(data: &Value) -> String {
    let because = data["because"].as_str().unwrap_or_default();
    format!("{because}; done side by side: {}", names(&data["hosts"]))
}

/// Formats what a step waits for, since when, how long it usually takes, and what the operator can do.
pub fn waiting(data: &Value) -> String {
    let text = |key: &str| data[key].as_str().unwrap_or_default();
    let usual = match data["usual"].as_u64() {
        Some(usual) => format!(" (usually {usual} s here)"),
        None => String::new(),
    };
    let mut line = format!(
        "{}: waiting for {} s{usual} until {}: {}",
        text("step"),
        data["seconds"],
        text("until"),
        text("because")
    );
    if !text("remedy").is_empty() {
        line.push_str(&format!("; {}", text("remedy")));
    }
    line
}

/// One line about the state that a minion applies.
pub fn progress(data: &Value) -> String {
    format!(
        "{}  {}/{}  {} {}",
        data["minion"].as_str().unwrap_or_default(),
        data["index"].as_u64().unwrap_or(0) + 1,
        data["total"],
        data["state"]["function"].as_str().unwrap_or_default(),
        data["state"]["name"].as_str().unwrap_or_default(),
    )
}

/// The failed states of a `ret` event, for people; nothing if the function succeeded.
pub fn failures(data: &Value) -> Vec<String> {
    if data["success"].as_bool().unwrap_or(false) {
        return Vec::new();
    }
    let minion = data["minion"].as_str().unwrap_or_default();
    let returned = MinionReturn::from_event(data);
    let mut found: Vec<String> = returned
        .run()
        .map(|run| failed_states(minion, &run))
        .unwrap_or_default();
    if found.is_empty() {
        found.push(format!(
            "{minion}: {}",
            if returned.error.is_empty() {
                "failed"
            } else {
                &returned.error
            }
        ));
    }
    found
}

/// The failed states of a run, as `worker-1: file.managed /etc/x (base.x): COMMENT`. States that
/// failed only because of a requisite are left out.
pub fn failed_states(minion: &str, run: &RunReturn) -> Vec<String> {
    let failed = |state: &&StateReturn| state.result == Some(false) && state.fail_run;
    let line = |state: &StateReturn| {
        format!(
            "{minion}: {} {} ({}): {}",
            state.function,
            state.name,
            state.sls,
            state.comment.trim()
        )
    };
    let own: Vec<String> = run
        .states
        .iter()
        .filter(failed)
        .filter(|state| state.ran)
        .map(line)
        .collect();
    if own.is_empty() {
        run.states.iter().filter(failed).map(line).collect()
    } else {
        own
    }
}

/// A finished job as a document.
pub fn job_document(done: &FinishedJob) -> Value {
    let (mut changed, mut failed, mut total) = (0, 0, 0);
    let mut minions = serde_json::Map::new();
    for (minion, returned) in &done.returns {
        let mut entry = json!({"success": returned.success});
        if !returned.error.is_empty() {
            entry["error"] = json!(returned.error);
        }
        match returned.run() {
            Some(run) => {
                changed += run.changed();
                failed += run.failed();
                total += run.states.len();
                entry["total"] = json!(run.states.len());
                entry["changed"] = json!(run.changed());
                entry["failed"] = json!(run.failed());
                entry["states"] = json!(run.states);
            }
            None => entry["return"] = returned.value.clone(),
        }
        minions.insert(minion.clone(), entry);
    }
    let mut document = json!({"job": done.jid, "retcode": done.retcode, "states": total, "changed": changed,
        "failed": failed, "minions": minions});
    if !done.side_by_side.is_null() {
        document["sideBySide"] = done.side_by_side.clone();
    }
    if !done.minion_updates.is_empty() {
        document["minionUpdates"] = json!(done.minion_updates);
    }
    document
}

#[cfg(test)]
#[path = "job_watch_tests.rs"]
mod tests;
