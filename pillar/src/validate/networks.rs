//! Networks: sizes, overlaps, and the host's own addresses and routes.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::Check;
use crate::declaration::Declaration;
use crate::host_facts::{HostFacts, Route};
use crate::network;
use crate::programs::CniPlugin;

/// Each node gets a /24 of the pod network, kube-controller-manager's default.
const NODE_MASK: u8 = 24;

pub(super) fn check(check: &mut Check<'_>) {
    sizes(check);
    overlaps(check);
    node_ports(check);
    if let Some(host) = check.context.host {
        on_host(check, host);
    }
}

/// kubeadm's `ValidateServiceSubnetSize` and `ValidatePodSubnetNodeMask`.
fn sizes(check: &mut Check<'_>) {
    let networks = &check.declaration.cluster.networks;
    let (pods, services) = (networks.pods, networks.services);
    if services.prefix_len() < 12 {
        check.cluster(
            "networks.services",
            format!(
                "{services} is too large: the API server takes at most 1048576 service addresses"
            ),
            "use a prefix length from 12 to 28",
        );
    } else if network::dns_service(services).is_none() || services.prefix_len() > 28 {
        check.cluster(
            "networks.services",
            format!("{services} is too small: the tenth address is needed for DNS"),
            "use a prefix length from 12 to 28",
        );
    }
    if pods.prefix_len() > NODE_MASK {
        check.cluster(
            "networks.pods",
            format!("{pods} is too small: each node gets a /{NODE_MASK} of it"),
            "use a prefix length from 8 to 24, for example 10.233.0.0/16",
        );
    } else if pods.prefix_len() + 16 < NODE_MASK {
        check.cluster(
            "networks.pods",
            format!("{pods} is too large: at most 65536 nodes get a /{NODE_MASK} each"),
            "use a prefix length from 8 to 24, for example 10.233.0.0/16",
        );
    } else {
        let room = 1usize << (NODE_MASK - pods.prefix_len());
        let nodes = check.declaration.nodes.len();
        if nodes > room {
            check.cluster(
                "networks.pods",
                format!("{pods} has room for {room} nodes, but {nodes} are declared"),
                "use a shorter prefix length",
            );
        }
    }
}

/// A network, the path of its declaration and a description.
struct Named {
    path: String,
    what: &'static str,
    network: Ipv4Net,
}

fn named(check: &Check<'_>) -> (Vec<Named>, Vec<Named>) {
    let networks = &check.declaration.cluster.networks;
    let list = |cidrs: &[Ipv4Net], path: &str, what| -> Vec<Named> {
        let item = |(i, network): (usize, &Ipv4Net)| Named {
            path: format!("{path}[{i}]"),
            what,
            network: *network,
        };
        cidrs.iter().enumerate().map(item).collect()
    };
    let mut hosts = list(
        &networks.control_plane.cidrs,
        "networks.controlPlane.cidrs",
        "control-plane network",
    );
    if let Some(plane) = &networks.workload_plane {
        hosts.extend(list(
            &plane.cidrs,
            "networks.workloadPlane.cidrs",
            "workload-plane network",
        ));
    }
    let own = vec![
        Named {
            path: "networks.pods".to_owned(),
            what: "pod network",
            network: networks.pods,
        },
        Named {
            path: "networks.services".to_owned(),
            what: "service network",
            network: networks.services,
        },
    ];
    (hosts, own)
}

fn overlaps(check: &mut Check<'_>) {
    let (hosts, own) = named(check);
    for each in hosts.iter().chain(&own) {
        if let Some(reserved) = reserved(each.network) {
            check.cluster(
                &each.path,
                format!("the {} {} {reserved}", each.what, each.network),
                "take a private network, for example out of 10.0.0.0/8",
            );
        }
    }
    for (index, mine) in own.iter().enumerate() {
        for other in hosts.iter().chain(&own[..index]) {
            if check.sound(&other.path) && network::overlap(mine.network, other.network) {
                let hint = if mine.path == "networks.services" {
                    "choose another; kube-proxy drops traffic to every unused address of the service network, so a host \
                     in it would cut itself off"
                } else {
                    "choose another; pods would take the addresses for their own"
                };
                check.cluster(
                    &mine.path,
                    format!(
                        "the {} {} overlaps the {} {}",
                        mine.what, mine.network, other.what, other.network
                    ),
                    hint,
                );
            }
        }
    }
    for (index, later) in hosts.iter().enumerate() {
        let list = |path: &str| path.split('[').next().unwrap_or_default().to_owned();
        for earlier in hosts[..index]
            .iter()
            .filter(|earlier| list(&earlier.path) == list(&later.path))
        {
            if network::overlap(later.network, earlier.network) {
                check.cluster(
                    &later.path,
                    format!(
                        "{} overlaps {}, which is listed before it",
                        later.network, earlier.network
                    ),
                    "remove one of them",
                );
            }
        }
    }
}

