//! The hosts with a control plane, as nodes of Kubernetes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::field_schemas;

/// The hosts with a control plane, as nodes of Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ControlPlane {
    /// The time in which a control plane has kubeadm's taint
    /// `node-role.kubernetes.io/control-plane:NoSchedule`: `always`, or with `auto` while a host of
    /// the cluster has the role `worker`. A control plane with the role `worker`, or with `taints`
    /// in its document, never has it by this rule.
    pub taint: PlaneTaint,
}

/// The time in which a control plane without the role `worker` has kubeadm's taint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(schema_with = "field_schemas::plane_taint")]
pub enum PlaneTaint {
    /// Always, as with kubeadm.
    #[default]
    Always,
    /// While a host of the cluster has the role `worker`. Without one, pods run on control planes.
    Auto,
}
