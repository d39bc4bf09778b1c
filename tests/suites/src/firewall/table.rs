//! The table of the packets that a host accepts, written by hand from the roles of the lab's two
//! hosts, and of those of the site of three control planes, and the networks of their cluster
//! document: the openings of each role, SSH in the operator's default zone, and NodePorts. It does
//! not read the low state: an opening that the state tree declares wrongly must differ from the
//! table.

mod three;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use anyhow::{Context, Result, bail, ensure};
use halite_lab::cluster::{BOOTSTRAP, WORKER};
use halite_lab::net::Network;

/// SSH's port. The distribution opens SSH in firewalld's default zone, and dhcpv6-client for
/// link-local addresses.
pub const SSH: u16 = 22;
const DHCP_V6_CLIENT: u16 = 546;

/// The pods' network, which is the source of their zone.
const PODS: &str = "10.233.0.0/16";

/// A row of the table: protocol, ports, sources, and the addresses of the host at which the ports
/// answer (empty: all).
type Row = (
    &'static str,
    RangeInclusive<u16>,
    &'static [&'static str],
    &'static [&'static str],
);

/// Both networks of the control plane.
const CONTROL_PLANE: &[&str] = &["10.10.0.0/24", "10.10.1.0/24"];

/// The control-plane address of each host.
const BOOTSTRAP_ADDRESS: &[&str] = &["10.10.0.11"];
const WORKER_ADDRESS: &[&str] = &["10.10.1.12"];

/// The addresses of the API: the host's own, and the VIP.
const API: &[&str] = &["10.10.0.11", "10.10.0.100"];

/// The openings of the first host, whose roles are `bootstrap`, `registry`, `etcd` and
/// `control-plane`. As the only member of etcd it opens nothing for that role, and as the only
/// control-plane host no port of its kubelet.
const ON_BOOTSTRAP: &[Row] = &[
    // bootstrap: the master, also for operators, whose networks are those of the control plane
    ("tcp", 4550..=4550, CONTROL_PLANE, BOOTSTRAP_ADDRESS),
    // registry: the bundle server, also for operators, who read the documentation there
    ("tcp", 4551..=4551, CONTROL_PLANE, BOOTSTRAP_ADDRESS),
    // control-plane: the API server, also for pods, and of the workload plane for nodes
    ("tcp", 6443..=6443, CONTROL_PLANE, API),
    ("tcp", 6443..=6443, &["10.20.0.12", PODS], API),
    // every node: flannel's VXLAN, from both addresses of the worker
    ("udp", 8472..=8472, &["10.10.1.12", "10.20.0.12"], &[]),
];

/// The ports at which a pod reaches other hosts, in addition to NodePorts: the API, and DNS.
const FOR_PODS_OF_OTHERS: [u16; 2] = [6443, 53];

/// The openings of the second host, whose role is `worker`.
const ON_WORKER: &[Row] = &[
    // every node: the kubelet, from both addresses of the control plane's host
    (
        "tcp",
        10250..=10250,
        &["10.10.0.11", "10.20.0.11"],
        WORKER_ADDRESS,
    ),
    // every node: flannel's VXLAN, from both addresses of the first host
    ("udp", 8472..=8472, &["10.10.0.11", "10.20.0.11"], &[]),
];

/// One opening: ports of a protocol for a network, at some addresses of the host or at all.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Opening {
    source: Cidr,
    at: Vec<IpAddr>,
    ports: RangeInclusive<u16>,
    protocol: &'static str,
}

/// An IPv4 network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    address: Ipv4Addr,
    length: u32,
}

impl Cidr {
    fn parse(text: &str) -> Result<Self> {
        let (address, length) = text.split_once('/').unwrap_or((text, "32"));
        let cidr = Self {
            address: address
                .parse()
                .with_context(|| format!("{text:?} is not a network"))?,
            length: length.parse()?,
        };
        ensure!(cidr.length <= 32, "{text:?} is not a network");
        Ok(cidr)
    }

