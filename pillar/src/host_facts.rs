//! Facts of a real host, for validation on that host: its addresses and routes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Addresses and routes of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFacts {
    /// The host's name, for messages.
    pub name: String,
    /// IPv4 addresses by interface.
    pub addresses: BTreeMap<String, Vec<Ipv4Addr>>,
    /// IPv4 routes.
    pub routes: Vec<Route>,
}

/// One route of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The destination network.
    pub destination: Ipv4Net,
    /// The interface that it uses.
    pub interface: String,
    /// The router that it leads to; `None` for a network of the interface itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
}

impl Route {
    /// Returns `true` if it only leads everything in a larger network to a router, as routes for
    /// the private networks at the edge of a site do. The cluster's own routes are more specific.
    #[must_use]
    pub fn only_leads_out(&self, network: Ipv4Net) -> bool {
        self.gateway.is_some()
            && self.destination.prefix_len() < network.prefix_len()
            && self.destination.contains(&network)
    }
}

/// Interfaces that the cluster itself creates. On a second run their routes correctly lead into the
/// pod network.
const OWN_INTERFACES: [&str; 5] = ["cni0", "flannel.1", "kube-ipvs0", "nodelocaldns", "lo"];

/// Interfaces that container engines and hypervisors create. Their addresses are the same on many
/// hosts, and other hosts do not reach them. A bridge that an operator creates (`br0`, `br-mgmt`)
/// is not among them.
const MADE_BY_PROGRAMS: [&str; 11] = [
    "docker", "virbr", "lxcbr", "lxdbr", "podman", "cni-", "veth", "vnet", "cali", "tunl",
    "flannel",
];

/// Returns whether a container engine or a hypervisor has made an interface.
pub(crate) fn is_made_by_a_program(interface: &str) -> bool {
    let mut prefixes = MADE_BY_PROGRAMS.iter();
    prefixes.any(|prefix| interface.starts_with(prefix)) || is_bridge_of_docker(interface)
}

/// Docker calls the bridge of a network `br-` and the first twelve digits of the network's id.
fn is_bridge_of_docker(interface: &str) -> bool {
    interface.strip_prefix("br-").is_some_and(|id| {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        id.len() == 12 && id.bytes().all(is_digit)
    })
}

impl HostFacts {
    /// Reads addresses (`ip4_interfaces`, as in Salt) and routes (`ip4_routes`, Halite's own) from
    /// grains.
    #[must_use]
    pub fn from_grains(name: &str, grains: &Value) -> Self {
        let mut addresses = BTreeMap::new();
        for (interface, list) in grains
            .get("ip4_interfaces")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let list: Vec<Ipv4Addr> = list
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|item| item.as_str()?.split('/').next()?.parse().ok())
                .collect();
            addresses.insert(interface.clone(), list);
        }
        let routes = grains
            .get("ip4_routes")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let routes = routes
            .filter_map(|route| serde_json::from_value(route.clone()).ok())
            .collect();
        Self {
            name: name.to_owned(),
            addresses,
            routes,
        }
    }

    /// The addresses that other hosts can reach, with their interface: neither loopback nor the
    /// cluster's own bridges.
    pub fn usable(&self) -> impl Iterator<Item = (&str, Ipv4Addr)> {
        self.addresses
            .iter()
            .filter(|(interface, _)| !own(interface))
            .flat_map(|(interface, list)| {
                list.iter()
                    .map(move |address| (interface.as_str(), *address))
            })
            .filter(|(_, address)| !address.is_loopback())
    }

    /// The routes that do not belong to the cluster, without default routes (VPNs set those as two
    /// halves).
    pub fn foreign_routes(&self) -> impl Iterator<Item = &Route> {
        self.routes
            .iter()
            .filter(|route| !own(&route.interface) && route.destination.prefix_len() > 1)
    }
}

fn own(interface: &str) -> bool {
    OWN_INTERFACES.contains(&interface) || interface.starts_with("veth")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bridges_of_operators_are_told_from_those_of_programs() {
        for interface in ["docker0", "br-0123456789ab", "virbr0", "cali1"] {
            assert!(is_made_by_a_program(interface), "{interface}");
        }
        for interface in [
            "br-mgmt",
            "br-data",
            "br-ex",
            "br0",
            "br-0123456789AB",
            "bond0",
        ] {
            assert!(!is_made_by_a_program(interface), "{interface}");
        }
    }

    #[test]
    fn only_a_larger_network_behind_a_router_leads_out() {
        let route = |destination: &str, gateway: Option<Ipv4Addr>| Route {
            destination: destination.parse().unwrap(),
            interface: "eth0".into(),
            gateway,
        };
        let pods = "10.233.0.0/16".parse().unwrap();
        let router = Some(Ipv4Addr::new(10, 0, 0, 1));
        assert!(route("10.0.0.0/8", router).only_leads_out(pods));
        assert!(!route("10.0.0.0/8", None).only_leads_out(pods));
        assert!(!route("10.233.0.0/16", router).only_leads_out(pods));
        assert!(!route("10.233.7.0/24", router).only_leads_out(pods));
        assert!(!route("172.16.0.0/12", router).only_leads_out(pods));
    }

    #[test]
    fn only_addresses_that_others_reach_are_usable() {
        let grains = serde_json::json!({"ip4_interfaces": {
            "lo": ["127.0.0.1"], "cni0": ["10.233.0.1"], "eth0": ["10.0.0.5", "bad"], "eth1": []
        }, "ip4_routes": [{"destination": "0.0.0.0/0", "interface": "eth0"}, {"destination": "10.9.0.0/16", "interface": "tun0"}]});
        let facts = HostFacts::from_grains("a", &grains);
        assert_eq!(
            facts.usable().collect::<Vec<_>>(),
            [("eth0", Ipv4Addr::new(10, 0, 0, 5))]
        );
        assert_eq!(
            facts
                .foreign_routes()
                .map(|route| route.interface.as_str())
                .collect::<Vec<_>>(),
            ["tun0"]
        );
    }
}
