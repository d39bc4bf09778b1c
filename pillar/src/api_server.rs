//! `apiServer` of the cluster document.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::api_hardening::{ApiAdmission, ApiAudit, ApiAuthentication, ApiEncryption};
use crate::component::{ExtraVolume, Patch, patches};
use crate::field_schemas;
use crate::flags::Flags;

/// The address and name of the Kubernetes API, and the settings of its server.
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
    /// added to those of its static pod, or replace them. A list gives a flag several times.
    #[schemars(schema_with = "field_schemas::flags")]
    pub extra_args: Flags,
    /// Directories and files of the host that the pod mounts in addition to its own.
    pub extra_volumes: Vec<ExtraVolume>,
    /// Strategic merge patches of its static pod, applied in order.
    #[schemars(schema_with = "patches")]
    pub patches: Vec<Patch>,
    /// The audit log. Default: none; with `profile: hardened`, with the defaults below.
    pub audit: Option<ApiAudit>,
    /// Encryption of objects in etcd. Default: none; with `profile: hardened`, of Secrets.
    pub encryption: Option<ApiEncryption>,
    /// Structured authentication. Default: certificates and tokens of service accounts only.
    pub authentication: Option<ApiAuthentication>,
    /// Admission. Default: Kubernetes' own; with `profile: hardened`, the Pod Security Standard
    /// `restricted`.
    pub admission: ApiAdmission,
    /// Feature gates of the API server.
    #[schemars(schema_with = "feature_gates")]
    pub feature_gates: BTreeMap<String, bool>,
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

fn feature_gates(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": {"format": "feature-gate"},
        "additionalProperties": {"type": "boolean"},
    })
}
