//! Redaction: secrets are removed from what is stored or displayed.

mod cuts;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The text that is displayed in place of a secret.
pub const HIDDEN: &str = "(secret)";

/// Replaces each given secret in the texts of a value, as [`Redactor::value`] does.
pub fn redact<'a>(value: &mut Value, secrets: impl IntoIterator<Item = &'a str>) {
    Redactor::new(secrets).value(value);
}

/// Removes a set of secrets, for example those that one minion may have. It is built once and used
/// for each message: one pass over a text finds all secrets.
///
/// A secret is replaced by [`HIDDEN`] as a whole, also without the end of its only line, by each of
/// its lines (a diff shows them one by one), in its JSON form and in Base64 (data of a Kubernetes
/// Secret). Secrets shorter than four characters are replaced only if they are the whole text.
/// Beside the mark of a cut ([`halite_errors::cut`]), a partial secret is replaced, too.
#[derive(Default, Clone)]
pub struct Redactor {
    /// Finds the texts of at least [`SHORTEST_INSIDE`] bytes.
    finder: Finder,
    /// The texts that the finder finds. Beside a cut, parts of them are searched for.
    inside: Vec<String>,
    /// Texts that are hidden only if they are the whole text.
    whole: BTreeSet<String>,
    secrets: usize,
}

/// Finds secrets inside a text.
#[derive(Default, Clone)]
enum Finder {
    /// Finds nothing: there are no secrets.
    #[default]
    Nothing,
    /// Finds these secrets.
    Secrets(AhoCorasick),
    /// Hides every text: the automaton cannot hold all secrets, and redaction must not fail open.
    Everything,
}

/// The length in bytes from which a secret is also replaced inside a longer text. Shorter ones
/// occur by chance in any text.
const SHORTEST_INSIDE: usize = 4;

/// The same for the single lines of a secret that has several lines.
const SHORTEST_LINE: usize = 8;

impl Redactor {
    /// A redactor for these texts.
    #[must_use]
    pub fn new<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Self {
        let mut forms = BTreeSet::new();
        let mut count = 0;
        for secret in secrets {
            let secret = secret.as_ref();
            if !secret.is_empty() {
                count += 1;
                forms.extend(forms_of(secret));
            }
        }
        let (inside, whole): (Vec<String>, Vec<String>) =
            (forms.into_iter()).partition(|form| form.len() >= SHORTEST_INSIDE);
        // Not a DFA, which the crate chooses for few patterns: it takes half a kilobyte for each
        // byte of a secret, so megabytes for each key.
        let built = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&inside);
        let finder = match built {
            _ if inside.is_empty() => Finder::Nothing,
            Ok(automaton) => Finder::Secrets(automaton),
            Err(_) => Finder::Everything,
        };
        Self {
            finder,
            inside,
            whole: whole.into_iter().collect(),
            secrets: count,
        }
    }

    /// Removes the secrets from a text.
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        self.clean(text).unwrap_or_else(|| text.to_owned())
    }

    /// Removes the secrets from JSON text. Text that is not JSON becomes a JSON string.
    #[must_use]
    pub fn json(&self, json: &str) -> String {
        match serde_json::from_str::<Value>(json) {
            Ok(mut value) => {
                self.value(&mut value);
                value.to_string()
            }
            // The outcome must be JSON: readers parse it.
            Err(_) => Value::from(self.text(json)).to_string(),
        }
    }

    /// Removes the secrets from every text in the value except keys: a secret is never filled into
    /// a key.
    pub fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(clean) = self.clean(text) {
                    *text = clean;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(map) => map.values_mut().for_each(|item| self.value(item)),
            _ => {}
        }
    }

    /// The text without secrets; `None` if it contains none. Overlapping secrets are hidden as one,
    /// so that no end of the second one remains.
    fn clean(&self, text: &str) -> Option<String> {
        if self.whole.contains(text) {
            return Some(HIDDEN.to_owned());
        }
        let automaton = match &self.finder {
            Finder::Nothing => return None,
            Finder::Secrets(automaton) => automaton,
            Finder::Everything => return Some(HIDDEN.to_owned()),
        };
        let mut found: Vec<Range<usize>> = Vec::new();
        for one in automaton.find_overlapping_iter(text) {
            // Matches are in ascending order of their ends; a longer one may begin before earlier
            // ones.
            let mut range = one.range();
            while let Some(last) = found.pop_if(|last| last.end > range.start) {
                range.start = range.start.min(last.start);
            }
            found.push(range);
        }
        let rests = cuts::rests(text, &self.inside);
        if !rests.is_empty() {
            found = cuts::united(found, rests);
        }
        if found.is_empty() {
            return None;
        }
        let mut clean = String::with_capacity(text.len());
        let mut end = 0;
        for range in found {
            clean.push_str(&text[end..range.start]);
            clean.push_str(HIDDEN);
            end = range.end;
        }
        clean.push_str(&text[end..]);
        Some(clean)
    }
}

/// The forms in which a secret may occur in a text.
fn forms_of(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned(), STANDARD.encode(secret)];
    let lines = secret.lines().map(str::trim).filter(|line| {
        // PEM's BEGIN and END lines reveal nothing.
        line.len() >= SHORTEST_LINE && !line.starts_with("-----")
    });
    forms.extend(lines.map(str::to_owned));
    if let Ok(json) = serde_json::to_string(secret) {
        forms.push(json.trim_matches('"').to_owned());
    }
    // Programs print the one line of a file without its end.
    let line = secret.trim_end_matches(['\r', '\n']);
    if !line.is_empty() && line != secret && !line.contains('\n') {
        forms.extend(forms_of(line));
    }
    forms
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} secrets)", self.secrets)
    }
}

