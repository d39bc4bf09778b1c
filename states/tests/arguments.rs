//! The law of arguments, on every function and every argument that a signature has: a value is
//! refused by the compiler, or it is in the low state. Nothing is dropped or changed on the way.
//!
//! A new function is covered without a line here, unless it needs more than its required arguments.
#![expect(clippy::unwrap_used, reason = "a test's panic is its report")]

use halite_document::Problem;
use halite_document::yaml::KEY_MARK;
use halite_states::compile::{Compiled, Input, step};
use halite_states::low::Chunk;
use halite_states::signature::{Arg, ArgumentKind, Signature};
use halite_states::signatures::signatures;
use halite_states::tree::MemoryTree;
use serde_json::{Map, Value, json};

/// Values in YAML that people write, with the texts and keys that must be in the low state.
const VALUES: &[(&str, &[&str])] = &[
    ("7", &["7"]),
    ("-7", &["-7"]),
    ("3.5", &["3.5"]),
    ("True", &["True"]),
    ("probe", &["probe"]),
    ("'8080'", &["8080"]),
    ("/probe", &["/probe"]),
    ("10.0.0.1", &["10.0.0.1"]),
    ("[probe]", &["probe"]),
    ("[probe, other]", &["probe", "other"]),
    ("[7, 8]", &["7", "8"]),
    ("[10.0.0.1, 'fd00::1']", &["10.0.0.1", "fd00::1"]),
    ("[[probe]]", &["probe"]),
    ("[null]", &[]),
    ("{probe: other}", &["probe", "other"]),
    ("{probe: 7}", &["probe", "7"]),
    ("{probe: {deep: other}}", &["probe", "deep", "other"]),
    ("{probe: [other]}", &["probe", "other"]),
    ("[{probe: other}]", &["probe", "other"]),
    (
        "[{probe: other}, {more: 7}]",
        &["probe", "other", "more", "7"],
    ),
    (
        "[{probe: other, more: 7}]",
        &["probe", "other", "more", "7"],
    ),
    ("[probe, {other: '1.2'}]", &["probe", "other", "1.2"]),
];

/// Arguments that the compiler uses up: the low state has their effect.
const USED_UP: &[(&str, &str)] = &[
    ("archive.extracted", "source"),
    ("file.managed", "contents_delimiter"),
    ("file.managed", "contents_pillar"),
    ("file.managed", "context"),
    ("file.managed", "defaults"),
    ("file.managed", "source"),
    ("file.managed", "template"),
    ("file.recurse", "context"),
    ("file.recurse", "defaults"),
    ("file.recurse", "source"),
    ("file.recurse", "template"),
    ("file.serialize", "dataset"),
    ("file.serialize", "dataset_pillar"),
    ("file.serialize", "formatter"),
    ("file.serialize", "serializer"),
    ("kubernetes.manifest", "context"),
    ("kubernetes.manifest", "defaults"),
    ("kubernetes.manifest", "source"),
    ("kubernetes.manifest", "template"),
];

/// Arguments in YAML that a call needs in addition to the required ones.
fn more(signature: &Signature) -> &'static [(&'static str, &'static str)] {
    match (signature.state, signature.fun) {
        ("file", "line") => &[("mode", "ensure"), ("content", "x"), ("after", "y")],
        ("file", "recurse") => &[("source", "salt://tree")],
        ("file", "serialize") => &[("dataset", "{a: 1}")],
        ("kubeconfig", "managed") => &[("common_name", "x")],
        ("kubernetes", "manifest") => &[("documents", "[]")],
        ("kubernetes", "object") => &[("manifest", "{kind: ConfigMap}")],
        ("pkgrepo", "managed") => &[("uris", "['https://x']")],
        _ => &[],
    }
}

