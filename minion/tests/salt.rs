//! Comparison of state functions with real Salt: the result of each probe on the host, as recorded
//! with Salt 3008.3. It is the same here, or the second table in `docs/coming-from-salt.md` has the
//! difference; and every row of that table is a difference that occurs.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test's panic is its report"
)]

#[path = "../../states/tests/common/differences.rs"]
mod differences;
#[path = "salt/states.rs"]
mod states;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use differences::compare_with_table;
use halite_minion::host::FileKind;
use halite_minion::runner::Runner;
use halite_minion_fake::{FakeHost, FakeState};
use halite_states::compile::{Compiled, Input, sls};
use halite_states::engine::RunOptions;
use halite_states::low::RunReturn;
use halite_states::run::run;
use halite_states::tree::MemoryTree;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

const LAB: &str = "/lab";
/// The files of each directory before `clean`.
const SEED: &[&str] = &[
    "foreign",
    "d/foreign",
    "a.conf",
    "b.conf",
    "c.conf",
    "keep/in",
];

/// Functions that edit one file.
const EDITS: &[(&str, &str)] = &[
    ("file_line", "file.line"),
    ("file_append", "file.append"),
    ("file_blockreplace", "file.blockreplace"),
    ("file_replace", "file.replace"),
    ("file_comment", "file.comment"),
    ("file_uncomment", "file.uncomment"),
];

/// One edit, twice.
#[derive(Deserialize)]
struct Line {
    before: String,
    args: Map<String, Value>,
    result: bool,
    after: String,
    /// The file after a second run, if that changed it.
    again: Option<String>,
}

/// States, one of which, whose id ends with `-clean`, cleans the directory.
#[derive(Deserialize)]
struct Clean {
    states: Value,
    result: bool,
    /// Entries afterwards; directories end with a slash.
    left: Vec<String>,
}

fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

fn probe<T: DeserializeOwned>(name: &str) -> BTreeMap<String, T> {
    let text = std::fs::read_to_string(path(&format!("tests/salt/{name}.json"))).unwrap();
    serde_json::from_str(&text.replace("@LAB@", LAB)).unwrap()
}

/// Compiles states, given as JSON; `None` if they are refused.
fn compile(states: &Value) -> Option<Compiled> {
    compile_text(&states.to_string())
}

/// Compiles the text of an SLS; `None` if it is refused.
fn compile_text(text: &str) -> Option<Compiled> {
    let tree = MemoryTree::new()
        .with("probe.sls", text)
        .with("tree/one", "one\n")
        .with("tree/sub/two", "two\n")
        .with("tree/sub/skip.bak", "skip\n");
    let (pillar, grains) = (json!({}), json!({}));
    let input = Input {
        tree: &tree,
        minion: "local",
        pillar: &pillar,
        grains: &grains,
        bundle: &|_| None,
    };
    sls(&input, &["probe".to_owned()]).ok()
}

fn apply(host: &FakeHost, compiled: &Compiled) -> RunReturn {
    let runner = Runner::new(host);
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(run(&compiled.low, &runner, RunOptions::default(), |_| {}))
}

/// Returns whether Halite edits a file like Salt; a second run never changes anything.
fn is_same_line(function: &str, line: &Line) -> bool {
    let file = format!("{LAB}/file");
    let mut args = vec![json!({"name": file})];
    args.extend(line.args.iter().map(|(key, value)| json!({key: value})));
    let Some(compiled) = compile(&json!({"line": {function: args}})) else {
        // Refused before it runs, while Salt fails during the run.
        return !line.result;
    };
    let host = FakeHost::new();
    host.state().put_file(&file, line.before.as_bytes());
    let succeeded = apply(&host, &compiled).succeeded();
    let after = host.text(&file).unwrap();
    let again = apply(&host, &compiled);
    assert_eq!(again.changed(), 0, "{:?}", line.args);
    let same = succeeded == line.result && after == line.after && line.again.is_none();
    if !same {
        eprintln!("{:?}: {after:?}, Salt: {:?}", line.args, line.after);
    }
    same
}

fn is_same_clean(case: &str, clean: &Clean) -> bool {
    let Some(compiled) = compile(&clean.states) else {
        return !clean.result;
    };
    let root = format!("{LAB}/{case}");
    let host = FakeHost::new();
    for file in SEED {
        host.state().put_file(&format!("{root}/{file}"), b"x");
    }
    let returned = apply(&host, &compiled);
    let cleaned = returned
        .states
        .iter()
        .find(|state| state.id.ends_with("-clean"))
        .unwrap();
    let mut left = Vec::new();
    entries(&host.state(), &root, "", &mut left);
    left.sort();
    let same = cleaned.result == Some(clean.result) && left == clean.left;
    if !same {
        eprintln!("{case}: {left:?}, Salt: {:?}", clean.left);
    }
    same
}

fn entries(state: &FakeState, root: &str, below: &str, found: &mut Vec<String>) {
    for name in state.disk.list(&format!("{root}/{below}")) {
        let relative = format!("{below}{name}");
        let stat = state.disk.stat(&format!("{root}/{relative}")).unwrap();
        if stat.kind == FileKind::Directory {
            let directory = format!("{relative}/");
            entries(state, root, &directory, found);
            found.push(directory);
        } else {
            found.push(relative);
        }
    }
}

#[test]
fn functions_do_what_salts_do_or_are_in_the_table() {
    let mut found = BTreeSet::new();
    // Probe and case.
    let mut note = |probe: &str, case: String| {
        found.insert([probe.to_owned(), case]);
    };
    let mut edits = 0;
    for (probe_name, function) in EDITS {
        for (case, line) in probe::<Line>(probe_name) {
            edits += 1;
            if !is_same_line(function, &line) {
                note(probe_name, case);
            }
        }
    }
    let cleans: BTreeMap<String, Clean> = probe("file_clean");
    assert!(edits >= 150 && cleans.len() >= 29, "{edits}");
    for (case, clean) in cleans {
        if !is_same_clean(&case, &clean) {
            note("file_clean", case);
        }
    }
    compare_with_table("differences of functions", &found);
}
