//! The query to a minion for the pod network on its host, and the answer: the network that a new
//! pod would get there, and the addresses that pods reach.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// The function of the query.
pub const FUNCTION: &str = "halite.pod_network";

/// The query of the master.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Question {
    /// The network of all pods, `10.233.0.0/16`.
    pub pods: String,
    /// Pods of the host from which the targets are tried, in this order.
    pub sources: Vec<Ipv4Addr>,
    /// `true` if any other pod will do when these are absent: the network restricts no pod.
    pub any: bool,
    /// The addresses to reach.
    pub targets: Vec<Target>,
}

/// An address that pods of each host reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The kind.
    pub what: What,
    /// The address.
    pub address: Ipv4Addr,
    /// The port: TCP, and UDP for DNS.
    pub port: u16,
}

/// The kind of a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// A pod on this host. A refused connection has reached it.
    Pod(String),
    /// A Service.
    Service,
    /// A DNS server that can resolve this name.
    Dns(String),
}

/// The answer of the minion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodNetworkReport {
    /// The host's part of the pod network.
    pub setup: Option<Setup>,
    /// The pod from which the targets were tried; `None` if it was the host, because no pod there
    /// has its own network.
    pub source: Option<Ipv4Addr>,
    /// The targets that were not reached.
    pub faults: Vec<Fault>,
}

/// A target that was not reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Its index in the query.
    pub target: usize,
    /// The reason, in words.
    pub reason: String,
    /// `true` if there is no route to it.
    pub no_route: bool,
    /// The interface through which the host sends packets to it; empty without a route.
    pub interface: String,
}

/// A host's part of the pod network, ready for its next pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Setup {
    /// The network that the container runtime uses; `None` if none is configured.
    pub configuration: Option<Configuration>,
    /// `true` if the kernel forwards packets.
    pub forwards: bool,
    /// The host's address for its pods, as flannel wrote it to `/run/flannel/subnet.env`.
    pub gateway: Option<Ipv4Addr>,
    /// The addresses of the bridge `cni0`.
    pub bridge: Vec<Ipv4Addr>,
}

/// A network of `/etc/cni/net.d`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// The path of its file.
    pub path: String,
    /// Its name.
    pub name: String,
    /// The types of its plugins, in order.
    pub plugins: Vec<String>,
}
