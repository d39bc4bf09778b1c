//! The engine's view of this host: checks by the state modules, effects carried out one after the
//! other.
//!
//! Nothing here knows a state function but `cmd`, whose outcome is its changes. A chunk that holds
//! a secret is checked and applied like any other, but nothing of its values leaves this place.

use std::sync::{Arc, OnceLock};

use halite_states::engine::{Applied, Checked, Failure, Modules};
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use crate::host::effect::{Command, Effect, Output};
use crate::host::overlay::{KNOWN_AFTER_APPLY, Overlay};
use crate::host::{FileKind, Host, HostError};
use crate::modules;
use crate::modules::{Function, Plan};
use crate::owed::Owed;

/// What stands for a value that must not be shown.
pub const REDACTED: &str = "<redacted: secret>";
/// Longest run of an `unless`, `onlyif` or `check_cmd` command, in seconds.
const CONDITION_TIMEOUT: u64 = 300;
/// Shorter argument values are not looked for in messages: they hide nothing and would tear words
/// apart.
const SHORTEST_SECRET: usize = 8;

/// What a check hands to apply.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Missing {
    /// In order.
    pub effects: Vec<Effect>,
    /// The comment once they are carried out; empty: the check's.
    pub done: String,
}

/// What is left to do for one chunk.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Steps {
    effects: Vec<Effect>,
    /// How it is said when it was done.
    done: String,
}

/// A wish that a run ends soon: the state at hand is finished, those after it fail with the reason.
#[derive(Debug, Default)]
pub struct Stop(OnceLock<String>);

impl Stop {
    /// Asks for the end. The first reason counts.
    pub fn ask(&self, reason: &str) {
        // Asked before: that reason stays.
        let _ = self.0.set(reason.to_owned());
    }

    /// The reason, once somebody has asked.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    fn check(&self) -> Result<(), Failure> {
        self.reason()
            .map_or(Ok(()), |reason| Err(Failure::new(reason.to_owned())))
    }
}

/// State modules over a host; implements the engine's [`Modules`].
pub struct Runner<'h> {
    host: &'h dyn Host,
    predicted: Overlay<'h>,
    functions: &'static [Function],
    stop: Arc<Stop>,
    owed: Option<Owed>,
}

impl<'h> Runner<'h> {
    /// All state functions of this minion over `host`.
    #[must_use]
    pub fn new(host: &'h dyn Host) -> Self {
        Self::with_functions(host, modules::functions())
    }

    /// Given state functions over `host`.
    #[must_use]
    pub fn with_functions(host: &'h dyn Host, functions: &'static [Function]) -> Self {
        Self {
            host,
            predicted: Overlay::new(host),
            functions,
            stop: Arc::default(),
            owed: None,
        }
    }

    /// A run that can be asked to end.
    #[must_use]
    pub fn stoppable(self, stop: Arc<Stop>) -> Self {
        Self { stop, ..self }
    }

    /// A run that knows what an earlier one owes, and leaves to a later one what it owes itself.
    #[must_use]
    pub fn owing(self, owed: Option<Owed>) -> Self {
        Self { owed, ..self }
    }

    fn function(&self, chunk: &Chunk) -> Result<&'static Function, Failure> {
        let found = self
            .functions
            .iter()
            .find(|f| f.name == (chunk.state.as_str(), chunk.fun.as_str()));
        found.ok_or_else(|| {
            Failure::new(format!(
                "this minion has no state `{}`: it is older than the master that compiled this; update it",
                chunk.function()
            ))
        })
    }
}

