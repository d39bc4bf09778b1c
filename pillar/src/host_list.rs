//! The file of `ctl node add --from`: several hosts, each with the fields of a node document.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::field_schemas;
use crate::node::Taint;
use crate::role::Role;

/// A list of hosts to add.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostList {
    /// Always `halite/v1`.
    #[schemars(schema_with = "field_schemas::api_version")]
    pub api_version: String,
    /// Always `HostList`.
    #[schemars(schema_with = "field_schemas::kind_host_list")]
    pub kind: String,
    /// The hosts.
    pub hosts: Vec<ListedHost>,
}

/// A host of the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListedHost {
    /// The node's name.
    #[schemars(schema_with = "field_schemas::subdomain")]
    pub name: String,
    /// The roles of the host. Default: `worker`.
    #[serde(default = "worker")]
    #[schemars(schema_with = "field_schemas::roles")]
    pub roles: Vec<Role>,
    /// The host's address in a control-plane network. Default: chosen from the addresses that the
    /// host reports.
    #[serde(default)]
    #[schemars(schema_with = "field_schemas::optional_address")]
    pub address: Option<Ipv4Addr>,
    /// Labels of the Kubernetes node, in addition to the labels of its roles.
    #[serde(default)]
    #[schemars(schema_with = "field_schemas::labels")]
    pub labels: BTreeMap<String, String>,
    /// Taints of the Kubernetes node, instead of the taints of its roles.
    #[serde(default)]
    pub taints: Option<Vec<Taint>>,
    /// Free data for the operator's own states, as `pillar.custom`.
    #[serde(default)]
    pub custom: Map<String, Value>,
}

fn worker() -> Vec<Role> {
    vec![Role::Worker]
}
