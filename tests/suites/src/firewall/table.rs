//! The table of the packets that a host accepts, generated from the roles: the openings that its
//! low state declares, SSH of the operator's default zone, and NodePorts.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use anyhow::{Context, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::net::Network;
use serde_json::Value;

/// SSH's port. The distribution opens SSH in firewalld's default zone, and dhcpv6-client for
/// link-local addresses.
pub const SSH: u16 = 22;
const DHCP_V6_CLIENT: u16 = 546;

/// One opening: ports of a protocol for a network.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Opening {
    source: Cidr,
    ports: RangeInclusive<u16>,
    protocol: String,
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
                .with_context(|| format!("{text:?} is no network"))?,
            length: length.parse()?,
        };
        ensure!(cidr.length <= 32, "{text:?} is no network");
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
    /// Source networks of the pods' zone.
    pub pods: Vec<Cidr>,
    node_ports: Cidr,
    node_port: u16,
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
}

impl Table {
    /// Builds the table from the low state of `host`, which the master provides. `node_port` is
    /// open, TCP and UDP.
    pub fn of(cluster: &Cluster, host: &Host, node_port: u16) -> Result<Self> {
        let text =
            cluster
                .bootstrap
                .run(&["ctl", "render", &host.spec.name, "--low", "-o", "json"])?;
        let low: Value =
            serde_json::from_str(&text).context("`ctl render --low` did not print JSON")?;
        Self::from_low(&low, node_port)
    }

    fn from_low(low: &Value, node_port: u16) -> Result<Self> {
        let list = |fun: &str, name: &str, key: &str| -> Result<Vec<String>> {
            let chunk = low["chunks"]
                .as_array()
                .and_then(|all| {
                    all.iter()
                        .find(|c| c["state"] == "firewalld" && c["fun"] == fun && c["name"] == name)
                })
                .with_context(|| format!("the low state has no firewalld.{fun} {name}"))?;
            let items = chunk["args"][key].as_array().cloned().unwrap_or_default();
            Ok(items
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect())
        };
        let rules = list("policy", "halite-host", "rich_rules")?;
        let sources = list("zone", "halite-pods", "sources")?;
        Ok(Self {
            openings: rules
                .iter()
                .filter_map(|rule| opening(rule).transpose())
                .collect::<Result<_>>()?,
            pods: sources
                .iter()
                .map(|source| Cidr::parse(source))
                .collect::<Result<_>>()?,
            node_ports: Cidr::parse(&format!("{}.0/24", Network::Workload.prefix()))?,
            node_port,
        })
    }

    fn opened(&self, protocol: &str, arrival: Arrival) -> BTreeSet<u16> {
        let mut ports: BTreeSet<u16> = self
            .openings
            .iter()
            .filter(|o| o.protocol == protocol && o.source.contains(arrival.from))
            .flat_map(|o| o.ports.clone())
            .collect();
        if self.node_ports.contains(arrival.to) {
            ports.insert(self.node_port);
        }
        ports
    }

    fn in_pods_zone(&self, arrival: Arrival) -> bool {
        arrival.from_pod || self.pods.iter().any(|pods| pods.contains(arrival.from))
    }

    /// TCP ports that are open to every source.
    pub fn all_tcp(&self) -> BTreeSet<u16> {
        let declared = self
            .openings
            .iter()
            .filter(|o| o.protocol == "tcp")
            .flat_map(|o| o.ports.clone());
        declared.chain([SSH, self.node_port]).collect()
    }

    /// TCP ports that accept the packet.
    pub fn tcp(&self, arrival: Arrival) -> BTreeSet<u16> {
        let mut ports = self.opened("tcp", arrival);
        if !self.in_pods_zone(arrival) {
            ports.insert(SSH);
        }
        ports
    }

    /// UDP ports that accept the packet.
    pub fn udp(&self, arrival: Arrival) -> BTreeSet<u16> {
        let mut ports = self.opened("udp", arrival);
        if arrival.to.is_ipv6() && !self.in_pods_zone(arrival) {
            ports.insert(DHCP_V6_CLIENT);
        }
        ports
    }
}

/// The opening that a rich rule (firewalld.richlanguage(5)) makes; `None` for rules about protocols
/// without ports.
fn opening(rule: &str) -> Result<Option<Opening>> {
    let value = |key: &str| {
        let start = format!("{key}=\"");
        rule.split_once(&start)
            .and_then(|(_, rest)| rest.split_once('"'))
            .map(|(value, _)| value.to_owned())
    };
    let Some(port) = value("port port") else {
        ensure!(
            rule.contains("protocol value="),
            "neither a port nor a protocol is in the rule {rule}"
        );
        return Ok(None);
    };
    ensure!(
        rule.contains("family=\"ipv4\"") && rule.ends_with(" accept"),
        "the test does not know rules like {rule}"
    );
    let (first, last) = port.split_once('-').unwrap_or((&port, &port));
    Ok(Some(Opening {
        source: Cidr::parse(
            &value("source address").with_context(|| format!("a rule without a source: {rule}"))?,
        )?,
        ports: first.parse()?..=last.parse()?,
        protocol: value("protocol")
            .with_context(|| format!("a rule without a protocol: {rule}"))?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_become_ports_by_source() {
        let low = serde_json::json!({"chunks": [
            {"state": "firewalld", "fun": "policy", "name": "halite-host", "args": {"rich_rules": [
                "rule family=\"ipv4\" source address=\"10.10.0.0/24\" port port=\"2379-2380\" protocol=\"tcp\" accept",
                "rule family=\"ipv4\" source address=\"10.10.0.12\" port port=\"8472\" protocol=\"udp\" accept",
                "rule family=\"ipv4\" source address=\"10.10.0.12\" protocol value=\"vrrp\" accept"]}},
            {"state": "firewalld", "fun": "zone", "name": "halite-pods", "args": {"sources": ["10.233.0.0/16"]}}]});
        let table = Table::from_low(&low, 30000).unwrap();
        let arrival = |from: &str, to: &str| Arrival {
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            from_pod: false,
        };
        assert_eq!(
            table.tcp(arrival("10.10.0.12", "10.10.0.11")),
            [22, 2379, 2380].into()
        );
        assert_eq!(
            table.udp(arrival("10.10.0.12", "10.10.0.11")),
            [8472].into()
        );
        assert_eq!(
            table.tcp(arrival("10.10.1.12", "10.20.0.11")),
            [22, 30000].into()
        );
        assert_eq!(table.tcp(arrival("10.233.4.5", "10.10.0.11")), [].into());
        assert_eq!(table.udp(arrival("fe80::1", "fe80::2")), [546].into());
        assert!(
            Cidr::parse("0.0.0.0/0")
                .unwrap()
                .contains("192.0.2.1".parse().unwrap())
        );
    }
}
