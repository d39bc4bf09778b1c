//! The pace of changes that take hosts out of service.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::field_schemas;

/// The pace of changes that take hosts out of service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct UpgradePace {
    /// The number (`3`) or percentage (`25%`) of hosts without a control plane that change at a
    /// time: in `ctl upgrade`, in the rotation of a CA, and, when they restart services, in a
    /// highstate, in `ctl apply` and in renewals of certificates. At least one. `--batch` of a
    /// command overrides it.
    #[schemars(schema_with = "field_schemas::batch")]
    pub batch: DeclaredBatch,
}

/// A number of hosts, or a percentage of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DeclaredBatch {
    /// A number.
    Number(u16),
    /// A number or a percentage, as text.
    Text(String),
}

impl Default for DeclaredBatch {
    fn default() -> Self {
        Self::Text("25%".to_owned())
    }
}

impl fmt::Display for DeclaredBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}
