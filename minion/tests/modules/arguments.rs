//! The law of arguments on the host: every argument of a signature is read, and a value that a
//! function would refuse for itself is refused by the compiler already, before any host is changed.
//!
//! The cases of a function give its calls; a new argument is covered when a case needs it.

use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow};
use halite_minion::modules::{self, Plan};
use halite_states::compile::{Compiled, Input, sls};
use halite_states::low::Chunk;
use halite_states::signature::Arg;
use halite_states::signatures;
use halite_states::tree::MemoryTree;
use serde_json::{Map, Value, json};

use super::support::{self, Case, build};
use super::{all_cases, block_on, checked};

/// Arguments that only the compiler reads.
const OF_THE_COMPILER: &[(&str, &[&str])] = &[
    ("file.comment", &["backup"]),
    (
        "file.managed",
        &[
            "contents_delimiter",
            "contents_pillar",
            "context",
            "defaults",
            "template",
        ],
    ),
    (
        "file.recurse",
        &["context", "defaults", "source", "template"],
    ),
    ("file.replace", &["backup"]),
    (
        "file.serialize",
        &["dataset", "dataset_pillar", "formatter", "serializer"],
    ),
    ("file.uncomment", &["backup"]),
];

/// Arguments whose value is good or bad by what is on the host.
const BY_THE_HOST: &[(&str, &[&str])] = &[
    // A line that matches.
    ("file.line", &["after", "before", "content", "match"]),
    // Only the shipped tree calls it, with the arguments of a static pod.
    ("etcd.founded", &["command"]),
];

fn has(table: &[(&str, &[&str])], function: &str, arg: &Arg) -> bool {
    let mut rows = table.iter().filter(|(known, _)| *known == function);
    rows.any(|(_, names)| names.contains(&arg.name))
}

/// The cases of each function.
fn by_function(cases: &[Case]) -> BTreeMap<String, Vec<&Case>> {
    let mut found: BTreeMap<String, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        let function = format!("{}.{}", case.state, case.fun);
        found.entry(function).or_default().push(case);
    }
    found
}

/// The outcome of a case's check with another chunk.
async fn outcome(
    case: &Case,
    edit: impl FnOnce(&mut Chunk),
) -> anyhow::Result<Result<Plan, String>> {
    let host = build(case).await?;
    let mut chunk = support::chunk(case, &host)?;
    edit(&mut chunk);
    let checked = checked(&host, case, &chunk).await;
    Ok(checked.map_err(|error| format!("{error:#}")))
}

/// Tests whether another value of an argument has an effect on the check of a case.
async fn reads(case: &Case, name: &str) -> anyhow::Result<bool> {
    let without = outcome(case, |_| {}).await?;
    for other in [
        json!({"probe": [null]}),
        json!("/probe"),
        json!(true),
        json!(77),
    ] {
        let with = outcome(case, |chunk| {
            chunk.args.insert(name.to_owned(), other);
        });
        if with.await? != without {
            return Ok(true);
        }
    }
    Ok(false)
}

#[test]
fn every_argument_is_read() {
    let cases = all_cases();
    let mut unread = Vec::new();
    for (function, cases) in by_function(&cases) {
        let (state, fun) = function.split_once('.').unwrap();
        for arg in signatures::find(state, fun).unwrap().args {
            if has(OF_THE_COMPILER, &function, arg) {
                continue;
            }
            let is_read = |case: &&Case| block_on(reads(case, arg.name)).unwrap();
            if !cases.iter().any(is_read) {
                unread.push(format!("{function}: {}", arg.name));
            }
        }
    }
    assert!(
        unread.is_empty(),
        "no case reads these arguments:\n{}",
        unread.join("\n")
    );
}

