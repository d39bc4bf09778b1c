//! The question to a minion for the pod network on its host, and the answer: what a new pod would get there, and what
//! pods reach.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// The function of the question.
pub const FUNCTION: &str = "halite.pod_network";

/// The question of the master.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Question {
    /// The network of all pods, `10.233.0.0/16`.
    pub pods: String,
    /// Pods of the host that are asked from, in this order.
    pub sources: Vec<Ipv4Addr>,
    /// Any other pod will do if none of these is there: the network does not limit what a pod reaches.
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
    /// A DNS server that knows the address of this name.
    Dns(String),
}

/// The answer of the minion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// The host's part of the pod network.
    pub setup: Option<Setup>,
    /// The pod that was asked from; none if it was the host, because no pod has a network of its own there.
    pub source: Option<Ipv4Addr>,
    /// The targets that were not reached.
    pub faults: Vec<Fault>,
}

/// A target that was not reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Its index in the question.
    pub target: usize,
    /// The reason, in words.
    pub reason: String,
    /// There is no route to it at all.
    pub no_route: bool,
    /// The interface by which the host sends packets for it; empty without a route.
    pub interface: String,
}

/// The part of the pod network that a host has for its next pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Setup {
    /// The network that the container runtime uses; none if none is configured.
    pub configuration: Option<Configuration>,
    /// The kernel forwards packets.
    pub forwards: bool,
    /// The host's address for its pods, as flannel has written it to `/run/flannel/subnet.env`.
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