/// Ranges that no cluster can use.
fn reserved(network: Ipv4Net) -> Option<&'static str> {
    let within = |a, b, prefix| {
        network::overlap(
            network,
            Ipv4Net::new_assert(Ipv4Addr::new(a, b, 0, 0), prefix),
        )
    };
    if network.prefix_len() == 0 {
        Some("contains every address")
    } else if within(127, 0, 8) {
        Some("is in the loopback network 127.0.0.0/8")
    } else if within(169, 254, 16) {
        Some("is in the link-local network 169.254.0.0/16")
    } else if network.network().octets()[0] >= 224 {
        Some("is in the multicast and reserved networks from 224.0.0.0 on")
    } else {
        None
    }
}

fn node_ports(check: &mut Check<'_>) {
    let cluster = &check.declaration.cluster;
    let hosts = [
        cluster.networks.workload_cidrs(),
        &cluster.networks.control_plane.cidrs,
    ]
    .concat();
    let sound =
        check.sound("networks.controlPlane.cidrs") && check.sound("networks.workloadPlane.cidrs");
    for (index, cidr) in cluster
        .firewall
        .node_ports
        .cidrs
        .iter()
        .flatten()
        .enumerate()
    {
        if sound && !hosts.iter().any(|host| network::overlap(*host, *cidr)) {
            check.cluster(
                &format!("firewall.nodePorts.cidrs[{index}]"),
                format!("no host has an address in {cidr}, so no NodePort would answer"),
                "name a network of the workload plane, or leave it out",
            );
        }
    }
}

/// Returns whether an interface may have addresses and routes of the cluster's own network: that of
/// an operator's pod network, on a host of a cluster that exists. Halite does not know its names.
fn may_be_of_pods(
    declaration: &Declaration,
    network: &Named,
    host: &HostFacts,
    interface: &str,
) -> bool {
    let cluster = &declaration.cluster;
    let is_own = cluster.cni.plugin == CniPlugin::None && network.path == "networks.pods";
    let planes = || {
        declaration
            .nodes
            .values()
            .filter_map(|node| node.resolved.as_ref())
    };
    let is_of_plane = |address: &Ipv4Addr| {
        planes().any(|own| [own.control_plane, own.workload_plane].contains(address))
    };
    let addresses = host.addresses.get(interface).into_iter().flatten();
    is_own && cluster.resolved.is_some() && !addresses.into_iter().any(is_of_plane)
}

fn on_host(check: &mut Check<'_>, host: &HostFacts) {
    let declaration = check.declaration;
    let networks = &declaration.cluster.networks;
    let (_, own) = named(check);
    for mine in &own {
        let is_foreign = |interface: &str| !may_be_of_pods(declaration, mine, host, interface);
        let foreign: Vec<(&str, Ipv4Addr)> = host
            .usable()
            .filter(|(interface, _)| is_foreign(interface))
            .collect();
        let routes: Vec<&Route> = host
            .foreign_routes()
            .filter(|route| is_foreign(&route.interface) && !route.only_leads_out(mine.network))
            .collect();
        for (interface, address) in foreign {
            if mine.network.contains(&address) {
                check.cluster(
                    &mine.path,
                    format!(
                        "the {} {} contains this host's own address {address} ({interface})",
                        mine.what, mine.network
                    ),
                    "choose another; the host would no longer be reachable once the cluster runs",
                );
            }
        }
        for route in routes {
            let covered = host
                .usable()
                .any(|(_, a)| route.destination.contains(&a) && mine.network.contains(&a));
            if network::overlap(mine.network, route.destination) && !covered {
                check.cluster(
                    &mine.path,
                    format!(
                        "the {} {} overlaps this host's route to {} ({})",
                        mine.what, mine.network, route.destination, route.interface
                    ),
                    "choose another, or remove the route if nothing needs it",
                );
            }
        }
    }
    let vip = check.declaration.cluster.api_server.vip;
    let have: Vec<Ipv4Addr> = host
        .usable()
        .map(|(_, a)| a)
        .filter(|a| Some(*a) != vip)
        .collect();
    let listed = || {
        have.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let inside = |cidrs: &[Ipv4Net]| {
        have.iter()
            .any(|a| cidrs.iter().any(|cidr| cidr.contains(a)))
    };
    let planes = [
        (
            "networks.controlPlane.cidrs",
            "control-plane",
            networks.control_plane.cidrs.as_slice(),
        ),
        (
            "networks.workloadPlane.cidrs",
            "workload-plane",
            networks.workload_cidrs(),
        ),
    ];
    for (path, what, cidrs) in planes {
        if path.contains("workload") && networks.workload_plane.is_none() {
            continue;
        }
        if !cidrs.is_empty() && !inside(cidrs) {
            let message = format!(
                "this host has no address in a {what} network; it has: {}",
                listed()
            );
            check.cluster(
                path,
                message,
                "add the network of one of these addresses, or give the host an address",
            );
        }
    }
}
