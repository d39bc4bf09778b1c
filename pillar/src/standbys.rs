//! `master` of the cluster document: the standbys, and the jobs that the master keeps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::field_schemas;

/// The master's own settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Master {
    /// The hosts with a full copy of the master's data, which can take its place: `auto` for the
    /// first two other control planes by name, the names of at most two, or `[]` for none.
    #[schemars(schema_with = "field_schemas::standbys")]
    pub standbys: Standbys,
    /// The finished jobs and orchestrations that the master's store keeps.
    ///
    /// A job is kept while one of the two limits covers it. When the store is larger than 2 GiB,
    /// the oldest are removed earlier.
    pub jobs: KeptJobs,
}

/// The finished jobs and orchestrations that the master's store keeps. A job is kept while one of
/// the two limits covers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct KeptJobs {
    /// The number of days for which a job is kept after its end.
    pub keep_days: u32,
    /// The number of the newest jobs that are kept, whatever their age.
    pub keep_last: u32,
}

impl Default for KeptJobs {
    fn default() -> Self {
        Self {
            keep_days: 30,
            keep_last: 100,
        }
    }
}

/// The hosts that have a full copy of the master's data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Standbys {
    /// The choice of Halite.
    Chosen(Auto),
    /// These nodes; the one that has the master does not count.
    Named(Vec<String>),
}

/// The word for a choice of Halite: control planes, by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auto {
    /// The only word.
    #[default]
    Auto,
}

impl Default for Standbys {
    fn default() -> Self {
        Self::Chosen(Auto::Auto)
    }
}
