//! The profile of a cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::field_schemas;

/// The settings that apply where the document says nothing else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(schema_with = "field_schemas::profile")]
pub enum HardeningProfile {
    /// kubeadm's.
    #[default]
    Standard,
    /// Those of docs/guide/hardening.md, after the CIS Kubernetes Benchmark.
    Hardened,
}
