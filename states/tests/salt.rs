//! Comparison with real Salt: runs every probe that was run with it. Order, result, whether
//! something changed and the comments of the engine are the same, or the table in
//! `docs/coming-from-salt.md` lists the difference; and every row of that table is a difference
//! that occurs.
#![expect(clippy::unwrap_used, reason = "a test's panic is its report")]

mod common;
#[path = "common/differences.rs"]
mod differences;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use common::{TestEntry, TestHost};
use differences::{Difference, compare_with_table};
use halite_document::Problem;
use halite_states::compile::{Compiled, Input, sls};
use halite_states::engine::RunOptions;
use halite_states::low::RunReturn;
use halite_states::run::run;
use halite_states::tree::MemoryTree;
use serde_json::{Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/salt")
}

fn probes() -> BTreeMap<String, Value> {
    let mut probes = BTreeMap::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_suffix(".json"))
        else {
            continue;
        };
        let text = std::fs::read_to_string(&path)
            .unwrap()
            .replace("@LAB@", "/lab");
        let json: Value = serde_json::from_str(&text).unwrap();
        probes.insert(name.to_owned(), json.get("local").cloned().unwrap_or(json));
    }
    probes
}

fn sources() -> BTreeMap<String, String> {
    std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sls"))
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (
                name,
                std::fs::read_to_string(&path)
                    .unwrap()
                    .replace("@LAB@", "/lab"),
            )
        })
        .collect()
}

fn compile(sources: &BTreeMap<String, String>, name: &str) -> Result<Compiled, Vec<Problem>> {
    let tree = sources
        .iter()
        .fold(MemoryTree::new(), |tree, (name, text)| {
            tree.with(name, text.as_str())
        });
    let (pillar, grains) = (json!({}), json!({}));
    let input = Input {
        tree: &tree,
        minion: "local",
        pillar: &pillar,
        grains: &grains,
        bundle: &|_| None,
    };
    sls(&input, &[name.to_owned()])
}

/// The host as it was when the probe was run with Salt.
fn host(probe: &str) -> TestHost {
    let directory = ("/lab/pout".to_owned(), TestEntry::Directory { mode: 0o755 });
    let file = |content: &str, mode| TestEntry::File {
        content: content.to_owned(),
        mode,
    };
    let mut entries = BTreeMap::from([directory]);
    if probe == "files" {
        entries.insert(
            "/lab/pout/a".to_owned(),
            file("hello\nworld\nappended\n", 0o640),
        );
        entries.insert(
            "/lab/pout/l".to_owned(),
            TestEntry::Link {
                target: "/lab/pout/a".to_owned(),
            },
        );
    }
    if probe == "reqsls" {
        entries.insert("/lab/pout/ext".to_owned(), file("one\n", 0o600));
    }
    TestHost {
        entries: entries.into(),
        existing: ["/etc/hostname".to_owned()].into(),
    }
}

