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
    /// The name of the API in certificates, kubeconfigs and `/etc/hosts` of every host. Default:
    /// `api.CLUSTER.internal`.
    #[schemars(schema_with = "field_schemas::optional_subdomain")]
    pub endpoint: Option<String>,
    /// The virtual address of the API: a free address in a control-plane network, which is not the
    /// address of any host. With keepalived, all control planes must have addresses in that
    /// network.
    #[schemars(
        schema_with = "field_schemas::optional_address",
        extend("x-wizard" = {"ask": true})
    )]
    pub vip: Option<Ipv4Addr>,
    /// `true` (the default with a `vip`): keepalived holds the VIP on one of the control planes.
    /// `false`: another program does, for example your own load balancer.
    #[schemars(extend("x-wizard" = {"ask": true, "when": "apiServer.vip", "default": true}))]
    pub keepalived: Option<bool>,
    /// The clusters in which nodes reach the API through a proxy of their own on 127.0.0.1, which
    /// knows each control plane: with `auto`, those without a `vip` and with several control
    /// planes; `always`; or `never`, so that without a `vip` all nodes use the API server of one
    /// host. A control plane always uses its own API server.
    pub local_proxy: LocalProxy,
    /// Additional names and addresses in the API server's certificate. Needed for clients that use
    /// another name than `endpoint`, or the address of a load balancer.
    #[serde(rename = "certSANs")]
    #[schemars(schema_with = "field_schemas::sans")]
    pub cert_sans: Vec<String>,
    /// Flags of the API server, without dashes, for example `audit-log-maxage: "30"`. They are
    /// added to those of its static pod, or replace them.
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
