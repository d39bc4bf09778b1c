//! `apiServer` of the cluster document.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::field_schemas;

/// The address and name of the Kubernetes API, and flags of its server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ApiServer {
    /// Name of the API in certificates, kubeconfigs and hosts entries. Default:
    /// `api.CLUSTER.internal`.
    #[schemars(schema_with = "field_schemas::optional_subdomain")]
    pub endpoint: Option<String>,
    /// The virtual address of the API, in a control-plane network. It must not be any host's own
    /// address.
    #[schemars(
        schema_with = "field_schemas::optional_address",
        extend("x-wizard" = {"ask": true})
    )]
    pub vip: Option<Ipv4Addr>,
    /// `true`: keepalived on the control-plane nodes holds the VIP (the default when there is a
    /// `vip`). `false`: another program does.
    #[schemars(extend("x-wizard" = {"ask": true, "when": "apiServer.vip", "default": true}))]
    pub keepalived: Option<bool>,
    /// On nodes without a control plane, the API's name resolves to a proxy on 127.0.0.1 that knows
    /// each control plane; on the others, to their own API server.
    pub local_proxy: LocalProxy,
    /// Additional names and addresses in the API server's certificate.
    #[serde(rename = "certSANs")]
    #[schemars(schema_with = "field_schemas::sans")]
    pub cert_sans: Vec<String>,
    /// Flags that are added to the static pod's or replace them, without dashes: `audit-log-maxage:
    /// 30`.
    #[schemars(schema_with = "field_schemas::flags")]
    pub extra_args: BTreeMap<String, String>,
}

/// The clusters in which nodes reach the API through their own proxy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(schema_with = "field_schemas::local_proxy")]
pub enum LocalProxy {
    /// While there is no `vip` and more than one control plane.
    #[default]
    Auto,
    /// In every cluster.
    Always,
    /// In none: without a `vip` the name resolves to one control plane.
    Never,
}

impl ApiServer {
    /// Returns whether this cluster's own keepalived holds the VIP.
    #[must_use]
    pub fn keeps_vip(&self) -> bool {
        self.vip.is_some() && self.keepalived.unwrap_or(true)
    }
}
