//! Jobs: what a master may ask of this minion, each begun at most once, answered until the master
//! has stored the answer.
//!
//! What changes the host (`state.apply`, `cmd.run`) goes through the journal; what only looks
//! (`test.ping`, grains) does not, because asking twice does no harm and a disk write would be most
//! of its time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use halite_proto::transport::Channel;
use halite_proto::v1::minion_message::Body;
use halite_proto::v1::{Grains, Job, JobProgress, JobReturn, JobStarted};
use halite_states::engine::RunOptions;
use halite_states::low::{FORMAT, LowState};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::blobs::Store;
use crate::config::Config;
use crate::host::HostError;
use crate::host::effect::Command;
use crate::host::linux::{LinuxHost, command};
use crate::journal::{Answer, Directory, INTERRUPTED, Journal, JournalError, Progress};
use crate::owed::Owed;
use crate::remote::Remote;
use crate::runner::{Runner, Stop};
use crate::{exclusive, grains};

/// Why a job ends early when the minion shall end.
const GOING: &str = "the minion is being stopped";
/// Why a job ends early when the master says so.
const CANCELLED: &str = "cancelled";
/// Longest `cmd.run` that names no limit.
const COMMAND: Duration = Duration::from_secs(300);

/// The jobs of this minion.
pub struct Jobs {
    config: Config,
    id: String,
    journal: Journal<Directory>,
    /// What goes to the master; lost while there is no link, which is why answers are journaled.
    outbox: mpsc::UnboundedSender<Body>,
    channel: watch::Receiver<Option<Channel>>,
    active: Mutex<BTreeMap<String, Arc<Stop>>>,
    /// Number of active jobs, for whoever waits for their end.
    count: watch::Sender<usize>,
    /// One state run after the other.
    states: tokio::sync::Mutex<()>,
    grains: Mutex<Value>,
}

