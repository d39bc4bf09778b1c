//! Each call of operators, each word of `Show` and each event has a contract test: a real value
//! that the master's tests have stored in `lib/api/contract`, and that the tests of `ctl` print.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value;

use crate::tree;
use crate::tree::Text;

/// The stored values.
const STORED: &str = "lib/api/contract/";

/// The calls of operators, and the stored values that show their answers. [`shown`] has those of
/// `Show`.
const CALLS: &[(&str, &[&str])] = &[
    ("Status", &["status"]),
    ("Show", &[]),
    ("Run", &["event-job-new", "event-job-done"]),
    ("Orchestrate", &["event-run-new", "event-run-done"]),
    ("ListJobs", &["jobs"]),
    ("ShowJob", &["job", "run"]),
    ("CancelJob", &["job-cancellation"]),
    ("CancelRun", &["run-cancellation", "upgrade-status"]),
    ("ListKeys", &["keys"]),
    ("ChangeKey", &["key-change"]),
    ("CreateToken", &["create-token-reply"]),
    ("ListTokens", &["tokens"]),
    ("RevokeToken", &["token-revocation"]),
    ("AddNode", &["add-node-reply"]),
    ("CreateOperator", &["create-operator-reply"]),
    ("RenewOperator", &["renew-operator-reply"]),
    ("RequestCa", &["ca-request"]),
    ("ImportCa", &["prepared-ca"]),
    ("ListOperators", &["operators"]),
    ("RevokeOperator", &["operator-revocation"]),
    ("Watch", &["event-key"]),
    ("ReadAudit", &["audit"]),
    ("ListSinks", &["sinks"]),
    ("TestSinks", &["sink-tests"]),
    ("Backup", &["backup-parts"]),
    ("Kubeconfig", &["kubeconfig-reply"]),
    ("HandOver", &["master-move"]),
];

fn read(path: &str) -> String {
    std::fs::read_to_string(tree::root().join(path)).unwrap()
}

/// The text between the first occurrence of a start and the next occurrence of an end.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap();
    rest.split_once(end).unwrap().0
}

/// All first groups of a pattern in a text.
fn all(text: &str, pattern: &str) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).unwrap();
    let found = pattern.captures_iter(text);
    found.map(|captures| captures[1].to_owned()).collect()
}

/// The calls of operators in the protocol.
fn calls() -> BTreeSet<String> {
    let protocol = read("proto/proto/halite.proto");
    let service = between(&protocol, "service Operator {", "\n}");
    all(service, r"(?m)^\s*rpc (\w+)\(")
}