impl Modules for Runner<'_> {
    type Diff = Missing;

    async fn check(&self, chunk: &Chunk) -> Result<Checked<Self::Diff>, Failure> {
        self.stop.check()?;
        let function = self.function(chunk)?;
        self.predicted.take_guessed();
        let mut checked = checked(chunk, (function.check)(&self.predicted, chunk).await)?;
        if self.predicted.take_guessed() && !checked.changes.is_empty() {
            checked.comment = format!("{}: {KNOWN_AFTER_APPLY}", checked.comment);
        }
        Ok(checked)
    }

    async fn apply(&self, chunk: &Chunk, diff: &Self::Diff) -> Result<Applied, Failure> {
        let mut applied = Applied {
            comment: diff.done.clone(),
            ..Applied::default()
        };
        for effect in &diff.effects {
            self.stop.check()?;
            let output = self
                .host
                .perform(effect)
                .await
                .map_err(|HostError(e)| Failure::new(shown(chunk, &e)))?;
            if let Effect::Run(command) = effect {
                let result = run_result(command, &output);
                if chunk.state == "cmd" {
                    applied.changes = command_changes(chunk, &output);
                    if applied.comment.is_empty() {
                        applied.comment = format!("Command \"{}\" run", chunk.name);
                    }
                }
                result.map_err(|e| Failure::new(shown(chunk, &e)))?;
            }
        }
        Ok(applied)
    }

    async fn predict(&self, _: &Chunk, diff: &Self::Diff) {
        for effect in &diff.effects {
            self.predicted.lay(effect).await;
        }
    }

    async fn watch(&self, chunk: &Chunk) -> Option<Result<Checked<Self::Diff>, Failure>> {
        let watch = match self.function(chunk) {
            Ok(function) => function.watch?,
            Err(failure) => return Some(Err(failure)),
        };
        Some(checked(chunk, watch(&self.predicted, chunk).await))
    }

    async fn condition(&self, chunk: &Chunk, condition: &Value) -> Result<bool, Failure> {
        match condition {
            Value::Bool(holds) => Ok(*holds),
            Value::String(line) => self.shell(chunk, line).await,
            Value::Object(call) => self.call(chunk, call).await,
            other => Err(Failure::new(format!(
                "`{other}` is no condition: give a shell command or {{fun: …}}"
            ))),
        }
    }

    async fn exists(&self, path: &str) -> bool {
        matches!(self.predicted.stat(path).await, Ok(Some(_)))
    }

    fn record_trigger(&self, chunk: &Chunk, watchers: &[&Chunk]) -> Result<(), Failure> {
        let Some(owed) = &self.owed else {
            return Ok(());
        };
        let noted = watchers
            .iter()
            .try_for_each(|watcher| owed.add(chunk, watcher));
        noted.map_err(|HostError(e)| {
            Failure::new(shown(
                chunk,
                &format!("not begun: that others have to act on it cannot be noted: {e}"),
            ))
        })
    }

    fn is_pending(&self, chunk: &Chunk, watcher: &Chunk) -> bool {
        self.owed
            .as_ref()
            .is_some_and(|owed| owed.has(chunk, watcher))
    }

    fn clear_trigger(&self, chunk: &Chunk, watcher: &Chunk) {
        if let Some(owed) = &self.owed
            && let Err(HostError(error)) = owed.remove(chunk, watcher)
        {
            tracing::warn!(
                id = watcher.id,
                error,
                "the next run will do once more what this state has done"
            );
        }
    }
}

impl Runner<'_> {
    async fn shell(&self, chunk: &Chunk, line: &str) -> Result<bool, Failure> {
        let command = Command {
            argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), line.to_owned()],
            runas: chunk.controls.runas.clone(),
            timeout: Some(CONDITION_TIMEOUT),
            ..Command::default()
        };
        let output = self
            .predicted
            .query(&command)
            .await
            .map_err(|HostError(e)| Failure::new(shown(chunk, &e)))?;
        Ok(output.code == 0)
    }

    /// The execution functions that conditions may name: `{fun: service.status, name: kubelet}` or
    /// with `args: [kubelet]`.
    async fn call(&self, chunk: &Chunk, call: &Map<String, Value>) -> Result<bool, Failure> {
        let fun = call.get("fun").and_then(Value::as_str).unwrap_or_default();
        let listed = call.get("args").and_then(|a| a.get(0));
        let argument = ["name", "path", "cmd"]
            .iter()
            .find_map(|k| call.get(*k))
            .or(listed);
        let argument = argument.and_then(Value::as_str).unwrap_or_default();
        let failed = |HostError(e): HostError| Failure::new(e);
        let unit = || {
            if argument.contains('.') {
                argument.to_owned()
            } else {
                format!("{argument}.service")
            }
        };
        let host = &self.predicted;
        match fun {
            "test.true" | "test.true_" => Ok(true),
            "test.false" | "test.false_" => Ok(false),
            "cmd.retcode" => self.shell(chunk, argument).await,
            "file.file_exists" => {
                let content = host.read(argument).await.map_err(failed)?;
                Ok(content.is_some())
            }
            "file.directory_exists" => {
                let stat = host.stat(argument).await.map_err(failed)?;
                Ok(stat.is_some_and(|s| s.kind == FileKind::Directory))
            }
            "file.path_exists_glob" | "file.access" => {
                Ok(host.stat(argument).await.map_err(failed)?.is_some())
            }
            "service.status" => Ok(host.unit(&unit()).await.map_err(failed)?.active == "active"),
            "service.enabled" => Ok(host
                .unit(&unit())
                .await
                .map_err(failed)?
                .file
                .starts_with("enabled")),
            "service.available" => Ok(host.unit(&unit()).await.map_err(failed)?.load == "loaded"),
            "pkg.version" => Ok(host
                .packages()
                .await
                .map_err(failed)?
                .contains_key(argument)),
            "user.info" => Ok(host.user(argument).await.map_err(failed)?.is_some()),
            "kmod.is_loaded" => host.kernel_module(argument).await.map_err(failed),
            "x509.current" => {
                let ca = call.get("ca").and_then(Value::as_str).unwrap_or_default();
                modules::is_current(host, argument, ca).await
            }
            "http.query" => {
                let text = |key: &str| call.get(key).and_then(Value::as_str);
                let url = text("url").unwrap_or(argument);
                modules::answers(
                    host,
                    url,
                    call.get("status").and_then(Value::as_u64),
                    text("ca"),
                )
                .await
            }
            other => Err(Failure::new(format!(
                "the condition `{other}` is not known: use a shell command, or one of cmd.retcode, file.file_exists, \
                 file.directory_exists, service.status, service.enabled, service.available, pkg.version, user.info, \
                 http.query, kmod.is_loaded, x509.current, test.true, test.false"
            ))),
        }
    }
}

