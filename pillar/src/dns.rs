//! CoreDNS in the cluster document.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::{Patch, patches};
use crate::field_schemas;

/// CoreDNS, the DNS of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Dns {
    /// Name servers that answer for all names outside the cluster, instead of those of the hosts of
    /// CoreDNS (`/etc/resolv.conf`); at most 15.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "field_schemas::addresses")]
    pub forwarders: Vec<Ipv4Addr>,
    /// Domains with name servers of their own (stub domains), for example
    /// `{corp.example: [10.0.0.53]}`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "field_schemas::zones")]
    pub zones: BTreeMap<String, Vec<Ipv4Addr>>,
    /// Strategic merge patches of its Deployment, applied in order, for example of `replicas` or of
    /// the memory of a container.
    #[schemars(schema_with = "patches")]
    pub patches: Vec<Patch>,
}
