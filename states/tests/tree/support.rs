//! Helpers that compile the shipped tree and inspect the result.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use halite_states::compile;
use halite_states::compile::{Compiled, Input};
use halite_states::low::Chunk;
use halite_states::tree::DirTree;
use serde_json::Value;

/// Makes a program. Another process writes it: a child that another test has just started would
/// hold the file open too, and a file that is open for writing cannot be run (ETXTBSY).
pub fn make_program(path: &Path, text: &str) {
    let write = r#"printf %s "$1" > "$0" && chmod 755 "$0""#;
    let written = std::process::Command::new("/bin/sh")
        .args(["-ec", write])
        .arg(path)
        .arg(text)
        .status();
    assert!(written.unwrap().success());
}

pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Pillar and grains of one target.
pub fn fixture(name: &str) -> (Value, Value) {
    let text = fs::read_to_string(here().join(format!("tests/tree/{name}.json"))).unwrap();
    let mut fixture: Value = serde_json::from_str(&text).unwrap();
    (fixture["pillar"].take(), fixture["grains"].take())
}

pub fn bundle(path: &str) -> Option<String> {
    [
        "bin/ctl",
        "bin/halite-master",
        "bin/halite-minion",
        "apt/halite.gpg",
        "apt-trixie/halite.gpg",
        "rpm/halite.asc",
        "nginx/registry.conf",
    ]
    .contains(&path)
    .then(|| halite_states::tree::sha256(path.as_bytes()))
}

pub fn with<R>(pillar: &Value, grains: &Value, run: impl FnOnce(&Input) -> R) -> R {
    let tree = DirTree::new().root(here().join("tree"));
    let minion = grains["id"].as_str().unwrap();
    run(&Input {
        tree: &tree,
        minion,
        pillar,
        grains,
        bundle: &bundle,
    })
}

pub fn sure(compiled: Result<Compiled, Vec<halite_document::Problem>>) -> Compiled {
    compiled.unwrap_or_else(|problems| {
        panic!(
            "{}",
            problems
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        )
    })
}

pub fn highstate(pillar: &Value, grains: &Value) -> Compiled {
    sure(with(pillar, grains, compile::highstate))
}

pub fn of(name: &str) -> Compiled {
    let (pillar, grains) = fixture(name);
    highstate(&pillar, &grains)
}

pub fn chunk<'a>(compiled: &'a Compiled, fun: &str, name: &str) -> &'a Chunk {
    let found = compiled
        .low
        .chunks
        .iter()
        .find(|chunk| chunk.function() == fun && chunk.name == name);
    found.unwrap_or_else(|| panic!("no {fun} {name}"))
}

pub fn contents<'a>(compiled: &'a Compiled, name: &str) -> &'a str {
    chunk(compiled, "file.managed", name).args["contents"]
        .as_str()
        .unwrap()
}

/// Compares with a golden file, or writes it.
pub fn golden(name: &str, actual: &str) {
    let path: PathBuf = here().join("tests/tree").join(name);
    if std::env::var_os("HALITE_UPDATE_GOLDENS").is_some() {
        fs::write(&path, actual).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&path).unwrap_or_default(),
        actual,
        "{}",
        path.display()
    );
}

pub fn listing(compiled: &Compiled) -> String {
    compiled
        .low
        .chunks
        .iter()
        .map(|chunk| {
            let name = if chunk.name == chunk.id {
                String::new()
            } else {
                format!(" ({})", chunk.name)
            };
            format!(
                "{:<34} {:<28} {}{name}\n",
                chunk.sls,
                chunk.function(),
                chunk.id
            )
        })
        .collect()
}

/// The steps of an orchestration, one per line: its id, its function, and its target; what it waits
/// for, unless that is the previous step.
pub fn steps(case: &str, compiled: &Compiled) -> String {
    let chunks = &compiled.low.chunks;
    let line = |(index, chunk): (usize, &Chunk)| {
        let about = ["tgt", "node"]
            .iter()
            .find_map(|key| chunk.args.get(*key)?.as_str());
        let about = about.unwrap_or_default();
        let required = chunk.requisites.require.iter();
        let required: Vec<&str> = required.map(|at| chunks[*at].id.as_str()).collect();
        let previous = index.checked_sub(1).map(|at| chunks[at].id.as_str());
        let waits = match required.as_slice() {
            [] if previous.is_none() => String::new(),
            [only] if previous == Some(*only) => String::new(),
            [] => "  (after nothing)".to_owned(),
            some => format!("  (after {})", some.join(", ")),
        };
        let line = format!("  {:<20} {:<28} {about}{waits}", chunk.id, chunk.function());
        line.trim_end().to_owned() + "\n"
    };
    let lines: String = chunks.iter().enumerate().map(line).collect();
    format!("{case}\n{lines}")
}

/// The ids of the steps for which a step waits, directly or through others.
pub fn before<'a>(compiled: &'a Compiled, id: &str) -> BTreeSet<&'a str> {
    let chunks = &compiled.low.chunks;
    let mut found = BTreeSet::new();
    let mut waiting = vec![by_id(compiled, id).0];
    while let Some(at) = waiting.pop() {
        for required in &chunks[at].requisites.require {
            if found.insert(chunks[*required].id.as_str()) {
                waiting.push(*required);
            }
        }
    }
    found
}

/// Each step waits only for the previous one.
pub fn assert_chain(compiled: &Compiled) {
    for (index, chunk) in compiled.low.chunks.iter().enumerate().skip(1) {
        assert_eq!(chunk.requisites.require, [index - 1], "{}", chunk.id);
    }
}

/// The chunk with this id, and its place.
pub fn by_id<'a>(compiled: &'a Compiled, id: &str) -> (usize, &'a Chunk) {
    let mut found = compiled.low.chunks.iter().enumerate();
    found.find(|(_, chunk)| chunk.id == id).unwrap()
}