/// An SLS with one call.
fn compile(case: &Case, args: &Map<String, Value>) -> Option<Compiled> {
    let mut source = format!(
        "case:\n  {}.{}:\n    - name: {}\n",
        case.state,
        case.fun,
        json!(case.name)
    );
    for (name, value) in args {
        source.push_str(&format!("    - {name}: {value}\n"));
    }
    let tree = MemoryTree::new()
        .with("a.sls", source.as_str())
        .with("tree/file", "text\n");
    let (pillar, grains) = (json!({}), json!({}));
    let input = Input {
        tree: &tree,
        minion: "m",
        pillar: &pillar,
        grains: &grains,
        bundle: &|_| None,
    };
    sls(&input, &["a".to_owned()]).ok()
}

/// The arguments of a case as an SLS gives them, if an SLS can.
async fn written(case: &Case) -> anyhow::Result<Option<Map<String, Value>>> {
    let host = build(case).await?;
    let mut args = support::chunk(case, &host)?.args;
    for name in signatures::compiled_arguments(&case.state, &case.fun) {
        args.remove(*name);
    }
    let further = match (case.state.as_str(), case.fun.as_str()) {
        ("file", "recurse") => Some(("source", json!("salt://tree"))),
        ("file", "serialize") => Some(("dataset", json!({"a": 1}))),
        _ => None,
    };
    args.extend(further.map(|(name, value)| (name.to_owned(), value)));
    Ok(compile(case, &args).map(|_| args))
}

/// The complaint of the check about an argument with a value that the compiler accepts.
async fn complaint(
    case: &Case,
    args: &Map<String, Value>,
    arg: &Arg,
) -> anyhow::Result<Option<String>> {
    let Some(compiled) = compile(case, args) else {
        return Ok(None);
    };
    let host = build(case).await?;
    for (hash, content) in compiled.blobs {
        host.state().blobs.insert(hash, content);
    }
    let [chunk] = compiled.low.chunks.as_slice() else {
        return Err(anyhow!("not one call"));
    };
    let Err(error) = checked(&host, case, chunk).await else {
        return Ok(None);
    };
    let text = format!("{error:#}");
    let is_about =
        text.contains(&format!("`{}`", arg.name)) || text.contains("not an absolute path");
    Ok(is_about.then_some(text))
}

#[test]
fn a_value_that_the_host_would_refuse_is_refused_before() {
    let values = [
        json!(null),
        json!(7),
        json!(-7),
        json!(70_000),
        json!(5_000_000_000_i64),
        json!(3.5),
        json!(true),
        json!("probe"),
        json!("/probe"),
        json!(["probe"]),
        json!(["/probe", "user"]),
        json!([7]),
        json!([]),
        json!({"probe": "x"}),
        json!({"probe": ["x"]}),
        json!([{"probe": "x"}]),
    ];
    let cases = all_cases();
    let mut wrong = Vec::new();
    for (function, cases) in by_function(&cases) {
        let (state, fun) = function.split_once('.').unwrap();
        // A function of `test` fails by its nature.
        let succeeds =
            |case: &&&Case| (case.expected.error.is_none() || state == "test") && !case.watch;
        let mut calls = cases.iter().filter(succeeds);
        let call = calls.find_map(|case| Some((*case, block_on(written(case)).unwrap()?)));
        let Some((case, args)) = call else {
            wrong.push(format!("{function}: no case can be written as an SLS"));
            continue;
        };
        for arg in signatures::find(state, fun).unwrap().args {
            if has(BY_THE_HOST, &function, arg) {
                continue;
            }
            for value in &values {
                let mut args = args.clone();
                args.insert(arg.name.to_owned(), value.clone());
                let complaint = block_on(complaint(case, &args, arg));
                let complaint = complaint.with_context(|| function.clone()).unwrap();
                wrong.extend(
                    complaint.map(|text| format!("{function}: `{}: {value}`: {text}", arg.name)),
                );
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "refused on the host only:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_tables_name_arguments_that_exist() {
    for (function, names) in OF_THE_COMPILER.iter().chain(BY_THE_HOST) {
        let (state, fun) = function.split_once('.').unwrap();
        let signature = signatures::find(state, fun).unwrap();
        assert!(modules::find(state, fun).is_some(), "{function}");
        for name in *names {
            assert!(
                signature.args.iter().any(|arg| arg.name == *name),
                "{function}: {name}"
            );
        }
    }
}
