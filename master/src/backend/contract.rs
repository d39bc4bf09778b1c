//! The contract with `ctl`: real answers of the master are stored in `lib/api/contract`, one file
//! for each document and event. The tests of `ctl` print the same files, and the reference shows
//! them as examples. `HALITE_UPDATE_GOLDENS=1` rewrites them.

use std::collections::BTreeMap;
use std::path::Path;

use halite_api::{Document, Event, to_value};
use halite_proto::v1;
use serde_json::{Value, json};

/// Replaces every time in a stored document.
const TIME: &str = "2027-01-15T08:00:00.000Z";
const JOB_DIGITS: usize = 20;

/// Compares a document with the stored one.
pub(crate) fn check_document(name: &str, document: &impl Document) {
    check(name, to_value(document));
}

/// Compares an answer with the stored one.
pub(crate) fn check_answer(name: &str, answer: &v1::Document) {
    check(name, serde_json::from_str(&answer.json).unwrap());
}

/// Compares an event of a call with the stored one, ignoring its sequence number. Depending on
/// timing, the call reads the event from the bus, or from the rows of a job, which have no number.
pub(crate) fn check_event(name: &str, event: &v1::Event) {
    let event = v1::Event {
        seq: 0,
        ..event.clone()
    };
    check_document(name, &Event::from(event));
}

/// Compares a value with the stored one.
pub(crate) fn check(name: &str, value: Value) {
    let text = format!("{:#}\n", Steady::default().value(value));
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../lib/api/contract")
        .join(format!("{name}.json"));
    if std::env::var_os("HALITE_UPDATE_GOLDENS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == text,
        "{} is not what the master answers: run this test with HALITE_UPDATE_GOLDENS=1, then read the difference.\n{text}",
        path.display()
    );
}

/// Replaces values that differ from run to run: ids, times, random numbers, the test's directory.
#[derive(Default)]
struct Steady {
    jobs: BTreeMap<String, String>,
}

impl Steady {
    fn value(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                let steady = fields.into_iter().map(|(key, value)| {
                    let value = match (key.as_str(), value) {
                        ("serial", Value::String(_)) => json!("4e6f5365726961"),
                        ("token", Value::String(text)) if text.contains('.') => {
                            json!("6e6f746f.7365637265746b.ab12")
                        }
                        ("token", Value::String(_)) => json!("6e6f746f"),
                        ("fingerprint", Value::String(text)) if text.len() > 64 => {
                            json!(["ab"; 32].join(":"))
                        }
                        ("seconds", Value::Number(own)) if own.is_f64() => json!(10.0),
                        ("seconds", Value::Number(_)) => json!(10),
                        (_, value) => self.value(value),
                    };
                    (key, value)
                });
                Value::Object(steady.collect())
            }
            other => other,
        }
    }

    fn text(&mut self, text: &str) -> String {
        if text.starts_with("-----BEGIN CERTIFICATE-----") {
            return "-----BEGIN CERTIFICATE-----\n(a certificate)\n-----END CERTIFICATE-----\n"
                .to_owned();
        }
        if text.starts_with("-----BEGIN CERTIFICATE REQUEST-----") {
            return "-----BEGIN CERTIFICATE REQUEST-----\n(a request)\n-----END CERTIFICATE REQUEST-----\n"
                .to_owned();
        }
        let directory = std::env::temp_dir();
        let directory = format!("{}/.tmp", directory.display());
        let mut text = text.to_owned();
        while let Some(at) = text.find(&directory) {
            let end = text[at + directory.len()..].find(['/', ' ', ':']);
            let end = end.map_or(text.len(), |end| at + directory.len() + end);
            text.replace_range(at..end, "/var/lib/test");
        }
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some(first) = rest.chars().next() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if digits == JOB_DIGITS {
                let next = format!("202701150800000000{:02}", self.jobs.len() + 1);
                let job = self.jobs.entry(rest[..digits].to_owned()).or_insert(next);
                out.push_str(job);
                rest = &rest[digits..];
            } else if let Some(length) = time(rest) {
                out.push_str(TIME);
                rest = &rest[length..];
            } else {
                let length = digits.max(first.len_utf8());
                out.push_str(&rest[..length]);
                rest = &rest[length..];
            }
        }
        out
    }
}

/// The length of the time at the start of a text.
fn time(text: &str) -> Option<usize> {
    let end = text.find('Z')? + 1;
    let length = Some(end).filter(|end| (20..=24).contains(end))?;
    text[..length].parse::<halite_api::Time>().ok()?;
    Some(length)
}