impl Jobs {
    /// Opens the journal.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn open(
        config: &Config,
        id: &str,
        outbox: mpsc::UnboundedSender<Body>,
        channel: watch::Receiver<Option<Channel>>,
    ) -> Result<Arc<Self>, JournalError> {
        Ok(Arc::new(Self {
            config: config.clone(),
            id: id.to_owned(),
            journal: Journal::open(Directory(config.journal()))?,
            outbox,
            channel,
            active: Mutex::default(),
            count: watch::Sender::new(0),
            states: tokio::sync::Mutex::default(),
            grains: Mutex::new(Value::Null),
        }))
    }

    fn active(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Stop>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, body: Body) {
        // The receiver lives as long as the link's task; at the very end nobody listens any more.
        let _ = self.outbox.send(body);
    }

    /// Ids of the jobs that were begun and are not answered.
    pub fn running(&self) -> Vec<String> {
        self.active().keys().cloned().collect()
    }

    /// Grains as they are now, remembered for [`Jobs::refresh_grains`].
    pub async fn grains(&self) -> Value {
        let grains = grains::collect(&self.id, &self.config.reports).await;
        self.grains
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(&grains);
        grains
    }

    /// Collects grains and tells the master when something changed.
    async fn refresh_grains(&self) -> Value {
        let old = self
            .grains
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let new = self.grains().await;
        if grains::differ(&old, &new) {
            self.send(Body::Grains(Grains {
                grains_json: new.to_string(),
            }));
        }
        new
    }

    /// Tells the master when scheduled work has left another report than it knows.
    pub async fn look(&self) {
        let known = {
            let grains = self.grains.lock().unwrap_or_else(PoisonError::into_inner);
            grains::is_reported(&grains, &self.config.reports)
        };
        if !known {
            self.refresh_grains().await;
        }
    }

    /// Hands in every answer that the master may not have.
    pub fn hand_in(&self) {
        for job in self.journal.returned() {
            self.hand_in_one(&job);
        }
    }

    fn hand_in_one(&self, job: &str) {
        match self.journal.answer(job) {
            Ok(Some(answer)) => self.send(returned(job, answer)),
            Ok(None) => {}
            Err(error) => tracing::error!(job, %error, "an answer cannot be handed in"),
        }
    }

    /// The master has an answer.
    pub fn stored(&self, job: &str) {
        if let Err(error) = self.journal.stored(job) {
            tracing::error!(job, %error, "it will be handed in once more");
        }
    }

    /// The master wants a job to end.
    pub fn cancel(&self, job: &str) {
        if let Some(stop) = self.active().get(job) {
            tracing::info!(job, "cancelled by the master");
            stop.ask(CANCELLED);
        }
    }

    /// Asks all jobs to end and waits for that, at most `time`.
    pub async fn drain(&self, time: Duration) {
        for stop in self.active().values() {
            stop.ask(GOING);
        }
        let mut count = self.count.subscribe();
        if tokio::time::timeout(time, count.wait_for(|n| *n == 0))
            .await
            .is_err()
        {
            tracing::warn!(jobs = ?self.running(), "left in the middle; they will be answered as interrupted");
        }
    }

    /// Takes a job from the master. One that is known is not begun again, only answered again.
    pub fn accept(self: &Arc<Self>, job: Job) {
        let id = job.job.clone();
        if self.active().contains_key(&id) {
            return self.send(Body::Started(JobStarted { job: id }));
        }
        match self.journal.progress(&id) {
            None => {}
            Some(Progress::Returned | Progress::Started) => return self.hand_in_one(&id),
            Some(Progress::Stored) => {
                return self.send(returned(
                    &id,
                    failed(INTERRUPTED, "done before; its answer was handed in then"),
                ));
            }
        }
        let stop = Arc::new(Stop::default());
        self.active().insert(id.clone(), Arc::clone(&stop));
        self.count.send_modify(|n| *n += 1);
        let jobs = Arc::clone(self);
        tokio::spawn(async move {
            let worker = Arc::clone(&jobs);
            let name = id.clone();
            // A task of its own: a panic in a module ends the job and not the minion.
            let ended = tokio::spawn(async move { worker.work(job, &stop).await }).await;
            if let Err(error) = ended {
                tracing::error!(job = name, %error, "the job broke");
                jobs.finish(
                    &name,
                    failed(1, "the minion failed inside; its log says where"),
                );
            }
            jobs.active().remove(&name);
            jobs.count.send_modify(|n| *n = n.saturating_sub(1));
        });
    }

    async fn work(&self, job: Job, stop: &Arc<Stop>) {
        let id = job.job.clone();
        match job.function.as_str() {
            "test.ping" => self.send(returned(&id, done(&Value::Bool(true)))),
            "grains.items" => {
                let grains = self.refresh_grains().await;
                self.send(returned(&id, done(&grains)));
            }
            "saltutil.refresh_grains" => {
                self.refresh_grains().await;
                self.send(returned(&id, done(&Value::Bool(true))));
            }
            "cmd.run" => {
                if self.begin(&id) {
                    let answer = command_run(&job.args_json).await;
                    self.finish(&id, answer);
                }
            }
            "state.apply" => self.apply(job, stop).await,
            other => self.send(returned(
                &id,
                failed(1, &format!("this minion has no function `{other}`")),
            )),
        }
    }

    /// Whether the job may run now: its start is durable and told.
    fn begin(&self, id: &str) -> bool {
        match self.journal.start(id) {
            Ok(()) => {
                self.send(Body::Started(JobStarted { job: id.to_owned() }));
                true
            }
            Err(error) => {
                tracing::error!(job = id, %error, "not run");
                self.send(returned(id, failed(1, &error.to_string())));
                false
            }
        }
    }

    fn finish(&self, id: &str, answer: Answer) {
        if let Err(error) = self.journal.finish(id, answer.clone()) {
            tracing::error!(job = id, %error, "the answer is not durable");
        }
        self.send(returned(id, answer));
    }

    async fn apply(&self, job: Job, stop: &Arc<Stop>) {
        let id = job.job;
        let _turn = self.states.lock().await;
        let lock =
            exclusive::take(|| tracing::info!(job = id, "waiting for another run on this host"))
                .await;
        if stop.reason().is_some() {
            return self.send(returned(
                &id,
                failed(INTERRUPTED, "stopped before it began"),
            ));
        }
        let low = lock
            .map_err(|e| e.to_string())
            .and_then(|lock| Ok((lock, low_state(&job.low_json, &self.id)?)));
        let owed = Owed::open(Directory(self.config.owed())).map_err(|HostError(e)| e);
        let (_lock, low, owed) = match low.and_then(|(lock, low)| Ok((lock, low, owed?))) {
            Ok(ready) => ready,
            Err(reason) => return self.send(returned(&id, failed(1, &reason))),
        };
        if !self.begin(&id) {
            return;
        }
        tracing::info!(
            job = id,
            states = low.chunks.len(),
            test = job.test,
            "applying"
        );
        let remote = Arc::new(Remote::new(
            self.channel.clone(),
            &id,
            Store::new(self.config.blobs()),
        ));
        let host = LinuxHost::new(Arc::clone(&remote) as _, remote);
        let runner = Runner::new(&host)
            .stoppable(Arc::clone(stop))
            .owing(Some(owed));
        let total = u32::try_from(low.chunks.len()).unwrap_or(u32::MAX);
        let result =
            halite_states::run::run(&low, &runner, RunOptions { test: job.test }, |state| {
                self.send(Body::Progress(JobProgress {
                    job: id.clone(),
                    index: u32::try_from(state.index).unwrap_or(u32::MAX),
                    total,
                    state_json: serde_json::to_string(state).unwrap_or_default(),
                }));
            })
            .await;
        let (retcode, error) = match stop.reason() {
            Some(GOING) => (INTERRUPTED, format!("interrupted: {GOING}")),
            Some(reason) => (1, reason.to_owned()),
            None => (i32::from(!result.succeeded()), String::new()),
        };
        tracing::info!(
            job = id,
            retcode,
            changed = result.changed(),
            failed = result.failed(),
            "applied"
        );
        let return_json = serde_json::to_string(&result).unwrap_or_else(|_| "null".to_owned());
        self.finish(
            &id,
            Answer {
                retcode,
                return_json,
                error,
            },
        );
        Store::new(self.config.blobs()).prune();
        if !job.test && result.changed() > 0 {
            self.refresh_grains().await;
        }
    }
}

