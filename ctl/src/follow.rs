//! Following what the master does: jobs and orchestrations, event by event, over a master's restart
//! too.

use std::collections::BTreeMap;
use std::time::Instant;

use halite_proto::tonic::{Code, Status, Streaming};
use halite_proto::v1;
use halite_states::low::{RunReturn, StateReturn};
use serde_json::{Value, json};

use crate::cli::Global;
use crate::client;
use crate::client::{AWAY, Operator};
use crate::output::{Screen, seconds};

/// One minion's part of a job.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// It was done, and well.
    pub success: bool,
    /// What it returned.
    pub value: Value,
    /// Why it failed, where that is known.
    pub error: String,
}

impl Part {
    /// The value as the return of a state run.
    pub fn run(&self) -> Option<RunReturn> {
        serde_json::from_value(self.value.clone()).ok()
    }
}

/// A finished job.
#[derive(Debug, Clone, Default)]
pub struct JobDone {
    /// Its id.
    pub jid: String,
    /// Return code of the whole.
    pub retcode: i32,
    /// By minion.
    pub parts: BTreeMap<String, Part>,
}

/// Starts a job and follows it to its end.
///
/// # Errors
/// The master refuses it, or goes away and does not come back.
pub async fn job(
    global: &Global,
    request: v1::RunRequest,
    screen: &mut Screen,
) -> anyhow::Result<JobDone> {
    let request = v1::RunRequest {
        request_id: uuid::Uuid::now_v7().to_string(),
        ..request
    };
    let mut follower = JobFollower::default();
    let start = async |mut operator: Operator| {
        operator
            .run(request.clone())
            .await
            .map(|answer| answer.into_inner())
    };
    to_the_end(global, start, |event| follower.take(event, screen)).await?;
    screen.clear();
    Ok(follower.done)
}

/// Repeats a call with the same request id until its last event has come; the master attaches it to
/// what is going on.
async fn to_the_end(
    global: &Global,
    start: impl AsyncFn(Operator) -> Result<Streaming<v1::Event>, Status>,
    mut take: impl FnMut(&v1::Event) -> bool,
) -> anyhow::Result<()> {
    let mut lost_since: Option<Instant> = None;
    loop {
        let attempt = async {
            let operator = client::operator(global).await.map_err(Broken::Connection)?;
            let mut events = start(operator).await.map_err(Broken::Call)?;
            lost_since = None;
            while let Some(event) = events.message().await.map_err(Broken::Call)? {
                if take(&event) {
                    return Ok(());
                }
            }
            Err(Broken::Call(Status::unavailable(
                "the master ended the stream before the end",
            )))
        };
        let broken = match attempt.await {
            Ok(()) => return Ok(()),
            Err(broken) => broken,
        };
        let (error, passing) = match broken {
            // The very first connection tells at once what is wrong.
            Broken::Connection(error) => (error, lost_since.is_some()),
            Broken::Call(status) => (client::refused(&status), is_passing(&status)),
        };
        let since = *lost_since.get_or_insert_with(Instant::now);
        if !passing || since.elapsed() > AWAY {
            return Err(error);
        }
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
}

enum Broken {
    Connection(anyhow::Error),
    Call(Status),
}

/// Whether the connection broke, rather than that the master said no.
fn is_passing(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::Cancelled | Code::Unknown
    )
}

#[derive(Default)]
struct JobFollower {
    done: JobDone,
}

impl JobFollower {
    /// Notes an event; true on the last one.
    fn take(&mut self, event: &v1::Event, screen: &mut Screen) -> bool {
        let data: Value = serde_json::from_str(&event.data_json).unwrap_or_default();
        if let Some(jid) = data["jid"].as_str() {
            self.done.jid = jid.to_owned();
        }
        match kind(&event.tag) {
            "prog" => screen.progress(&progress(&data)),
            "ret" => {
                let minion = data["minion"].as_str().unwrap_or_default().to_owned();
                self.done.parts.insert(minion, part(&data));
            }
            _ => {}
        }
        if event.last {
            self.done.retcode = event.retcode;
        }
        event.last
    }
}

/// The third part of `halite/job/JID/KIND/…` or `halite/run/ID/KIND`.
fn kind(tag: &str) -> &str {
    tag.split('/').nth(3).unwrap_or_default()
}

