//! Flags of a program, as documents declare them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Flags by name, without dashes.
pub type Flags = BTreeMap<String, FlagValue>;

/// The value of a flag. A flag with several values is given several times, as in a list of
/// kubeadm's `extraArgs` (v1beta4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FlagValue {
    /// One value.
    One(String),
    /// Each value of a flag that is given several times.
    Several(Vec<String>),
}

impl FlagValue {
    /// All values, in the declared order.
    #[must_use]
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Several(values) => values,
        }
    }

    /// The value that is in force for a flag which a program reads once: the last one.
    #[must_use]
    pub fn last(&self) -> &str {
        self.all().last().map_or("", String::as_str)
    }
}

impl From<&str> for FlagValue {
    fn from(value: &str) -> Self {
        Self::One(value.to_owned())
    }
}

impl From<String> for FlagValue {
    fn from(value: String) -> Self {
        Self::One(value)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test's panic is its report")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_flag_has_one_value_or_several() {
        let flags: Flags =
            serde_json::from_value(json!({"v": "4", "vmodule": ["a=1", "b=2"]})).unwrap();
        assert_eq!(flags["v"].all(), ["4"]);
        assert_eq!(flags["vmodule"].all(), ["a=1", "b=2"]);
        assert_eq!(flags["vmodule"].last(), "b=2");
        assert_eq!(
            serde_json::to_value(&flags).unwrap(),
            json!({"v": "4", "vmodule": ["a=1", "b=2"]})
        );
    }
}