fn returned(job: &str, answer: Answer) -> Body {
    let Answer {
        retcode,
        return_json,
        error,
    } = answer;
    Body::Returned(JobReturn {
        job: job.to_owned(),
        retcode,
        return_json,
        error,
    })
}

fn done(value: &Value) -> Answer {
    Answer {
        retcode: 0,
        return_json: value.to_string(),
        error: String::new(),
    }
}

fn failed(retcode: i32, reason: &str) -> Answer {
    Answer {
        retcode,
        return_json: "null".to_owned(),
        error: reason.to_owned(),
    }
}

/// Reads a low state and refuses one that is not for this version and minion. `minion` empty:
/// whoever it is for.
///
/// # Errors
/// One sentence.
pub fn low_state(json: &str, minion: &str) -> Result<LowState, String> {
    // serde's messages of type errors quote values, which may be secrets: only the place is told.
    let low: LowState = serde_json::from_str(json).map_err(|e| {
        format!(
            "the low state cannot be read (line {}, column {})",
            e.line(),
            e.column()
        )
    })?;
    if low.format > FORMAT {
        return Err(format!(
            "the low state has format {}, this minion knows up to {FORMAT}: update the minion",
            low.format
        ));
    }
    if !minion.is_empty() && low.minion != minion {
        return Err(format!(
            "the low state is for {}, this is {minion}",
            low.minion
        ));
    }
    let beyond = |i: &usize| *i >= low.chunks.len();
    let broken = low.chunks.iter().any(|c| {
        let r = &c.requisites;
        [
            &r.require,
            &r.require_any,
            &r.watch,
            &r.watch_any,
            &r.onchanges,
            &r.onchanges_any,
            &r.onfail,
            &r.onfail_any,
            &r.onfail_all,
            &r.prereq,
            &r.listen,
        ]
        .into_iter()
        .flatten()
        .any(beyond)
    });
    if broken {
        Err("the low state has a requisite that points nowhere".to_owned())
    } else {
        Ok(low)
    }
}

