//! The sections of the cluster document about the hosts themselves.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::field_schemas;

/// Settings of the hosts: kernel, swap, firewall, clock, packages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Host")]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct HostSettings {
    /// Kernel parameters by name, in addition to Halite's own. `null` leaves one of Halite's own to
    /// you.
    #[schemars(schema_with = "field_schemas::sysctls")]
    pub sysctls: BTreeMap<String, Option<String>>,
    /// The kernel modules that Halite loads, now and at each boot. `[]` if the kernel has them
    /// built in.
    #[schemars(schema_with = "field_schemas::modules")]
    pub kernel_modules: Vec<String>,
    /// Turns swap off, now and at each boot. If `false`, you do.
    pub manage_swap: bool,
    /// Installs firewalld and sets the rules of the host's roles. If `false`, open the ports
    /// yourself.
    pub manage_firewall: bool,
    /// Installs chrony, which sets the clock from `time.servers`. If `false`, another program must
    /// keep the clocks in sync.
    #[schemars(extend("x-wizard" = {"ask": true}))]
    pub manage_time: bool,
    /// Additional packages of the bundle that every host gets. The recipe must name them.
    #[schemars(schema_with = "field_schemas::packages")]
    pub packages: Vec<String>,
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            sysctls: BTreeMap::new(),
            kernel_modules: vec![
                "overlay".to_owned(),
                "br_netfilter".to_owned(),
                "nf_conntrack".to_owned(),
            ],
            manage_swap: true,
            manage_firewall: true,
            manage_time: false,
            packages: Vec::new(),
        }
    }
}

/// The time servers of the hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Time {
    /// Names or addresses of NTP servers (RFC 5905). chrony uses no others.
    #[schemars(
        schema_with = "field_schemas::time_servers",
        extend("x-wizard" = {"ask": true, "when": "host.manageTime"})
    )]
    pub servers: Vec<String>,
}