/// A source without the lines of a top-level id.
fn without(source: &str, id: &str) -> String {
    let mut inside = false;
    source
        .lines()
        .filter(|line| {
            if !line.starts_with([' ', '#']) && !line.is_empty() {
                inside = line.starts_with(&format!("{id}:"));
            }
            !inside
        })
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The top-level id to which a line of a source belongs.
fn id_at(source: &str, line: u32) -> String {
    let above: Vec<&str> = source.lines().take(line as usize).collect();
    let id = above
        .iter()
        .rev()
        .find(|line| !line.starts_with([' ', '#']) && line.contains(':'));
    id.and_then(|line| line.split(':').next())
        .unwrap_or_default()
        .to_owned()
}

/// The compiled probe, without the ids that the compiler refuses, which are added to `refused`.
fn accepted(probe: &str, refused: &mut BTreeSet<String>) -> Option<Compiled> {
    let mut sources = sources();
    let file = format!("{probe}.sls");
    loop {
        match compile(&sources, probe) {
            Ok(compiled) => return Some(compiled),
            Err(problems) => {
                let source = sources.get(&file)?.clone();
                let id = problems
                    .iter()
                    .find(|problem| problem.file == file)
                    .map(|problem| id_at(&source, problem.line))?;
                let shorter = without(&source, &id);
                if id.is_empty() || shorter == source {
                    return None;
                }
                refused.insert(id);
                sources.insert(file.clone(), shorter);
            }
        }
    }
}

fn execute(compiled: &Compiled, probe: &str, test: bool) -> RunReturn {
    let host = host(probe);
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(run(&compiled.low, &host, RunOptions { test }, |_| {}))
}

/// Adds the differences of a probe: its name, the state, the aspect.
fn compare(name: &str, salt: &Value, found: &mut BTreeSet<Difference<3>>) {
    let (probe, test) = name
        .strip_suffix(".test=True")
        .map_or((name, false), |probe| (probe, true));
    let mut note = |state: &str, aspect: &str| {
        found.insert([name, state, aspect].map(str::to_owned));
    };
    let Value::Object(salt) = salt else {
        // Salt refused to compile it.
        if compile(&sources(), probe).is_ok() {
            note("*", "accepted");
        }
        return;
    };
    let mut refused = BTreeSet::new();
    let compiled =
        accepted(probe, &mut refused).unwrap_or_else(|| panic!("{name} does not compile at all"));
    for id in &refused {
        note(id, "refused");
    }
    let ours = execute(&compiled, probe, test);
    let mut theirs: Vec<(&String, &Value)> = salt.iter().collect();
    theirs.sort_by_key(|(_, state)| state["__run_num__"].as_u64());
    theirs.retain(|(tag, _)| {
        let id = tag.split("_|-").nth(1).unwrap_or_default();
        !refused.contains(id.strip_prefix("listener_").unwrap_or(id))
    });
    let tag = |index: usize, id: &str, function: &str, name: &str| {
        let chunk = &compiled.low.chunks[index];
        let fun = function.rsplit_once('.').map_or(function, |(_, fun)| fun);
        format!("{}_|-{id}_|-{name}_|-{fun}", chunk.state)
    };
    let order: Vec<String> = ours
        .states
        .iter()
        .map(|state| tag(state.index, &state.id, &state.function, &state.name))
        .collect();
    let their_order: Vec<String> = theirs.iter().map(|(tag, _)| (*tag).clone()).collect();
    if order != their_order {
        note("*", "order");
        eprintln!("{name}: {order:#?}\n{their_order:#?}");
    }
    for (tag, theirs) in theirs {
        let Some(ours) = order
            .iter()
            .position(|known| known == tag)
            .map(|at| &ours.states[at])
        else {
            continue;
        };
        let id = theirs["__id__"].as_str().unwrap_or(&ours.id);
        if theirs["result"].as_bool() != ours.result {
            note(id, "result");
        }
        if theirs["changes"]
            .as_object()
            .is_none_or(serde_json::Map::is_empty)
            != ours.changes.is_empty()
        {
            note(id, "changes");
        }
        // The comments of file.* are the minion's, not the engine's.
        if !ours.function.starts_with("file.") && theirs["comment"] != json!(ours.comment) {
            note(id, "comment");
            eprintln!("{name} {id}: {:?} {:?}", theirs["comment"], ours.comment);
        }
    }
}

#[test]
fn probes_agree_with_salt_or_are_in_the_table() {
    let mut found = BTreeSet::new();
    let probes = probes();
    assert!(probes.len() >= 63, "{}", probes.len());
    for (name, salt) in &probes {
        compare(name, salt, &mut found);
    }
    compare_with_table("differences", &found);
}

#[test]
fn a_second_compilation_is_the_same() {
    let sources = sources();
    for name in ["reqs", "opts", "files", "ext", "reqsls"] {
        let again = || {
            compile(&sources, name).map(|compiled| serde_json::to_string(&compiled.low).unwrap())
        };
        assert_eq!(again(), again());
    }
}