fn part(data: &Value) -> Part {
    Part {
        success: data["success"].as_bool().unwrap_or(false),
        value: data["return"].clone(),
        error: data["error"].as_str().unwrap_or_default().to_owned(),
    }
}

fn progress(data: &Value) -> String {
    format!(
        "{}  {}/{}  {} {}",
        data["minion"].as_str().unwrap_or_default(),
        data["index"].as_u64().unwrap_or(0) + 1,
        data["total"],
        data["state"]["function"].as_str().unwrap_or_default(),
        data["state"]["name"].as_str().unwrap_or_default(),
    )
}

/// A finished orchestration.
#[derive(Debug, Clone, Default)]
pub struct RunDone {
    /// Return code of the whole.
    pub retcode: i32,
    /// The master's own summary: status and steps.
    pub summary: Value,
    /// Everything that failed, for people: where, which state, its comment.
    pub failures: Vec<String>,
    /// What went well but should be known, for people.
    pub notes: Vec<String>,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// Runs, or joins, an orchestration and shows its steps on one line that grows (`label host ✓
/// images ✓`), or without a terminal line by line.
///
/// # Errors
/// The master refuses it, or goes away and does not come back.
pub async fn orchestration(
    global: &Global,
    request: v1::OrchestrateRequest,
    label: &str,
    screen: &mut Screen,
) -> anyhow::Result<RunDone> {
    let request = v1::OrchestrateRequest {
        request_id: uuid::Uuid::now_v7().to_string(),
        ..request
    };
    let started = Instant::now();
    let mut follower = RunFollower::new(label);
    let start = async |mut operator: Operator| {
        operator
            .orchestrate(request.clone())
            .await
            .map(|answer| answer.into_inner())
    };
    to_the_end(global, start, |event| follower.take(event, screen)).await?;
    let mut done = follower.done;
    done.seconds = started.elapsed().as_secs_f64();
    if screen.is_live() && !follower.line.is_empty() {
        screen.line(format!(
            "{label}  {}  {}",
            follower.line.join("  "),
            seconds(done.seconds)
        ));
    }
    Ok(done)
}

struct RunFollower {
    label: String,
    /// Finished steps with their mark, in order of their end.
    line: Vec<String>,
    running: String,
    /// Statuses that were shown, by the step's position.
    told: BTreeMap<u64, String>,
    /// What failed in the last attempt of each minion: an interrupted attempt that was made again
    /// says nothing any more.
    failed: BTreeMap<String, Vec<String>>,
    /// What failed steps say themselves; it repeats their minions, where there are any.
    failed_steps: Vec<String>,
    done: RunDone,
}

impl RunFollower {
    fn new(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            line: Vec::new(),
            running: String::new(),
            told: BTreeMap::new(),
            failed: BTreeMap::new(),
            failed_steps: Vec::new(),
            done: RunDone::default(),
        }
    }

    fn take(&mut self, event: &v1::Event, screen: &mut Screen) -> bool {
        let data: Value = serde_json::from_str(&event.data_json).unwrap_or_default();
        let of_run = event.tag.starts_with("halite/run/");
        match kind(&event.tag) {
            "step" if of_run => self.step(&data, screen),
            "prog" => self.show(&progress(&data), screen),
            "ret" => {
                let minion = data["minion"].as_str().unwrap_or_default().to_owned();
                self.failed.insert(minion, failures(&data));
            }
            _ => {}
        }
        if event.last && of_run {
            self.done.retcode = event.retcode;
            self.done.summary = data;
            let failed = std::mem::take(&mut self.failed).into_values().flatten();
            self.done.failures = failed.collect();
            if self.done.failures.is_empty() {
                self.done.failures = std::mem::take(&mut self.failed_steps);
            }
            return true;
        }
        false
    }