/// A good value for a required argument, in YAML.
fn good(arg: &Arg) -> String {
    match arg.kind {
        ArgumentKind::Word(words) | ArgumentKind::Words(words) => words[0].to_owned(),
        ArgumentKind::Path => "/path".to_owned(),
        ArgumentKind::Addresses => "10.0.0.9".to_owned(),
        ArgumentKind::Integer | ArgumentKind::Codes => "1".to_owned(),
        ArgumentKind::Within(least, _) => least.to_string(),
        ArgumentKind::Boolean => "true".to_owned(),
        ArgumentKind::Mode => "'0644'".to_owned(),
        ArgumentKind::Mapping => "{}".to_owned(),
        ArgumentKind::Packages | ArgumentKind::Mappings => "[]".to_owned(),
        ArgumentKind::Variables => "{A: x}".to_owned(),
        ArgumentKind::Text
        | ArgumentKind::Scalar
        | ArgumentKind::TextList
        | ArgumentKind::Sources
        | ArgumentKind::LinePattern
        | ArgumentKind::PathPatterns
        | ArgumentKind::Any => "/value".to_owned(),
    }
}

/// A call of a function, with one argument in YAML in addition to those that it needs.
fn call(signature: &Signature, further: Option<(&str, &str)>) -> Result<Compiled, Vec<Problem>> {
    let mut given: Vec<(&str, String)> = Vec::new();
    for arg in signature.args.iter().filter(|arg| arg.required) {
        given.push((arg.name, good(arg)));
    }
    for (name, value) in more(signature).iter().copied().chain(further) {
        given.retain(|(known, _)| *known != name);
        given.push((name, value.to_owned()));
    }
    let function = format!("{}.{}", signature.state, signature.fun);
    let mut source = format!("/call:\n  {function}:\n    - order: 1\n");
    for (name, value) in given {
        source.push_str(&format!("    - {name}: {value}\n"));
    }
    let tree = MemoryTree::new()
        .with("a.sls", source.as_str())
        .with("tree/file", "text\n");
    let (pillar, grains) = (json!({"probe": "text", "other": {"a": 1}}), json!({}));
    let input = Input {
        tree: &tree,
        minion: "m",
        pillar: &pillar,
        grains: &grains,
        bundle: &|_| None,
    };
    step(&input, &["a".to_owned()])
}

fn arguments(compiled: &Compiled) -> Map<String, Value> {
    let [Chunk { args, .. }] = compiled.low.chunks.as_slice() else {
        panic!("not one call");
    };
    let given = args.iter().filter(|(_, value)| !value.is_null());
    given
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// All texts, numbers and keys of a value.
fn leaves(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Bool(truth) => into.push(if *truth { "True" } else { "False" }.to_owned()),
        Value::Number(number) => into.push(number.to_string()),
        Value::String(text) => into.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| leaves(item, into)),
        Value::Object(map) => {
            for (key, value) in map {
                into.push(key.trim_start_matches(KEY_MARK).to_owned());
                leaves(value, into);
            }
        }
    }
}

/// A fault of an accepted value: the low state lacks a part of it.
fn fault(function: &str, arg: &Arg, parts: &[&str], compiled: &Compiled) -> Option<String> {
    if USED_UP.contains(&(function, arg.name)) {
        return None;
    }
    let args = arguments(compiled);
    let Some(found) = args.get(arg.name) else {
        return Some("is not in the low state".to_owned());
    };
    let mut found_parts = Vec::new();
    leaves(found, &mut found_parts);
    // Modes are octal, lines of `contents` are one text.
    let is_there = |part: &&&str| match arg.kind {
        ArgumentKind::Mode => {
            let mode = u32::from_str_radix(part, 8).map(|mode| mode.to_string());
            mode.is_ok_and(|mode| found_parts.contains(&mode))
        }
        ArgumentKind::Text => found_parts
            .iter()
            .any(|one| one.lines().any(|line| line == **part)),
        _ => found_parts.iter().any(|one| one == **part),
    };
    let missing: Vec<&&str> = parts.iter().filter(|part| !is_there(part)).collect();
    (!missing.is_empty()).then(|| format!("lost {missing:?}: it is {found}"))
}

