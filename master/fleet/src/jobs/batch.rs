//! The number of hosts that may change at a time.

use std::str::FromStr;

use serde_json::Value;

/// A number of hosts, or a percentage of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Batch {
    /// All of them.
    #[default]
    All,
    /// A number.
    Number(usize),
    /// A percentage.
    Percentage(usize),
}

/// The text is not a batch.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is neither a number nor a percentage")]
pub struct BatchError(String);

impl Batch {
    /// The budget of hosts out that the arguments of a job name; `None` if they name none.
    ///
    /// # Errors
    /// It is not a batch.
    pub fn of_args(args: &Value) -> Result<Option<Self>, BatchError> {
        match args.get("batch") {
            None => Ok(None),
            Some(Value::String(text)) => text.parse().map(Some),
            Some(other) => other.to_string().parse().map(Some),
        }
    }

    /// The size of a batch for this many hosts; at least one.
    #[must_use]
    pub fn size(self, hosts: usize) -> usize {
        let size = match self {
            Self::All => hosts,
            Self::Number(number) => number,
            Self::Percentage(percent) => hosts.saturating_mul(percent) / 100,
        };
        size.max(1)
    }
}

impl FromStr for Batch {
    type Err = BatchError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |digits: &str| {
            let number = digits.trim().parse::<usize>();
            number.map_err(|_| BatchError(text.to_owned()))
        };
        match text.strip_suffix('%') {
            Some(percent) => number(percent).map(Self::Percentage),
            None => number(text).map(Self::Number),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_arguments_of_a_job_may_name_a_budget() {
        let size = |args: Value| Batch::of_args(&args).map(|batch| batch.map(|own| own.size(8)));
        for (args, expected) in [
            (json!({"sls": ["a"]}), None),
            (Value::Null, None),
            (json!({"batch": "50%"}), Some(4)),
            (json!({"batch": "3"}), Some(3)),
            (json!({"batch": 3}), Some(3)),
            (json!({"batch": "1%"}), Some(1)),
        ] {
            assert_eq!(size(args.clone()).unwrap(), expected, "{args}");
        }
        for args in [json!({"batch": "half"}), json!({"batch": null})] {
            assert!(size(args.clone()).is_err(), "{args}");
        }
    }
}