#[cfg(test)]
mod tests {
    use halite_errors::cut;
    use serde_json::json;

    use super::*;

    #[test]
    fn hides_a_secret_whole_by_line_and_in_json() {
        let secret = "-----BEGIN KEY-----\nMIIEabcdefgh\n-----END KEY-----\n";
        let mut value = json!({
            "whole": secret,
            "diff": "+MIIEabcdefgh\n",
            "json": serde_json::to_string(&json!({"k": secret})).unwrap(),
            "other": "nothing",
        });
        redact(&mut value, [secret]);
        assert!(!value.to_string().contains("MIIE"), "{value}");
        assert_eq!(value["other"], "nothing");
        assert_eq!(value["diff"], "+(secret)\n");
    }

    #[test]
    fn the_one_line_of_a_secret_is_hidden_without_its_end() {
        for end in ["\n", "\r\n", "\n\n"] {
            let redactor = Redactor::new([format!("4711abc{end}").as_str(), "\n"]);
            assert_eq!(redactor.text("x 4711abc y"), "x (secret) y");
            let encoded = STANDARD.encode("4711abc");
            assert_eq!(redactor.text(&format!("x {encoded} y")), "x (secret) y");
        }
    }

    #[test]
    fn overlapping_secrets_leave_nothing_of_either() {
        let redactor = Redactor::new(["abcdef", "defghi", "fghijklm", "xyz"]);
        assert_eq!(redactor.text("1abcdefghijklm2"), "1(secret)2");
        assert_eq!(redactor.text("abcdefabcdef"), "(secret)(secret)");
        assert_eq!(redactor.text("ä abcdef ö xyz"), "ä (secret) ö xyz");
        assert_eq!(redactor.text("xyz"), HIDDEN);
    }

    #[test]
    fn the_rest_of_a_secret_beside_a_cut_is_hidden() {
        let line: String = (0..600).map(|n| format!("{n:05}")).collect();
        let pem = format!(
            "-----BEGIN KEY-----\n{}-----END KEY-----\n",
            (100..150)
                .map(|n| format!("{}\n", format!("{n:03}q").repeat(16)))
                .collect::<String>()
        );
        for secret in [&line, &pem, &STANDARD.encode(&pem)] {
            let redactor = Redactor::new([&line, &pem]);
            let text = format!("before {secret} after");
            for kept in [5, 40, 63, 100, 2000] {
                for text in [
                    cut::end(&text, kept + " after".len()),
                    cut::beginning(&text, kept + "before ".len()),
                    cut::beginning(&text, kept + "before ".len()).replace("[cut", "\n[cut"),
                    cut::end(&cut::beginning(&text, 2500), kept),
                ] {
                    let clean = redactor.text(&text);
                    for piece in secret.as_bytes().windows(8) {
                        let piece = std::str::from_utf8(piece).unwrap();
                        assert!(
                            piece.contains("-----") || !clean.contains(piece),
                            "{piece}: {clean}"
                        );
                    }
                    assert!(clean.contains("[cut here]"), "{clean}");
                }
            }
        }
    }

    #[test]
    fn a_cut_beside_no_secret_hides_nothing() {
        let redactor = Redactor::new(["canary-secret"]);
        for text in [
            "cab[cut here]ret",
            "x[cut here]",
            "[cut here",
            "[cut here: why]\n",
            "abc can[cut here]",
        ] {
            assert_eq!(redactor.text(text), text);
        }
        assert_eq!(
            redactor.text("a canary[cut here: why]\ncret b"),
            "a (secret)[cut here: why]\n(secret) b"
        );
        assert_eq!(
            redactor.text("cana[cut here]nary-s[cut here]x"),
            "(secret)[cut here](secret)[cut here]x"
        );
        assert_eq!(
            redactor.text("canary-secret[cut here]"),
            "(secret)[cut here]"
        );
        let umlauts = Redactor::new(["ääääää"]);
        assert_eq!(
            umlauts.text("x äää\u{fffd}\n[cut here]ää"),
            "x (secret)\u{fffd}\n[cut here](secret)"
        );
    }

    #[test]
    fn a_key_takes_kilobytes_and_not_megabytes() {
        let lines: String = (0..25)
            .map(|n| format!("{}\n", STANDARD.encode([n; 48])))
            .collect();
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{lines}-----END PRIVATE KEY-----\n");
        let redactor = Redactor::new([&pem]);
        let Finder::Secrets(automaton) = &redactor.finder else {
            panic!("the key is searched for")
        };
        let bytes = automaton.memory_usage();
        assert!(bytes < 200 * pem.len(), "{bytes} bytes for {}", pem.len());
        assert_eq!(redactor.text(&pem), HIDDEN);
    }

    #[test]
    fn a_secret_in_base64_is_hidden() {
        let data = json!({"data": {"password": STANDARD.encode("canary-secret")}}).to_string();
        assert_eq!(
            Redactor::new(["canary-secret"]).json(&data),
            r#"{"data":{"password":"(secret)"}}"#
        );
    }

    #[test]
    fn json_text_and_what_is_neither_lose_the_secret() {
        let redactor = Redactor::new(["canary-secret\nsecond-line"]);
        assert!(
            !redactor
                .json(r#"{"a": ["x canary-secret y"], "b": "+second-line"}"#)
                .contains("canary")
        );
        let torn = redactor.json("{torn canary-secret");
        assert!(
            serde_json::from_str::<Value>(&torn).is_ok() && !torn.contains("canary"),
            "{torn}"
        );
        assert_eq!(redactor.text("nothing"), "nothing");
        assert!(!format!("{redactor:?}").contains("canary"));
    }
}