/// The words of `Show`; the stored value has the same name.
fn shown() -> BTreeSet<String> {
    let source = read("master/src/operator/show.rs");
    let function = between(&source, "pub async fn show(", "\n}");
    let mut words = all(function, r#"request\.what == "([a-z-]+)""#);
    words.extend(all(function, r#"(?m)^\s*"([a-z-]+)" =>"#));
    words
}

/// The tags of events without ids, for example `job/new`, that the comments of their types name.
fn tags() -> BTreeSet<String> {
    let source = read("lib/api/src/event_data.rs");
    let pattern = r"`halite/((?:job|run)/(?:JOB|RUN)/[a-z]+|key)/?[A-Z]*`";
    let tags = all(&source, pattern).into_iter();
    tags.map(|tag| tag.replace("JOB/", "").replace("RUN/", ""))
        .collect()
}

/// The types of events whose comment names no tag.
fn events_without_a_tag() -> Vec<String> {
    let source = read("lib/api/src/event_data.rs");
    let variants = between(&source, "pub enum EventData {", "\n}");
    let types = all(variants, r"(?m)^\s*\w+\((?:Box<)?(\w+)>?\),");
    let is_tagged = |name: &String| {
        let (before, _) = source.split_once(&format!("pub struct {name} {{")).unwrap();
        let comment = before.rsplit("\n\n").next().unwrap();
        comment.contains("`halite/")
    };
    // The variant for other versions keeps any value.
    let types = types.into_iter().filter(|name| name != "Value");
    types.filter(|name| !is_tagged(name)).collect()
}

/// The tag of a stored event in the form of [`tags`].
fn tag_of(event: &Text) -> String {
    let event: Value = serde_json::from_str(&event.text).unwrap();
    let tag = event["tag"].as_str().unwrap();
    let parts: Vec<&str> = tag.split('/').collect();
    match parts.as_slice() {
        [_, "key", ..] => "key".to_owned(),
        [_, subject, _, kind, ..] => format!("{subject}/{kind}"),
        _ => panic!("{tag} is not the tag of an event"),
    }
}

/// The stored values, and the tests of both sides that use them.
struct Contracts {
    stored: Vec<&'static Text>,
    of_master: Vec<&'static Text>,
    of_ctl: Vec<&'static Text>,
}

impl Contracts {
    fn read() -> Self {
        let tests = |folder: &str, mark: &str| -> Vec<&'static Text> {
            let own = tree::files(&[".rs"]).into_iter();
            let own = own.filter(|file| file.path.starts_with(folder));
            let own = own.filter(|file| file.path.ends_with("_tests.rs"));
            own.filter(|file| file.text.contains(mark)).collect()
        };
        Self {
            stored: tree::files(&[".json"]),
            of_master: tests("master/", "contract::"),
            of_ctl: tests("ctl/", "contract"),
        }
    }

    /// A value that the tests of one side do not name, or that is not stored.
    fn missing(&self, name: &str) -> Option<String> {
        let quoted = format!("\"{name}\"");
        let named = |tests: &[&Text]| tests.iter().any(|file| file.text.contains(&quoted));
        let stored = format!("{STORED}{name}.json");
        if !self.stored.iter().any(|file| file.path == stored) {
            Some(format!("{stored} does not exist"))
        } else if !named(&self.of_master) {
            Some(format!("no test of the master stores {quoted}"))
        } else if !named(&self.of_ctl) {
            Some(format!("no test of ctl prints {quoted}"))
        } else {
            None
        }
    }
}

#[test]
fn each_call_of_operators_has_a_contract_test() {
    let listed: BTreeSet<String> = CALLS.iter().map(|(call, _)| (*call).to_owned()).collect();
    assert_eq!(calls(), listed, "CALLS in this file has each call once");
    let contracts = Contracts::read();
    let names = CALLS.iter().flat_map(|(_, names)| *names);
    let names: BTreeSet<String> = names.map(|name| (*name).to_owned()).collect();
    let names: Vec<String> = names.union(&shown()).cloned().collect();
    let found = names.iter().filter_map(|name| contracts.missing(name));
    let found: Vec<String> = found.collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn each_event_has_a_contract_test() {
    assert_eq!(
        events_without_a_tag(),
        Vec::<String>::new(),
        "name the tag in the comment of the type"
    );
    let contracts = Contracts::read();
    let stored = contracts.stored.iter().copied().filter(|file| {
        let name = file.path.strip_prefix(STORED);
        name.is_some_and(|name| name.starts_with("event-"))
    });
    let stored: Vec<&Text> = stored.collect();
    let found = stored.iter().filter_map(|file| {
        let name = &file.path[STORED.len()..file.path.len() - ".json".len()];
        contracts.missing(name)
    });
    let mut found: Vec<String> = found.collect();
    let known: BTreeSet<String> = stored.iter().map(|file| tag_of(file)).collect();
    for tag in tags().difference(&known) {
        found.push(format!("{tag}: no event is stored"));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_protocol_the_words_and_the_events_are_read() {
    assert!(calls().contains("HandOver"), "{:?}", calls());
    assert!(shown().is_superset(&["grains", "upgrade-back"].map(String::from).into()));
    let tags = tags();
    for tag in ["job/new", "job/wait", "run/wait", "run/done", "key"] {
        assert!(tags.contains(tag), "{tag}: {tags:?}");
    }
}