/// `cmd.run` with `{"cmd": "…", "cwd", "runas", "timeout"}`, or Salt's `{"arg": ["…"]}`, or the
/// line itself.
async fn command_run(args_json: &str) -> Answer {
    let args: Value = serde_json::from_str(args_json).unwrap_or(Value::Null);
    let text = |key: &str| args.get(key).and_then(Value::as_str).map(str::to_owned);
    let first = |list: Option<&Value>| {
        list.and_then(|l| l.get(0))
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let line = args
        .as_str()
        .map(str::to_owned)
        .or_else(|| text("cmd"))
        .or_else(|| text("name"));
    let Some(line) = line
        .or_else(|| first(args.get("arg")))
        .or_else(|| first(Some(&args)))
    else {
        return failed(1, "cmd.run needs the command: {\"cmd\": \"…\"}");
    };
    let command = Command {
        argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), line],
        cwd: text("cwd"),
        runas: text("runas"),
        timeout: args.get("timeout").and_then(Value::as_u64),
        ..Command::default()
    };
    match command::run(&command, Some(COMMAND)).await {
        Ok(output) => Answer {
            retcode: i32::from(output.code != 0),
            return_json:
                json!({"retcode": output.code, "stdout": output.stdout, "stderr": output.stderr})
                    .to_string(),
            error: String::new(),
        },
        Err(error) => failed(1, &error.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Box = (tempfile::TempDir, Arc<Jobs>, mpsc::UnboundedReceiver<Body>);

    fn minion() -> Box {
        let dir = tempfile::tempdir().unwrap();
        let reports = dir.path().join("reports");
        let config = Config {
            state_dir: dir.path().to_owned(),
            reports,
            ..Config::default()
        };
        crate::identity::directories(&config).unwrap();
        let (outbox, inbox) = mpsc::unbounded_channel();
        let jobs = Jobs::open(&config, "me", outbox, watch::channel(None).1).unwrap();
        (dir, jobs, inbox)
    }

    fn job(id: &str, function: &str, args: &str) -> Job {
        Job {
            job: id.into(),
            function: function.into(),
            args_json: args.into(),
            ..Job::default()
        }
    }

    async fn answer(inbox: &mut mpsc::UnboundedReceiver<Body>) -> JobReturn {
        loop {
            if let Body::Returned(answer) = inbox.recv().await.unwrap() {
                return answer;
            }
        }
    }

    #[tokio::test]
    async fn a_ping_writes_nothing() {
        let (dir, jobs, mut inbox) = minion();
        jobs.accept(job("1", "test.ping", "{}"));
        assert_eq!(answer(&mut inbox).await.return_json, "true");
        assert_eq!(
            std::fs::read_dir(dir.path().join("journal"))
                .unwrap()
                .count(),
            0
        );
    }

    #[tokio::test]
    async fn a_command_runs_once_and_is_answered_until_stored() {
        let (dir, jobs, mut inbox) = minion();
        let line = format!("echo x >> {}/ran", dir.path().display());
        let args = json!({"cmd": line}).to_string();
        for _ in 0..3 {
            jobs.accept(job("1", "cmd.run", &args));
            assert_eq!(answer(&mut inbox).await.retcode, 0);
        }
        assert_eq!(
            std::fs::read_to_string(dir.path().join("ran")).unwrap(),
            "x\n"
        );
        jobs.hand_in();
        assert_eq!(answer(&mut inbox).await.job, "1");
        jobs.stored("1");
        jobs.hand_in();
        assert!(inbox.try_recv().is_err());
    }

    #[tokio::test]
    async fn states_run_and_report_each() {
        let (_dir, jobs, mut inbox) = minion();
        let low = json!({"format": FORMAT, "minion": "me", "chunks": [{
            "state": "test", "fun": "succeed_without_changes", "id": "a", "name": "a", "sls": "s",
            "source": {"file": "s.sls", "line": 1, "column": 1}}]});
        let order = Job {
            low_json: low.to_string(),
            ..job("1", "state.apply", "{}")
        };
        jobs.accept(order);
        let mut seen = Vec::new();
        while let Some(body) = inbox.recv().await {
            match body {
                Body::Started(_) => seen.push("started"),
                Body::Progress(progress) => {
                    assert_eq!((progress.index, progress.total), (0, 1));
                    seen.push("progress");
                }
                Body::Returned(answer) => {
                    assert_eq!(answer.retcode, 0, "{answer:?}");
                    seen.push("returned");
                    break;
                }
                _ => {}
            }
        }
        assert_eq!(seen, ["started", "progress", "returned"]);
    }

    #[tokio::test]
    async fn a_new_report_of_scheduled_work_is_told_once() {
        let (dir, jobs, mut inbox) = minion();
        jobs.grains().await;
        jobs.look().await;
        assert!(inbox.try_recv().is_err(), "there is none yet");
        let reports = dir.path().join("reports");
        std::fs::create_dir(&reports).unwrap();
        for failure in [None, Some("no room")] {
            std::fs::write(
                reports.join("a.json"),
                json!({"failure": failure}).to_string(),
            )
            .unwrap();
            jobs.look().await;
            let Ok(Body::Grains(told)) = inbox.try_recv() else {
                panic!("not told")
            };
            let grains: Value = serde_json::from_str(&told.grains_json).unwrap();
            assert_eq!(grains["reports"]["a.json"]["failure"], json!(failure));
            assert_eq!(grains["id"], "me");
            jobs.look().await;
            assert!(inbox.try_recv().is_err(), "told twice");
        }
    }

    #[tokio::test]
    async fn what_is_not_for_us_is_refused() {
        let (_dir, jobs, mut inbox) = minion();
        let low = |format: u32, minion: &str| {
            json!({"format": format, "minion": minion, "chunks": []}).to_string()
        };
        for (number, (low, wanted)) in [
            (low(FORMAT, "other"), "is for other"),
            (low(FORMAT + 1, "me"), "update the minion"),
            ("{".into(), "line 1"),
        ]
        .into_iter()
        .enumerate()
        {
            jobs.accept(Job {
                low_json: low,
                ..job(&number.to_string(), "state.apply", "{}")
            });
            let answer = answer(&mut inbox).await;
            assert!(
                answer.retcode == 1 && answer.error.contains(wanted),
                "{answer:?}"
            );
        }
        jobs.accept(job("x", "cmd.exec_all", "{}"));
        assert!(
            answer(&mut inbox)
                .await
                .error
                .contains("no function `cmd.exec_all`")
        );
    }

    #[test]
    fn a_malformed_low_state_is_not_quoted() {
        let error = low_state(
            r#"{"format": "secret-value", "minion": "a", "chunks": []}"#,
            "",
        )
        .unwrap_err();
        assert!(!error.contains("secret-value"), "{error}");
        let error = low_state(r#"{"format":1,"minion":"a","chunks":[{"state":"t","fun":"f","id":"i","name":"n","sls":"s","source":{"file":"f","line":1,"column":1},"requisites":{"require":[7]}}]}"#, "").unwrap_err();
        assert!(error.contains("points nowhere"), "{error}");
    }
}
