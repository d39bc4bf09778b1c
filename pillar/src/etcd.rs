//! etcd: flags of its members, and their defragmentation.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{field_schemas, formats};

pub use crate::formats::Weekly;

/// etcd.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Etcd {
    /// Flags added to, or replacing, those of the static pod, without dashes.
    #[schemars(schema_with = "field_schemas::flags")]
    pub extra_args: BTreeMap<String, String>,
    /// The defragmentation of the members' databases, which the master does by itself.
    pub defrag: Defrag,
}

/// The defragmentation of the members' databases: one member at a time, the leader last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Defrag {
    /// The time by the clock of the master's host: `Sun 03:30` each week, `03:30` each day, or
    /// `never`. A time at which the master was off is made up for.
    #[schemars(schema_with = "field_schemas::weekly")]
    pub at: String,
    /// The free part of a member's database above which it is defragmented, in percent.
    #[schemars(schema_with = "field_schemas::percent")]
    pub above: String,
}

impl Default for Defrag {
    fn default() -> Self {
        Self {
            at: "Sun 03:30".to_owned(),
            above: "45%".to_owned(),
        }
    }
}

impl Defrag {
    /// The declared time; `None` for `never`.
    #[must_use]
    pub fn weekly(&self) -> Option<Weekly> {
        formats::weekly(&self.at)
    }

    /// The declared part, in percent.
    #[must_use]
    pub fn above_percent(&self) -> u8 {
        formats::percent(&self.above).unwrap_or(100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_sunday_night_above_45_percent() {
        let default = Defrag::default();
        let sunday = Weekly {
            day: Some(6),
            hour: 3,
            minute: 30,
        };
        assert_eq!(default.weekly(), Some(sunday));
        assert_eq!(default.above_percent(), 45);
        assert!(formats::check("weekly", &default.at).is_ok());
        assert!(formats::check("percent", &default.above).is_ok());
    }

    #[test]
    fn without_a_day_it_is_each_day_and_never_is_no_time() {
        let at = |at: &str| {
            let at = at.to_owned();
            Defrag {
                at,
                ..Defrag::default()
            }
            .weekly()
        };
        let daily = Weekly {
            day: None,
            hour: 23,
            minute: 5,
        };
        assert_eq!(at("23:05"), Some(daily));
        assert_eq!(at("never"), None);
    }
}
