//! The functions that a job can carry.

use serde_json::Value;

use super::core::Limits;
use crate::refusal::Refusal;

/// Who carries a function out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Compiled here, run by the minion (or here, for the target `master`); never two at a time on
    /// one minion.
    States,
    /// The minion.
    Minion,
    /// The master answers from what it knows.
    Here,
}

/// One function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Salt's name.
    pub name: &'static str,
    /// Who carries it out.
    pub place: Place,
    /// Seconds after which a minion that has not answered is given up, unless the request says
    /// otherwise.
    pub timeout: u32,
}

const FUNCTIONS: [Function; 7] = [
    Function {
        name: "state.highstate",
        place: Place::States,
        timeout: 3600,
    },
    Function {
        name: "state.apply",
        place: Place::States,
        timeout: 3600,
    },
    Function {
        name: "test.ping",
        place: Place::Minion,
        timeout: 15,
    },
    Function {
        name: "grains.items",
        place: Place::Minion,
        timeout: 30,
    },
    Function {
        name: "saltutil.refresh_grains",
        place: Place::Minion,
        timeout: 60,
    },
    Function {
        name: "cmd.run",
        place: Place::Minion,
        timeout: 300,
    },
    Function {
        name: "pillar.items",
        place: Place::Here,
        timeout: 30,
    },
];

impl Function {
    /// The function of this name; `state.sls` is Salt's older name of `state.apply`.
    ///
    /// # Errors
    /// There is none.
    pub fn find(name: &str) -> Result<&'static Self, Refusal> {
        let wanted = if name == "state.sls" {
            "state.apply"
        } else {
            name
        };
        FUNCTIONS
            .iter()
            .find(|function| function.name == wanted)
            .ok_or_else(|| {
                let known: Vec<&str> = FUNCTIONS.iter().map(|function| function.name).collect();
                Refusal::invalid(format!(
                    "there is no function {name:?}; there are {}",
                    known.join(", ")
                ))
            })
    }

    /// Whether it may be asked for as a test run: a command would simply run.
    #[must_use]
    pub fn has_test_mode(&self) -> bool {
        self.name != "cmd.run"
    }

    /// Whether it only asks a minion for what it knows: repeated or lost it does no harm, and its
    /// job record says who asked what of whom. So neither its sending nor an audit line is worth a
    /// write that the answer waits for.
    #[must_use]
    pub fn is_question(&self) -> bool {
        self.place == Place::Minion && self.name != "cmd.run"
    }

    /// How long a minion may be away before its part is given up.
    #[must_use]
    pub fn limits(&self) -> Limits {
        match self.place {
            // A minion restarts in seconds; a host that reboots in the middle of a highstate comes
            // back in minutes.
            Place::States => Limits {
                connect: 30_000,
                reconnect: 300_000,
            },
            Place::Minion | Place::Here => Limits {
                connect: 5_000,
                reconnect: 15_000,
            },
        }
    }
}

/// The SLS that `state.apply` is asked for: `{"sls": ["a", "b"]}`, or `"a,b"` as on Salt's command
/// line.
///
/// # Errors
/// None is named, or it is neither text nor list.
pub fn sls_of(args: &Value) -> Result<Vec<String>, Refusal> {
    let bad = || {
        Refusal::invalid(
            "state.apply takes {\"sls\": [\"name\", …]}; without SLS use state.highstate",
        )
    };
    let names: Vec<String> = match args.get("sls") {
        Some(Value::String(text)) => text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or_else(bad)?,
        _ => return Err(bad()),
    };
    if names.is_empty() {
        Err(bad())
    } else {
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn functions_are_found_by_salts_names() {
        assert_eq!(Function::find("state.sls").unwrap().name, "state.apply");
        assert!(
            Function::find("cmd.rum")
                .unwrap_err()
                .message
                .contains("cmd.run")
        );
    }

    #[test]
    fn what_changes_hosts_or_shows_a_pillar_is_no_question() {
        let questions = FUNCTIONS
            .iter()
            .filter(|function| function.is_question())
            .map(|f| f.name);
        assert_eq!(
            questions.collect::<Vec<_>>(),
            ["test.ping", "grains.items", "saltutil.refresh_grains"]
        );
    }

    #[test]
    fn sls_come_as_list_or_text() {
        assert_eq!(sls_of(&json!({"sls": "a, b"})).unwrap(), ["a", "b"]);
        assert_eq!(sls_of(&json!({"sls": ["a"]})).unwrap(), ["a"]);
        for bad in [
            json!({}),
            json!({"sls": []}),
            json!({"sls": ""}),
            json!({"sls": [1]}),
            json!({"sls": 1}),
        ] {
            assert!(sls_of(&bad).is_err(), "{bad}");
        }
    }
}
