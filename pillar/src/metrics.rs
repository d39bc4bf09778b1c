//! The metrics that the master serves to Prometheus.

use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::field_schemas;

/// The port of the metrics if none is declared.
pub const METRICS_PORT: u16 = 4553;

/// The metrics of the cluster, which the master serves over HTTPS in Prometheus' format, with a
/// certificate of the site's CA.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metrics {
    /// The port, at the control-plane address of the master's host and of each standby.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1024, max = 65535))]
    pub listen: u16,
    /// The networks of the Prometheus servers. All other connections are refused.
    #[schemars(schema_with = "field_schemas::cidrs")]
    pub from: Vec<Ipv4Net>,
    /// The certificates of authorities (PEM): each client must have a certificate of one of them.
    /// Default: clients need none.
    #[serde(default, rename = "clientCA")]
    pub client_ca: Option<String>,
}

fn default_port() -> u16 {
    METRICS_PORT
}