    fn step(&mut self, data: &Value, screen: &mut Screen) {
        let name = data["id"].as_str().unwrap_or_default();
        let status = data["status"].as_str().unwrap_or_default();
        let index = data["index"].as_u64().unwrap_or(0);
        if self.told.insert(index, status.to_owned()).as_deref() == Some(status) {
            return;
        }
        let paint = screen.paint();
        let mark = match status {
            "succeeded" => paint.good("✓"),
            "failed" => paint.bad("✗"),
            "skipped" => "–".to_owned(),
            _ => {
                self.running = name.to_owned();
                return self.show("", screen);
            }
        };
        self.running.clear();
        let mark = self.remarks(name, &data["detail"]) + &mark;
        // A fingerprint is too long for a line that has to leave room for other steps.
        if screen.is_live() && data["detail"]["fingerprint"].is_string() {
            screen.line(format!("{}  {name} {mark}", self.label));
        } else {
            self.line.push(format!("{name} {mark}"));
        }
        if let Some(error) = data["detail"]["error"].as_str() {
            self.failed_steps.push(format!("step {name}: {error}"));
        }
        if screen.is_live() {
            self.show("", screen);
        } else {
            let time = data["seconds"]
                .as_f64()
                .map(|time| format!("  {}", seconds(time)))
                .unwrap_or_default();
            screen.line(format!("{}  {name} {mark}{time}", self.label));
        }
    }