    /// Returns whether the network contains the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = |a: Ipv4Addr| u32::from(a).checked_shr(32 - self.length).unwrap_or(0);
        matches!(address, IpAddr::V4(v4) if bits(v4) == bits(self.address))
    }
}

/// The openings of one host.
pub struct Table {
    openings: Vec<Opening>,
    pods: Cidr,
    node_ports: Cidr,
    node_port: Option<u16>,
}

/// A packet's arrival at a host.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// The source address that the host sees.
    pub from: IpAddr,
    /// The destination address.
    pub to: IpAddr,
    /// Set if it arrives on an interface of the pods' zone.
    pub from_pod: bool,
    /// Set if a pod of another host sent it: that host masquerades it, and rejects what pods may
    /// not reach.
    pub from_pod_of_another: bool,
}

impl Table {
    /// The table of the lab's host of that name. `node_port` is open, TCP and UDP.
    pub fn of(host: &str, node_port: u16) -> Result<Self> {
        let rows = match host {
            BOOTSTRAP => ON_BOOTSTRAP,
            WORKER => ON_WORKER,
            other => bail!("the table has no host {other}"),
        };
        Self::of_rows(rows, Some(node_port))
    }

    fn of_rows(rows: &[Row], node_port: Option<u16>) -> Result<Self> {
        let mut openings = Vec::new();
        for (protocol, ports, sources, at) in rows {
            let at: Result<Vec<IpAddr>, _> = at.iter().map(|address| address.parse()).collect();
            let at = at?;
            for source in *sources {
                openings.push(Opening {
                    source: Cidr::parse(source)?,
                    at: at.clone(),
                    ports: ports.clone(),
                    protocol,
                });
            }
        }
        Ok(Self {
            openings,
            pods: Cidr::parse(PODS)?,
            node_ports: Cidr::parse(&format!("{}.0/24", Network::Workload.prefix()))?,
            node_port,
        })
    }

    fn opened(&self, protocol: &str, arrival: Arrival) -> BTreeSet<u16> {
        let mut ports: BTreeSet<u16> = self
            .openings
            .iter()
            .filter(|o| o.protocol == protocol && o.source.contains(arrival.from))
            .filter(|o| o.at.is_empty() || o.at.contains(&arrival.to))
            .flat_map(|o| o.ports.clone())
            .collect();
        if self.node_ports.contains(arrival.to) {
            ports.extend(self.node_port);
        }
        ports
    }

    fn in_pods_zone(&self, arrival: Arrival) -> bool {
        arrival.from_pod || self.pods.contains(arrival.from)
    }

    /// TCP ports that are open to every source.
    pub fn all_tcp(&self) -> BTreeSet<u16> {
        let declared = self
            .openings
            .iter()
            .filter(|o| o.protocol == "tcp")
            .flat_map(|o| o.ports.clone());
        declared.chain([SSH]).chain(self.node_port).collect()
    }

    /// TCP ports that accept the packet.
    pub fn tcp(&self, arrival: Arrival) -> BTreeSet<u16> {
        let mut ports = self.opened("tcp", arrival);
        if !self.in_pods_zone(arrival) {
            ports.insert(SSH);
        }
        self.left_for_pods(ports, arrival)
    }

    /// The ports that the sender's own host does not reject.
    fn left_for_pods(&self, mut ports: BTreeSet<u16>, arrival: Arrival) -> BTreeSet<u16> {
        if arrival.from_pod_of_another {
            ports.retain(|port| FOR_PODS_OF_OTHERS.contains(port) || Some(*port) == self.node_port);
        }
        ports
    }

