//! The law "the plan is the result" on a real host: a bare host gives the same answers to a table
//! of inputs as the fake host. `minion/tests/laws` has the table and the answers of the fake host.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use halite_api::LocalOutcome;
use halite_lab::build::{Programs, source_root};
use halite_lab::command::run;
use halite_lab::host::{Host, Spec};
use halite_lab::progress::Board;
use halite_lab::{Lab, base, prerequisites};
use halite_states::low::StateReturn;
use serde::Deserialize;
use serde_json::Value;

use crate::ctl_answer;
use crate::lab_itself::bare_host;
use crate::test::{Counts, Test};

pub(super) const FULL: &[Test<()>] = &[Test {
    name: "laws: the plan is the result on the fake host and on a real one",
    run: answers_are_equal,
}];

const LAB: &str = "laws";

/// The directory of the programs in the host, as on a host of a cluster.
const PROGRAMS: &str = "/media/halite";

/// The state tree in the host.
const TREE: &str = "/root/laws";

/// Options of a check, and of an application.
const TEST: &[&str] = &["--test"];
const APPLY: &[&str] = &[];

/// The command `law-package NAME VERSION [hold]` of the table: installs an empty package.
const LAW_PACKAGE: &str = r#"#!/bin/sh
set -e
dir=$(mktemp -d)
mkdir "$dir/DEBIAN"
cat > "$dir/DEBIAN/control" <<END
Package: $1
Version: $2
Architecture: all
Maintainer: law <law@law.example>
Description: law
END
chmod 755 "$dir" "$dir/DEBIAN"
dpkg-deb --build --root-owner-group "$dir" "$dir.deb" >/dev/null
dpkg --install "$dir.deb" >/dev/null
[ -z "$3" ] || apt-mark "$3" "$1" >/dev/null
rm -rf "$dir" "$dir.deb"
"#;

/// The table with the answers of the fake host.
#[derive(Deserialize)]
struct LawTable {
    /// Keys of a return that are not compared, with the reason.
    left_out: BTreeMap<String, String>,
    inputs: Vec<LawInput>,
}

/// One input with the answers of the fake host.
#[derive(Deserialize)]
struct LawInput {
    name: String,
    /// States that make the start.
    start: Option<String>,
    states: String,
    /// The results of the states that make the start.
    started: Vec<Option<bool>>,
    plan: Vec<Value>,
    result: Vec<Value>,
    second: Vec<Value>,
}

fn answers_are_equal((): &()) -> Result<Counts> {
    let laws = source_root().join("minion/tests/laws");
    let file = laws.join("answers.json");
    let text = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let table: LawTable = serde_json::from_slice(&text)
        .with_context(|| format!("cannot read {} as a table", file.display()))?;
    ensure!(
        table.inputs.len() >= 60,
        "only {} inputs",
        table.inputs.len()
    );
    prerequisites::ensure(&mut |_| {})?;
    let base = base::ensure(&halite_lab::cache(), &mut |_| {})?;
    let lab = Lab::new(LAB, &base)?;
    lab.down()?;
    let programs = Programs::Dev.build(&Board::plain())?;
    let host = lab.boot(Spec {
        read_only: vec![(programs, PathBuf::from(PROGRAMS))],
        ..bare_host("law-1", 11)
    })?;
    prepare(&host, &laws.join("tree"))?;
    let mut different = Vec::new();
    for input in &table.inputs {
        let found = differences(&host, &table.left_out, input)
            .with_context(|| format!("the input {:?}", input.name))?;
        different.extend(found);
    }
    // Its disks and logs remain after a failure.
    ensure!(
        different.is_empty(),
        "{} answers are not those of the fake host:\n{}",
        different.len(),
        different.join("\n\n")
    );
    lab.down()?;
    Ok(Counts::ONE)
}

/// Copies the state tree and the command of the table, and makes the directory of the inputs.
fn prepare(host: &Host, tree: &Path) -> Result<()> {
    let copy = host.file(TREE);
    let words = [OsStr::new("-r"), tree.as_os_str(), copy.as_os_str()];
    run("cp", &words)?;
    let command = host.file("/usr/local/bin/law-package");
    fs::write(&command, LAW_PACKAGE)?;
    fs::set_permissions(&command, fs::Permissions::from_mode(0o755))?;
    fs::create_dir(host.file("/srv/law"))?;
    Ok(())
}

/// Runs an input, and returns one text for each answer that differs.
fn differences(
    host: &Host,
    left_out: &BTreeMap<String, String>,
    input: &LawInput,
) -> Result<Vec<String>> {
    let mut all = Vec::new();
    if let Some(start) = &input.start {
        let states = apply(host, start, APPLY)?;
        let started: Vec<Option<bool>> = states.iter().map(|state| state.result).collect();
        if started != input.started {
            let comments: Vec<&str> = states.iter().map(|state| state.comment.as_str()).collect();
            all.push(format!(
                "{}: the start has the results {started:?}, not {:?}: {comments:#?}",
                input.name, input.started
            ));
        }
    }
    for (what, options, wanted) in [
        ("plan", TEST, &input.plan),
        ("result", APPLY, &input.result),
        ("second check", TEST, &input.second),
    ] {
        let found = apply(host, &input.states, options)?;
        let found = found.iter().map(|state| normal(state, left_out));
        let found: Vec<Value> = found.collect::<Result<_>>()?;
        if found.len() != wanted.len() {
            all.push(format!(
                "{}: the {what} has {} states, not {}",
                input.name,
                found.len(),
                wanted.len()
            ));
        }
        let pairs = found.iter().zip(wanted).filter(|(one, other)| one != other);
        all.extend(pairs.map(|(real, fake)| {
            format!(
                "{}: the {what} on the real host:\n{real:#}\non the fake host:\n{fake:#}",
                input.name
            )
        }));
    }
    Ok(all)
}

/// Applies states by `ctl local apply`, whatever their results are.
fn apply(host: &Host, states: &str, options: &[&str]) -> Result<Vec<StateReturn>> {
    let file = host.file(&format!("{TREE}/input.sls"));
    fs::write(&file, states).with_context(|| format!("cannot write {}", file.display()))?;
    let words = [&["local", "apply", "input", "--tree", TREE], options].concat();
    let (_, outcome): (_, LocalOutcome) = ctl_answer::in_any_case(host, &words)?;
    Ok(outcome.states)
}

/// A return without the keys that are not compared.
fn normal(state: &StateReturn, left_out: &BTreeMap<String, String>) -> Result<Value> {
    let mut value = serde_json::to_value(state)?;
    if let Some(keys) = value.as_object_mut() {
        keys.retain(|key, _| !left_out.contains_key(key));
    }
    Ok(value)
}
