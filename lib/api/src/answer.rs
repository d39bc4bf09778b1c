//! The value that a function returned on a minion.

use halite_proto::pki::sha256_hex;
use halite_states::low::RunReturn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The value that a function returned on a minion: the states of a run as Salt returns them, the
/// grains, or the output of a command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct MinionAnswer(pub Value);

/// The output of a command.
#[derive(Deserialize)]
struct CommandOutput {
    #[serde(default)]
    stdout: String,
    #[serde(default)]
    stderr: String,
    #[serde(default)]
    retcode: i64,
}

/// Lines of a journal.
#[derive(Deserialize)]
struct Journal {
    lines: Vec<String>,
}

impl MinionAnswer {
    /// Reads the JSON of a return; `None` for `null`, and for text that is not JSON.
    #[must_use]
    pub fn from_json(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        (!value.is_null()).then_some(Self(value))
    }

    /// The states; `None` if the function was not a run of states.
    #[must_use]
    pub fn states(&self) -> Option<RunReturn> {
        RunReturn::deserialize(&self.0).ok()
    }

    /// The grains or another mapping; `None` for other values.
    #[must_use]
    pub fn mapping_mut(&mut self) -> Option<&mut Map<String, Value>> {
        self.0.as_object_mut()
    }

    /// The lines, if the function read a journal.
    #[must_use]
    pub fn journal_lines(&self) -> Option<Vec<String>> {
        let journal = Journal::deserialize(&self.0).ok()?;
        Some(journal.lines)
    }

    /// The standard output of a command; `None` if it is unknown or empty.
    #[must_use]
    pub fn stdout(&self) -> Option<String> {
        let text = match &self.0 {
            Value::String(text) => text.clone(),
            other => CommandOutput::deserialize(other).ok()?.stdout,
        };
        (!text.is_empty()).then_some(text)
    }

    /// The output of a command, for people: standard output, standard error, and a nonzero exit
    /// code.
    #[must_use]
    pub fn command_output(&self) -> String {
        match &self.0 {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => match CommandOutput::deserialize(other) {
                Ok(output) => {
                    let code = match output.retcode {
                        0 => String::new(),
                        code => format!("exit code {code}\n"),
                    };
                    format!("{}{}{code}", ended(&output.stdout), ended(&output.stderr))
                }
                Err(_) => other.to_string(),
            },
        }
    }

    /// SHA-256 of the value as JSON without spaces, in 64 hexadecimal digits.
    #[must_use]
    pub fn digest(&self) -> String {
        sha256_hex(self.0.to_string().as_bytes())
    }
}

/// A text that ends with a line end.
fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') {
        text.to_owned()
    } else {
        format!("{text}\n")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn output_of_commands_is_text_or_a_mapping() {
        let output = |value: Value| MinionAnswer(value).command_output();
        assert_eq!(output(json!("a")), "a");
        let mapping = json!({"stdout": "a", "stderr": "b\n", "retcode": 3});
        assert_eq!(output(mapping.clone()), "a\nb\nexit code 3\n");
        assert_eq!(output(Value::Null), "");
        assert_eq!(output(json!(7)), "7");
        assert_eq!(MinionAnswer(mapping).stdout().as_deref(), Some("a"));
        assert_eq!(MinionAnswer(json!({"stdout": ""})).stdout(), None);
    }

    #[test]
    fn only_a_journal_has_lines() {
        let lines = |value: Value| MinionAnswer(value).journal_lines();
        let journal = json!({"lines": ["x", "y"]});
        assert_eq!(lines(journal), Some(vec!["x".to_owned(), "y".to_owned()]));
        for other in [json!(["x"]), json!({"a": 1}), json!({"lines": [1]})] {
            assert_eq!(lines(other), None);
        }
    }

    #[test]
    fn only_a_run_has_states() {
        assert!(MinionAnswer(json!({"states": []})).states().is_some());
        for other in [json!(true), json!("states"), json!({"a": 1})] {
            assert!(MinionAnswer(other).states().is_none());
        }
    }
}
