//! `firewall` of the cluster document.

use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::field_schemas;

/// Networks that may connect to the hosts. The ports follow from the roles; only sources are
/// declared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Firewall {
    /// Networks that may reach the ports that are not only for the cluster's own hosts.
    pub sources: Sources,
    /// The addresses at which NodePorts answer.
    pub node_ports: NodePorts,
    /// The connections that pods may open to hosts of the cluster: with `deny`, only to the API,
    /// DNS servers, NodePorts, and ports that an addon in use needs; with `allow`, to all ports
    /// that hosts open to each other. A host cannot tell a pod of another host from that host
    /// itself.
    pub pods_to_hosts: PodsToHosts,
}

/// The connections that pods may open to hosts of the cluster. A host cannot tell a pod of another
/// host from that host itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(schema_with = "field_schemas::pods_to_hosts")]
pub enum PodsToHosts {
    /// Only to the API, to DNS servers, to NodePorts, and to ports that an addon in use needs.
    #[default]
    Deny,
    /// To all ports that the hosts open to each other.
    Allow,
}

/// Networks that may reach the ports that are not only for the cluster's own hosts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Sources {
    /// The operators' networks: they reach the Kubernetes API, the master, the site registry, and
    /// the bundle server with the documentation. Default: the control-plane networks.
    #[schemars(schema_with = "field_schemas::optional_cidrs")]
    pub management: Option<Vec<Ipv4Net>>,
    /// The networks of load balancers in front of the Kubernetes API: they reach it. Default: none.
    #[schemars(schema_with = "field_schemas::optional_cidrs")]
    pub load_balancers: Option<Vec<Ipv4Net>>,
}

/// Networks in which NodePorts answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NodePorts {
    /// Networks whose addresses NodePorts listen on. Default: the workload plane's.
    #[schemars(schema_with = "field_schemas::optional_cidrs")]
    pub cidrs: Option<Vec<Ipv4Net>>,
}
