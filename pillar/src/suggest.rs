//! Suggestions for a new declaration, from the addresses and routes of its first host.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::host_facts::{HostFacts, Route, is_made_by_a_program};
use crate::network::overlap;

/// The private networks (RFC 1918).
const PRIVATE: [(u8, u8, u8); 3] = [(10, 0, 8), (172, 16, 12), (192, 168, 16)];
/// The longest prefix of a suggested network.
const LONGEST: u8 = 20;

/// An address of a host that other hosts can reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectedAddress {
    /// The interface.
    pub interface: String,
    /// The address.
    pub address: Ipv4Addr,
    /// The network that the interface is connected to, if the host has a route to it.
    pub network: Option<Ipv4Net>,
    /// `true` if the default route uses the interface.
    pub has_default_route: bool,
}

/// The addresses of a host, except those of bridges that container engines and hypervisors make. An
/// interface with the default route comes first.
#[must_use]
pub fn connected(host: &HostFacts) -> Vec<ConnectedAddress> {
    let usable = host.usable();
    let usable = usable.filter(|(interface, _)| !is_made_by_a_program(interface));
    let mut found: Vec<ConnectedAddress> = usable
        .map(|(interface, address)| {
            let routes = || {
                host.routes
                    .iter()
                    .filter(|route| route.interface == interface)
            };
            let around = routes().filter(|route| is_connected(route, address));
            ConnectedAddress {
                interface: interface.to_owned(),
                address,
                network: around
                    .map(|route| route.destination)
                    .max_by_key(Ipv4Net::prefix_len),
                has_default_route: routes().any(|route| route.destination.prefix_len() == 0),
            }
        })
        .collect();
    found.sort_by_key(|one| !one.has_default_route);
    found
}

/// Returns whether a route leads into the network of an address, not only to one host.
fn is_connected(route: &Route, address: Ipv4Addr) -> bool {
    let prefix = route.destination.prefix_len();
    route.destination.contains(&address) && (2..32).contains(&prefix)
}

/// A network that is in use, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenNetwork {
    /// The network.
    pub network: Ipv4Net,
    /// Its use, for example `the route to 10.0.0.0/8 (eth0)`.
    pub used_by: String,
}

/// The networks that pods and services must not have, because a host has addresses in them or
/// routes to them.
#[must_use]
pub fn taken(host: &HostFacts) -> Vec<TakenNetwork> {
    let addresses = host.usable().map(|(interface, address)| TakenNetwork {
        network: Ipv4Net::from(address),
        used_by: format!("the address {address} ({interface})"),
    });
    let routes = host.foreign_routes().map(|route| TakenNetwork {
        network: route.destination,
        used_by: format!("the route to {} ({})", route.destination, route.interface),
    });
    addresses.chain(routes).collect()
}

/// The first use that a network overlaps with.
#[must_use]
pub fn conflict(network: Ipv4Net, taken: &[TakenNetwork]) -> Option<&TakenNetwork> {
    taken.iter().find(|other| overlap(network, other.network))
}

/// A private network without a conflict: the preferred one, or else one of the same size, the next
/// ones first, or else a smaller one. `None` if all are taken.
#[must_use]
pub fn free(preferred: Ipv4Net, taken: &[TakenNetwork]) -> Option<Ipv4Net> {
    let is_free = |network: &Ipv4Net| conflict(*network, taken).is_none();
    if is_free(&preferred) {
        return Some(preferred);
    }
    let shortest = preferred.prefix_len();
    (shortest..=shortest.max(LONGEST)).find_map(|prefix| {
        let mut all: Vec<Ipv4Net> = PRIVATE
            .iter()
            .map(|(a, b, prefix)| Ipv4Net::new_assert(Ipv4Addr::new(*a, *b, 0, 0), *prefix))
            .filter_map(|private| private.subnets(prefix).ok())
            .flatten()
            .collect();
        let next = all.partition_point(|network| *network <= preferred);
        all.rotate_left(next);
        all.into_iter().find(is_free)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn host() -> HostFacts {
        HostFacts::from_grains(
            "a",
            &json!({"ip4_interfaces": {
                "docker0": ["172.17.0.1"], "eth0": ["10.0.0.11", "10.0.0.100"], "eth1": ["192.168.7.3"],
                "lo": ["127.0.0.1"], "tun0": ["10.96.3.2"]
            }, "ip4_routes": [
                {"destination": "0.0.0.0/0", "interface": "eth1"},
                {"destination": "10.0.0.0/24", "interface": "eth0"},
                {"destination": "10.0.0.11/32", "interface": "eth0"},
                {"destination": "192.168.7.0/24", "interface": "eth1"},
                {"destination": "10.232.0.0/14", "interface": "tun0"},
            ]}),
        )
    }

    #[test]
    fn the_network_of_the_default_route_comes_first() {
        let found: Vec<(String, Option<String>)> = connected(&host())
            .into_iter()
            .map(|one| {
                let network = one.network.map(|network| network.to_string());
                (format!("{} {}", one.interface, one.address), network)
            })
            .collect();
        let expected = [
            ("eth1 192.168.7.3", Some("192.168.7.0/24")),
            ("eth0 10.0.0.11", Some("10.0.0.0/24")),
            ("eth0 10.0.0.100", Some("10.0.0.0/24")),
            ("tun0 10.96.3.2", None),
        ];
        let expected = expected.map(|(a, b)| (a.to_owned(), b.map(str::to_owned)));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_free_network_has_the_preferred_size_if_one_is_left() {
        let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
        let taken = taken(&host());
        let found = |preferred| free(net(preferred), &taken).map(|network| network.to_string());
        assert_eq!(found("10.233.0.0/16").unwrap(), "10.236.0.0/16");
        assert_eq!(found("10.96.0.0/12").unwrap(), "10.112.0.0/12");
        assert_eq!(found("10.16.0.0/12").unwrap(), "10.16.0.0/12");
        assert_eq!(
            conflict(net("10.96.0.0/12"), &taken).unwrap().used_by,
            "the address 10.96.3.2 (tun0)"
        );
        let all = |prefixes: &[&str]| -> Vec<TakenNetwork> {
            let taken = |text: &&str| TakenNetwork {
                network: net(text),
                used_by: String::new(),
            };
            prefixes.iter().map(taken).collect()
        };
        let most = all(&["10.0.0.0/8", "172.16.0.0/12"]);
        assert_eq!(
            free(net("10.96.0.0/12"), &most),
            Some(net("192.168.0.0/16"))
        );
        assert_eq!(free(net("10.96.0.0/12"), &all(&["0.0.0.0/0"])), None);
    }

    proptest! {
        #[test]
        fn what_is_suggested_overlaps_with_nothing(
            networks in prop::collection::vec((any::<u32>(), 4u8..=32), 0..12),
        ) {
            let taken: Vec<TakenNetwork> = networks
                .into_iter()
                .map(|(bits, prefix)| TakenNetwork {
                    network: Ipv4Net::new_assert(Ipv4Addr::from(bits), prefix).trunc(),
                    used_by: String::new(),
                })
                .collect();
            if let Some(network) = free(Ipv4Net::new_assert(Ipv4Addr::new(10, 233, 0, 0), 16), &taken) {
                prop_assert!(conflict(network, &taken).is_none());
                prop_assert!(network.network().is_private());
            }
        }
    }
}