#[test]
fn a_value_is_refused_or_it_is_in_the_low_state() {
    let mut wrong = Vec::new();
    let mut accepted = 0;
    for signature in signatures() {
        let function = format!("{}.{}", signature.state, signature.fun);
        if let Err(problems) = call(signature, None) {
            wrong.push(format!(
                "{function}: `more` lacks an argument: {problems:?}"
            ));
            continue;
        }
        for arg in signature.args {
            for (value, parts) in VALUES {
                let Ok(compiled) = call(signature, Some((arg.name, value))) else {
                    continue;
                };
                accepted += 1;
                if let Some(fault) = fault(&function, arg, parts, &compiled) {
                    wrong.push(format!("{function}: `{}: {value}` {fault}", arg.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(accepted > 500, "only {accepted} values were accepted");
}

#[test]
fn a_null_is_an_argument_that_is_not_given() {
    let mut wrong = Vec::new();
    for signature in signatures() {
        let without = call(signature, None).map(|compiled| arguments(&compiled));
        for arg in signature.args {
            let is_needed =
                arg.required || more(signature).iter().any(|(name, _)| *name == arg.name);
            let with =
                call(signature, Some((arg.name, "null"))).map(|compiled| arguments(&compiled));
            let holds = match with {
                Ok(with) => !arg.required && (is_needed || Ok(with) == without),
                Err(_) => is_needed,
            };
            if !holds {
                wrong.push(format!(
                    "{}.{}: {}",
                    signature.state, signature.fun, arg.name
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "a null counts: {}", wrong.join(", "));
}

/// Compiles two calls of a function, which must give two low states.
fn differs(function: &str, sets: [&[(&str, &str)]; 2]) {
    let [one, other] = sets.map(|set| {
        let mut source = format!("/call:\n  {function}:\n");
        for (name, value) in set {
            source.push_str(&format!("    - {name}: {value}\n"));
        }
        let tree = MemoryTree::new()
            .with("a.sls", source.as_str())
            .with("one/file", "{{ v }}\n")
            .with("two/file", "{{ v }}{{ v }}\n")
            .with(
                "object.yaml",
                "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {{ v }}}\n",
            );
        let (pillar, grains) = (
            json!({"a": {"b": "x"}, "c": "y", "a:b": "z", "d": {"e": 1}}),
            json!({}),
        );
        let input = Input {
            tree: &tree,
            minion: "m",
            pillar: &pillar,
            grains: &grains,
            bundle: &|_| None,
        };
        step(&input, &["a".to_owned()]).unwrap().low
    });
    assert_ne!(one, other, "{function}: {sets:?}");
}

#[test]
fn a_used_up_argument_makes_a_difference() {
    let template = ("template", "jinja");
    for (function, one) in [
        ("file.managed", "salt://one/file"),
        ("file.recurse", "salt://one"),
        ("kubernetes.manifest", "salt://object.yaml"),
    ] {
        let source = ("source", one);
        for name in ["context", "defaults"] {
            let (first, second) = ((name, "{v: '{a: 1}'}"), (name, "{v: '{a: 2}'}"));
            differs(
                function,
                [&[source, template, first], &[source, template, second]],
            );
        }
    }
    for (function, one, two) in [
        ("file.managed", "salt://one/file", "salt://two/file"),
        ("file.recurse", "salt://one", "salt://two"),
    ] {
        let (one, two) = (("source", one), ("source", two));
        differs(function, [&[one], &[two]]);
        differs(function, [&[one], &[one, template, ("context", "{v: x}")]]);
    }
    let (flat, deep) = (("contents_pillar", "c"), ("contents_pillar", "'a:b'"));
    differs("file.managed", [&[flat], &[deep]]);
    let delimiter = ("contents_delimiter", "'.'");
    differs("file.managed", [&[deep], &[deep, delimiter]]);
    let data = ("dataset", "{a: 1}");
    differs("file.serialize", [&[data], &[("dataset", "{a: 2}")]]);
    let (one, two) = (("dataset_pillar", "a"), ("dataset_pillar", "d"));
    differs("file.serialize", [&[one], &[two]]);
    for name in ["serializer", "formatter"] {
        let (yaml, json) = ((name, "yaml"), (name, "json"));
        differs("file.serialize", [&[data, yaml], &[data, json]]);
    }
}