fn checked(chunk: &Chunk, plan: Result<Plan, Failure>) -> Result<Checked<Missing>, Failure> {
    let plan = plan.map_err(|failure| Failure::new(shown(chunk, &failure.text())))?;
    let comment = shown(chunk, &plan.comment);
    let mut changes = plan.changes;
    if chunk.sensitive {
        changes.values_mut().for_each(redact);
    }
    let done = shown(chunk, &plan.done);
    Ok(Checked {
        changes,
        comment,
        diff: Missing {
            effects: plan.effects,
            done,
        },
    })
}

/// Replaces every value below, so that only names of what changed are left.
fn redact(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(redact),
        Value::Null => {}
        other => *other = json!(REDACTED),
    }
}

/// `message` as it may be shown: without anything that stands in the arguments of a sensitive
/// chunk.
fn shown(chunk: &Chunk, message: &str) -> String {
    let mut text = message.to_owned();
    if chunk.sensitive {
        let mut secrets = Vec::new();
        chunk.args.values().for_each(|v| collect(v, &mut secrets));
        secrets.sort_by_key(|s| std::cmp::Reverse(s.len()));
        for secret in secrets {
            text = text.replace(secret, REDACTED);
        }
    }
    text
}

fn collect<'v>(value: &'v Value, into: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => {
            into.push(text.as_str());
            into.extend(text.lines().map(str::trim));
            into.retain(|s| s.len() >= SHORTEST_SECRET);
        }
        Value::Array(items) => items.iter().for_each(|v| collect(v, into)),
        Value::Object(map) => map.values().for_each(|v| collect(v, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn command_changes(chunk: &Chunk, output: &Output) -> Map<String, Value> {
    let text = |s: &str| {
        if chunk.sensitive {
            json!(REDACTED)
        } else {
            json!(s.trim_end_matches('\n'))
        }
    };
    Map::from_iter([
        ("retcode".to_owned(), json!(output.code)),
        ("stdout".to_owned(), text(&output.stdout)),
        ("stderr".to_owned(), text(&output.stderr)),
    ])
}

/// Whether a program's exit code is a success; else what to tell.
fn run_result(command: &Command, output: &Output) -> Result<(), String> {
    if output.code == 0 || command.success_retcodes.contains(&output.code) {
        return Ok(());
    }
    let line = match command.argv.as_slice() {
        [shell, flag, line] if flag == "-c" && shell.ends_with("sh") => line.clone(),
        argv => argv.join(" "),
    };
    let said = if output.stderr.trim().is_empty() {
        &output.stdout
    } else {
        &output.stderr
    };
    Err(format!(
        "`{line}` ended with exit code {}: {}",
        output.code,
        tail(said.trim())
    ))
}

/// The last 2000 bytes, where programs say why they stopped.
fn tail(text: &str) -> &str {
    let from = text
        .char_indices()
        .rev()
        .take(2000)
        .last()
        .map_or(0, |(at, _)| at);
    text.get(from..).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostFuture;
    use crate::host::effect::Meta;
    use crate::host::fake::FakeHost;

    fn write(host: &dyn Host, chunk: &Chunk) -> HostFuture<'static, Result<Plan, Failure>> {
        let _ = host;
        let content = chunk.args["contents"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let path = chunk.name.clone();
        Box::pin(async move {
            Ok(Plan {
                changes: Map::from_iter([("diff".to_owned(), json!(format!("+{content}")))]),
                comment: format!("{path} gets {content}"),
                done: String::new(),
                effects: vec![Effect::Write {
                    path,
                    content: content.into_bytes(),
                    meta: Meta::default(),
                }],
            })
        })
    }

    fn run(_: &dyn Host, chunk: &Chunk) -> HostFuture<'static, Result<Plan, Failure>> {
        let argv = vec!["/bin/sh".to_owned(), "-c".to_owned(), chunk.name.clone()];
        Box::pin(async move {
            Ok(Plan {
                changes: Map::from_iter([("cmd".to_owned(), json!("run"))]),
                done: String::new(),
                effects: vec![Effect::Run(Command {
                    argv,
                    ..Command::default()
                })],
                ..Plan::default()
            })
        })
    }

    static FUNCTIONS: &[Function] = &[
        Function {
            name: ("file", "managed"),
            check: |h, c| write(h, c),
            watch: None,
        },
        Function {
            name: ("cmd", "run"),
            check: |h, c| run(h, c),
            watch: Some(|h, c| run(h, c)),
        },
    ];

    fn chunk(function: &str, name: &str, args: Value) -> Chunk {
        let (state, fun) = function.split_once('.').unwrap();
        serde_json::from_value(json!({
            "state": state, "fun": fun, "id": name, "name": name, "sls": "test",
            "source": {"file": "test.sls", "line": 1, "column": 1}, "args": args,
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn a_sensitive_chunk_shows_nothing_of_its_values() {
        let host = FakeHost::new();
        let runner = Runner::with_functions(&host, FUNCTIONS);
        let mut secret = chunk(
            "file.managed",
            "/etc/key",
            json!({"contents": "correct horse\nbattery staple\n"}),
        );
        secret.sensitive = true;
        let found = runner.check(&secret).await.unwrap();
        let told = format!(
            "{}{}",
            found.comment,
            serde_json::to_string(&found.changes).unwrap()
        );
        assert!(
            !told.contains("horse") && !told.contains("battery"),
            "{told}"
        );
        assert_eq!(found.changes["diff"], json!(REDACTED));
        runner.apply(&secret, &found.diff).await.unwrap();
        assert_eq!(
            host.text("/etc/key").unwrap(),
            "correct horse\nbattery staple\n"
        );
        host.crash_after(0);
        let failure = runner.apply(&secret, &found.diff).await.unwrap_err();
        assert!(!failure.text().contains("horse"), "{failure}");
    }

    #[tokio::test]
    async fn a_command_reports_what_it_came_to() {
        let host = FakeHost::new();
        let runner = Runner::with_functions(&host, FUNCTIONS);
        let good = chunk("cmd.run", "echo hello", json!({}));
        let found = runner.check(&good).await.unwrap();
        let applied = runner.apply(&good, &found.diff).await.unwrap();
        assert_eq!(
            Value::Object(applied.changes),
            json!({"retcode": 0, "stdout": "hello", "stderr": ""})
        );
        let bad = chunk("cmd.run", "exit 3", json!({}));
        let found = runner.check(&bad).await.unwrap();
        let failure = runner.apply(&bad, &found.diff).await.unwrap_err();
        assert!(
            failure
                .text()
                .starts_with("`exit 3` ended with exit code 3"),
            "{failure}"
        );
        assert!(runner.watch(&bad).await.is_some());
    }

    #[tokio::test]
    async fn predicted_effects_are_seen_but_not_made() {
        let host = FakeHost::new();
        let runner = Runner::with_functions(&host, FUNCTIONS);
        let wanted = chunk("file.managed", "/etc/new", json!({"contents": "x"}));
        let found = runner.check(&wanted).await.unwrap();
        runner.predict(&wanted, &found.diff).await;
        assert!(runner.exists("/etc/new").await);
        assert_eq!(host.writes(), 0);
    }

    #[tokio::test]
    async fn conditions() {
        let host = FakeHost::new();
        host.state().put_unit("nginx.service", true, true);
        host.state()
            .http
            .insert("https://a/".to_owned(), [Some((401, String::new()))].into());
        let runner = Runner::with_functions(&host, FUNCTIONS);
        let any = chunk("cmd.run", "true", json!({}));
        for (condition, wanted) in [
            (json!("true"), true),
            (json!("false"), false),
            (json!({"fun": "service.status", "name": "nginx"}), true),
            (
                json!({"fun": "file.file_exists", "args": ["/nowhere"]}),
                false,
            ),
            (
                json!({"fun": "http.query", "url": "https://a/", "status": 401}),
                true,
            ),
            (json!({"fun": "http.query", "url": "https://a/"}), false),
            (
                json!({"fun": "http.query", "url": "https://a/", "status": 401, "ca": "/nowhere"}),
                false,
            ),
            (json!({"fun": "http.query", "args": ["https://b/"]}), false),
        ] {
            assert_eq!(
                runner.condition(&any, &condition).await,
                Ok(wanted),
                "{condition}"
            );
        }
        let failure = runner
            .condition(&any, &json!({"fun": "network.ip"}))
            .await
            .unwrap_err();
        assert!(
            failure.text().contains("`network.ip` is not known"),
            "{failure}"
        );
    }

    #[tokio::test]
    async fn an_identity_is_current_until_two_thirds_of_its_life_are_over() {
        let host = FakeHost::new();
        let runner = Runner::new(&host);
        let ca = host.state().cas.certificate("halite").unwrap();
        let made = chunk(
            "x509.certificate",
            "/pki/a.crt",
            json!({"ca": "halite", "common_name": "a", "days": 90}),
        );
        let any = chunk("cmd.run", "true", json!({}));
        let condition = json!({"fun": "x509.current", "name": "/pki/a.crt", "ca": "/pki/ca.crt"});
        let write = |path: &str, text: &str| Effect::Write {
            path: path.to_owned(),
            content: text.as_bytes().to_vec(),
            meta: Meta::default(),
        };
        assert_eq!(
            runner.condition(&any, &condition).await,
            Ok(false),
            "nothing is there"
        );
        let found = runner.check(&made).await.unwrap();
        runner.apply(&made, &found.diff).await.unwrap();
        assert_eq!(
            runner.condition(&any, &condition).await,
            Ok(false),
            "the CA is not there"
        );
        host.perform(&write("/pki/ca.crt", &ca)).await.unwrap();
        assert_eq!(runner.condition(&any, &condition).await, Ok(true));
        host.sleep(59.0 * 86_400.0).await;
        assert_eq!(runner.condition(&any, &condition).await, Ok(true));
        host.sleep(2.0 * 86_400.0).await;
        assert_eq!(
            runner.condition(&any, &condition).await,
            Ok(false),
            "less than a third is left"
        );

        let found = runner.check(&made).await.unwrap();
        runner.apply(&made, &found.diff).await.unwrap();
        assert_eq!(
            runner.condition(&any, &condition).await,
            Ok(true),
            "renewed"
        );
        let other = host.state().cas.certificate("site").unwrap();
        host.perform(&write("/pki/other.crt", &other))
            .await
            .unwrap();
        let foreign = json!({"fun": "x509.current", "name": "/pki/a.crt", "ca": "/pki/other.crt"});
        assert_eq!(
            runner.condition(&any, &foreign).await,
            Ok(false),
            "another CA's"
        );
        host.perform(&write("/pki/a.key", "damaged")).await.unwrap();
        assert_eq!(
            runner.condition(&any, &condition).await,
            Ok(false),
            "not of its key"
        );
    }

    #[tokio::test]
    async fn a_run_that_shall_end_changes_nothing_more() {
        let host = FakeHost::new();
        let stop = Arc::new(Stop::default());
        let runner = Runner::with_functions(&host, FUNCTIONS).stoppable(Arc::clone(&stop));
        let wanted = chunk("file.managed", "/etc/new", json!({"contents": "x"}));
        let found = runner.check(&wanted).await.unwrap();
        stop.ask("cancelled");
        stop.ask("again");
        assert_eq!(
            runner.apply(&wanted, &found.diff).await,
            Err(Failure::new("cancelled"))
        );
        assert!(runner.check(&wanted).await.is_err());
        assert_eq!(host.writes(), 0);
    }

    #[tokio::test]
    async fn an_unknown_state_says_what_to_do() {
        let host = FakeHost::new();
        let runner = Runner::with_functions(&host, FUNCTIONS);
        let failure = runner
            .check(&chunk("zfs.present", "a", json!({})))
            .await
            .unwrap_err();
        assert!(
            failure.text().contains("`zfs.present`") && failure.text().contains("update"),
            "{failure}"
        );
    }
}