    /// What stands before a step's mark; what it leaves open is noted for the end.
    fn remarks(&mut self, step: &str, detail: &Value) -> String {
        if let Some(fingerprint) = detail["fingerprint"].as_str() {
            return format!("(fingerprint {fingerprint}) ");
        }
        let left_out = detail["left_out"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let left_out = left_out.collect::<Vec<_>>().join(", ");
        if left_out.is_empty() {
            return String::new();
        }
        self.done.notes.push(format!(
            "not connected, so left out of `{step}`: {left_out}. What it missed comes with its next `ctl highstate`."
        ));
        format!("(offline: {left_out}) ")
    }

    fn show(&self, below: &str, screen: &mut Screen) {
        let running = if self.running.is_empty() {
            String::new()
        } else {
            format!("  {} …", self.running)
        };
        screen.progress(&format!(
            "{}  {}{running}  {below}",
            self.label,
            self.line.join("  ")
        ));
    }
}

/// The failed states of a return, for people.
fn failures(data: &Value) -> Vec<String> {
    if data["success"].as_bool().unwrap_or(false) {
        return Vec::new();
    }
    let minion = data["minion"].as_str().unwrap_or_default();
    let part = part(data);
    let mut found: Vec<String> = part
        .run()
        .map(|run| failed_states(minion, &run))
        .unwrap_or_default();
    if found.is_empty() {
        found.push(format!(
            "{minion}: {}",
            if part.error.is_empty() {
                "failed"
            } else {
                &part.error
            }
        ));
    }
    found
}

/// `worker-1: file.managed /etc/x (base.x): its comment`. What only follows from another failure is
/// left out.
pub fn failed_states(minion: &str, run: &RunReturn) -> Vec<String> {
    let failed = |state: &&StateReturn| state.result == Some(false);
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
pub fn job_document(done: &JobDone) -> Value {
    let (mut changed, mut failed, mut total) = (0, 0, 0);
    let mut minions = serde_json::Map::new();
    for (minion, part) in &done.parts {
        let mut entry = json!({"success": part.success});
        if !part.error.is_empty() {
            entry["error"] = json!(part.error);
        }
        match part.run() {
            Some(run) => {
                changed += run.changed();
                failed += run.failed();
                total += run.states.len();
                entry["total"] = json!(run.states.len());
                entry["changed"] = json!(run.changed());
                entry["failed"] = json!(run.failed());
                entry["states"] = json!(run.states);
            }
            None => entry["return"] = part.value.clone(),
        }
        minions.insert(minion.clone(), entry);
    }
    json!({"job": done.jid, "retcode": done.retcode, "states": total, "changed": changed, "failed": failed,
        "minions": minions})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(tag: &str, data: Value, last: bool) -> v1::Event {
        v1::Event {
            tag: tag.into(),
            data_json: data.to_string(),
            last,
            retcode: 0,
            ..v1::Event::default()
        }
    }

    #[test]
    fn a_job_is_gathered_from_its_events() {
        let mut screen = Screen::new(crate::output::Format::Json);
        let mut follower = JobFollower::default();
        let state = json!({"function": "file.managed", "name": "/etc/x"});
        let prog = json!({"jid": "1", "minion": "w", "index": 0, "total": 2, "state": state});
        assert_eq!(progress(&prog), "w  1/2  file.managed /etc/x");
        assert!(!follower.take(&event("halite/job/1/prog/w", prog, false), &mut screen));
        let ret = json!({"jid": "1", "minion": "w", "success": true, "return": {"states": []}, "error": ""});
        assert!(!follower.take(&event("halite/job/1/ret/w", ret, false), &mut screen));
        assert!(follower.take(
            &event("halite/job/1/done", json!({"jid": "1"}), true),
            &mut screen
        ));
        let document = job_document(&follower.done);
        assert_eq!(document["changed"], 0);
        assert_eq!(document["job"], "1");
        assert_eq!(document["minions"]["w"]["total"], 0);
    }

    #[test]
    fn failures_name_the_state_that_failed_first_hand() {
        let state = |name: &str, ran: bool, comment: &str| {
            json!({"index": 0, "__id__": name, "name": name, "function": "pkg.installed", "__sls__": "halite.host.packages",
                "result": false, "changes": {}, "comment": comment, "start_time": "", "duration": 1.0,
                "__run_num__": 0, "__state_ran__": ran})
        };
        let data = json!({"minion": "w", "success": false, "error": "",
            "return": {"states": [state("a", true, "no such package"), state("b", false, "requisite failed")]}});
        assert_eq!(
            failures(&data),
            ["w: pkg.installed a (halite.host.packages): no such package"]
        );
        let lost =
            json!({"minion": "w", "success": false, "error": "not connected", "return": null});
        assert_eq!(failures(&lost), ["w: not connected"]);
    }

    #[test]
    fn a_step_that_is_told_again_is_shown_once() {
        let mut screen = Screen::new(crate::output::Format::Json);
        let mut follower = RunFollower::new("b");
        for status in ["running", "succeeded", "succeeded"] {
            let data =
                json!({"id": "host", "index": 0, "status": status, "seconds": 1.5, "detail": {}});
            assert!(!follower.take(&event("halite/run/1/step", data, false), &mut screen));
        }
        assert_eq!(follower.line, ["host ✓"]);
        let failed = json!({"id": "x", "index": 1, "status": "failed", "detail": {"error": "why"}});
        assert!(!follower.take(&event("halite/run/1/step", failed, false), &mut screen));
        assert!(follower.take(&event("halite/run/1/done", json!({}), true), &mut screen));
        assert_eq!(follower.done.failures, ["step x: why"]);
    }

    #[test]
    fn who_enrolled_and_who_was_left_out_is_shown() {
        let mut screen = Screen::new(crate::output::Format::Json);
        let mut follower = RunFollower::new("b");
        let steps = [
            ("enrolled", json!({"fingerprint": "ab:cd"})),
            ("peers", json!({"left_out": ["w2", "w3"]})),
        ];
        for (index, (id, detail)) in steps.into_iter().enumerate() {
            let data = json!({"id": id, "index": index, "status": "succeeded", "detail": detail});
            follower.take(&event("halite/run/1/step", data, false), &mut screen);
        }
        assert_eq!(
            follower.line,
            [
                "enrolled (fingerprint ab:cd) ✓",
                "peers (offline: w2, w3) ✓"
            ]
        );
        assert!(
            matches!(&follower.done.notes[..], [note] if note.contains("left out of `peers`: w2, w3"))
        );
    }

    #[test]
    fn only_the_last_attempt_of_a_minion_counts() {
        let mut screen = Screen::new(crate::output::Format::Json);
        let mut follower = RunFollower::new("b");
        let ret = |success: bool, error: &str| json!({"minion": "w", "success": success, "error": error, "return": null});
        follower.take(
            &event("halite/job/1/ret/w", ret(false, "interrupted"), false),
            &mut screen,
        );
        follower.take(
            &event("halite/job/2/ret/w", ret(false, "no such package"), false),
            &mut screen,
        );
        let failed = json!({"id": "x", "index": 1, "status": "failed", "detail": {"error": "w: no such package"}});
        follower.take(&event("halite/run/1/step", failed, false), &mut screen);
        follower.take(&event("halite/run/1/done", json!({}), true), &mut screen);
        assert_eq!(follower.done.failures, ["w: no such package"]);

        let mut follower = RunFollower::new("b");
        follower.take(
            &event("halite/job/1/ret/w", ret(false, "interrupted"), false),
            &mut screen,
        );
        follower.take(
            &event("halite/job/2/ret/w", ret(true, ""), false),
            &mut screen,
        );
        follower.take(&event("halite/run/1/done", json!({}), true), &mut screen);
        assert!(follower.done.failures.is_empty());
    }
}