    /// UDP ports that accept the packet.
    pub fn udp(&self, arrival: Arrival) -> BTreeSet<u16> {
        let mut ports = self.opened("udp", arrival);
        if arrival.to.is_ipv6() && !self.in_pods_zone(arrival) {
            ports.insert(DHCP_V6_CLIENT);
        }
        self.left_for_pods(ports, arrival)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE_PORT: u16 = 30000;

    fn arrival(from: &str, to: &str) -> Arrival {
        Arrival {
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            from_pod: false,
            from_pod_of_another: false,
        }
    }

    fn tcp(host: &str, from: &str, to: &str) -> Vec<u16> {
        let table = Table::of(host, NODE_PORT).unwrap();
        table.tcp(arrival(from, to)).into_iter().collect()
    }

    fn udp(host: &str, from: &str, to: &str) -> Vec<u16> {
        let table = Table::of(host, NODE_PORT).unwrap();
        table.udp(arrival(from, to)).into_iter().collect()
    }

    #[test]
    fn strangers_see_little() {
        let plane = "10.10.0.11";
        assert_eq!(
            tcp(BOOTSTRAP, "10.10.0.200", plane),
            [SSH, 4550, 4551, 6443]
        );
        assert_eq!(
            tcp(BOOTSTRAP, "10.20.0.200", "10.20.0.11"),
            [SSH, NODE_PORT]
        );
        assert_eq!(tcp(BOOTSTRAP, "10.20.0.200", plane), [SSH]);
        assert_eq!(tcp(BOOTSTRAP, "10.10.0.200", "10.10.0.100"), [SSH, 6443]);
        assert_eq!(
            tcp(BOOTSTRAP, "10.10.0.200", "10.20.0.11"),
            [SSH, NODE_PORT]
        );
        assert_eq!(tcp(BOOTSTRAP, "192.0.2.1", plane), [SSH]);
        assert_eq!(tcp(WORKER, "10.10.0.200", "10.10.1.12"), [SSH]);
        for host in [BOOTSTRAP, WORKER] {
            assert!(udp(host, "10.10.0.200", plane).is_empty());
        }
    }

    #[test]
    fn nodes_see_what_they_need() {
        assert_eq!(udp(BOOTSTRAP, "10.10.1.12", "10.10.0.11"), [8472]);
        assert_eq!(udp(WORKER, "10.20.0.11", "10.20.0.12"), [8472, NODE_PORT]);
        assert_eq!(tcp(WORKER, "10.10.0.11", "10.10.1.12"), [SSH, 10250]);
        assert_eq!(tcp(WORKER, "10.20.0.11", "10.20.0.12"), [SSH, NODE_PORT]);
        assert_eq!(tcp(BOOTSTRAP, "10.20.0.12", "10.10.0.11"), [SSH, 6443]);
    }

    #[test]
    fn pods_see_the_api_and_no_ssh() {
        assert_eq!(tcp(BOOTSTRAP, "10.233.4.5", "10.10.0.11"), [6443]);
        assert!(tcp(WORKER, "10.233.4.5", "10.10.1.12").is_empty());
        assert_eq!(udp(WORKER, "fe80::1", "fe80::2"), [DHCP_V6_CLIENT]);
    }

    #[test]
    fn pods_of_another_host_do_not_count_as_that_host() {
        let from = |host: &str, from: &str, to: &str| {
            let arrival = Arrival {
                from_pod_of_another: true,
                ..arrival(from, to)
            };
            let table = Table::of(host, NODE_PORT).unwrap();
            (table.tcp(arrival), table.udp(arrival))
        };
        let nothing = BTreeSet::new();
        assert_eq!(
            from(BOOTSTRAP, "10.10.1.12", "10.10.0.11"),
            ([6443].into(), nothing.clone())
        );
        assert_eq!(
            from(WORKER, "10.10.0.11", "10.10.1.12"),
            (nothing.clone(), nothing)
        );
        assert_eq!(
            from(WORKER, "10.20.0.11", "10.20.0.12"),
            ([NODE_PORT].into(), [NODE_PORT].into())
        );
    }

    #[test]
    fn a_network_contains_its_addresses() {
        let contains = |network: &str, address: &str| {
            let network = Cidr::parse(network).unwrap();
            network.contains(address.parse().unwrap())
        };
        assert!(contains("0.0.0.0/0", "192.0.2.1"));
        assert!(contains("10.10.0.11", "10.10.0.11"));
        assert!(!contains("10.10.0.11", "10.10.0.12"));
        assert!(!contains("10.10.0.0/24", "10.10.1.0"));
    }
}
