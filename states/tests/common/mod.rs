//! A host in memory with the few state functions that the probes use: `test.*`, `cmd.run` and some
//! of `file.*`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use halite_states::engine::{Applied, Checked, Failure, Modules};
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

/// A file system entry.
#[derive(Debug, Clone, PartialEq)]
pub enum TestEntry {
    Directory { mode: u64 },
    File { content: String, mode: u64 },
    Link { target: String },
}

/// The difference that a check finds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExpectedDiff {
    put: Option<(String, TestEntry)>,
    command: Option<String>,
}

/// The host.
#[derive(Debug, Default)]
pub struct TestHost {
    pub entries: Mutex<BTreeMap<String, TestEntry>>,
    pub existing: BTreeSet<String>,
}

impl TestHost {
    fn entry(&self, path: &str) -> Option<TestEntry> {
        self.entries.lock().unwrap().get(path).cloned()
    }

    fn put(&self, wanted: &ExpectedDiff) {
        if let Some((path, entry)) = &wanted.put {
            self.entries
                .lock()
                .unwrap()
                .insert(path.clone(), entry.clone());
        }
    }
}

fn changes(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Exit code and standard output of the commands that the probes run.
fn shell(line: &str) -> (i64, String) {
    let mut out = Vec::new();
    for part in line.split(';').map(str::trim) {
        match part.split_once(' ').unwrap_or((part, "")) {
            ("false", _) => return (1, out.join("\n")),
            ("exit", code) => return (code.parse().unwrap(), out.join("\n")),
            ("echo", text) if !text.ends_with(">&2") => out.push(text.to_owned()),
            ("true" | "sleep" | "echo", _) => {}
            _ => panic!("no such command here: {part}"),
        }
    }
    (0, out.join("\n"))
}

fn command(chunk: &Chunk) -> Checked<ExpectedDiff> {
    Checked {
        changes: changes(json!({"cmd": chunk.name})),
        comment: format!("Command \"{}\" would have been executed", chunk.name),
        diff: ExpectedDiff {
            command: Some(chunk.name.clone()),
            ..ExpectedDiff::default()
        },
    }
}

impl Modules for TestHost {
    type Diff = ExpectedDiff;

    async fn check(&self, chunk: &Chunk) -> Result<Checked<ExpectedDiff>, Failure> {
        let mut checked: Checked<ExpectedDiff> = Checked {
            comment: "Success!".to_owned(),
            ..Checked::default()
        };
        let changed = || {
            changes(
                json!({"testing": {"old": "Unchanged", "new": "Something pretended to change"}}),
            )
        };
        let text = |name: &str| {
            chunk
                .args
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let flag = |name: &str| {
            chunk
                .args
                .get(name)
                .and_then(Value::as_bool)
                .unwrap_or(true)
        };
        match (chunk.state.as_str(), chunk.fun.as_str()) {
            ("test", "nop" | "succeed_without_changes") => {}
            ("test", "succeed_with_changes") => checked.changes = changed(),
            ("test", "fail_without_changes") => return Err(Failure::new("Failure!".to_owned())),
            ("test", "configurable_test_state") => {
                if !flag("result") {
                    return Err(Failure::new(text("comment")));
                }
                checked.comment = text("comment");
                if flag("changes") {
                    checked.changes = changed();
                }
            }
            ("cmd", "run") => checked = command(chunk),
            ("cmd", "wait") => checked.comment = String::new(),
            ("file", _) => self.file(chunk, &mut checked)?,
            (state, fun) => panic!("no such function here: {state}.{fun}"),
        }
        Ok(checked)
    }

    async fn apply(&self, chunk: &Chunk, wanted: &ExpectedDiff) -> Result<Applied, Failure> {
        self.put(wanted);
        let Some(line) = &wanted.command else {
            return Ok(Applied::default());
        };
        let (mut code, stdout) = shell(line);
        let fine = chunk
            .args
            .get("success_retcodes")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        if fine.contains(&json!(code)) {
            code = 0;
        }
        let comment = format!("Command \"{line}\" run");
        if code != 0 {
            return Err(Failure::new(comment));
        }
        Ok(Applied {
            changes: changes(json!({"cmd": null, "retcode": code, "stdout": stdout, "stderr": ""})),
            comment,
        })
    }

    async fn predict(&self, _: &Chunk, wanted: &ExpectedDiff) {
        self.put(wanted);
    }

    async fn watch(&self, chunk: &Chunk) -> Option<Result<Checked<ExpectedDiff>, Failure>> {
        if chunk.state == "cmd" {
            return Some(Ok(command(chunk)));
        }
        (chunk.state == "test").then(|| {
            Ok(Checked {
                changes: changes(json!({"Requisites with changes": []})),
                comment: "Watch statement fired.".to_owned(),
                diff: ExpectedDiff::default(),
            })
        })
    }

    async fn condition(&self, _: &Chunk, condition: &Value) -> Result<bool, Failure> {
        match condition {
            Value::String(line) => Ok(shell(line).0 == 0),
            _ => {
                let text = |key: &str| condition[key].as_str().unwrap_or_default();
                match text("fun") {
                    "file.file_exists" => Ok(self.exists(text("path")).await),
                    "file.directory_exists" => Ok(text("path") == "/etc"),
                    "user.info" => Ok(text("name") == "root"),
                    "test.true" => Ok(true),
                    "test.false" => Ok(false),
                    _ => panic!("no such condition here: {condition}"),
                }
            }
        }
    }

    async fn exists(&self, path: &str) -> bool {
        self.existing.contains(path) || self.entry(path).is_some()
    }
}

impl TestHost {
    fn file(&self, chunk: &Chunk, checked: &mut Checked<ExpectedDiff>) -> Result<(), Failure> {
        let path = chunk.name.clone();
        let mode = chunk.args.get("mode").and_then(Value::as_u64);
        let there = self.entry(&path);
        let wanted = match chunk.fun.as_str() {
            "directory" => TestEntry::Directory {
                mode: mode.unwrap_or(0o755),
            },
            "symlink" => TestEntry::Link {
                target: chunk.args["target"].as_str().unwrap_or_default().to_owned(),
            },
            "managed" => {
                let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
                if self.entry(parent).is_none() {
                    return Err(Failure::new("Parent directory not present".to_owned()));
                }
                let kept = match &there {
                    Some(TestEntry::File { mode, .. }) => *mode,
                    _ => 0o644,
                };
                let mut content = chunk.args["contents"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                if !content.ends_with('\n') {
                    content.push('\n');
                }
                TestEntry::File {
                    content,
                    mode: mode.unwrap_or(kept),
                }
            }
            "append" => {
                let Some(TestEntry::File { content, mode }) = &there else {
                    return Err(Failure::new(format!("{path} does not exist")));
                };
                let mut content = content.clone();
                for line in chunk.args["text"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                {
                    if !content.lines().any(|known| known == line) {
                        content.push_str(line);
                        content.push('\n');
                    }
                }
                TestEntry::File {
                    content,
                    mode: *mode,
                }
            }
            other => panic!("no such function here: file.{other}"),
        };
        if there.as_ref() != Some(&wanted) {
            checked.changes = changes(json!({"diff": "…"}));
            checked.diff.put = Some((path, wanted));
        }
        Ok(())
    }
}
