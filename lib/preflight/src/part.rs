//! The part of a host in the cluster, and the data for comparison.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// The part of the host in the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterPart {
    /// The first host, which gets everything.
    #[default]
    First,
    /// A host that is added to a cluster.
    Added(Added),
}

/// A host that is added: its roles, and the master's data for comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Added {
    /// `true` if it runs containers.
    pub runs_containers: bool,
    /// `true` if it gets a control plane.
    pub control_plane: bool,
    /// `true` if it gets a member of etcd.
    pub etcd: bool,
    /// `true` if it serves bundles.
    pub registry: bool,
    /// The master's time of the query and of the answer, in seconds since 1970.
    pub clock: (i64, i64),
    /// The virtual address of the API.
    pub vip: Option<Ipv4Addr>,
    /// The host's addresses.
    pub addresses: Planes<Ipv4Addr>,
    /// The other hosts of the cluster.
    pub others: Vec<OtherHost>,
    /// The ports that roles bring to a host that is already in the cluster. On a host of this
    /// cluster, its existing programs use all other ports.
    pub gained: BTreeSet<u16>,
}

/// Another host of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherHost {
    /// Its name in the cluster.
    pub name: String,
    /// Its /etc/machine-id.
    pub machine_id: String,
    /// The version of its Debian if it runs containers; `None` if it has another system, or has not
    /// reported it.
    #[serde(default)]
    pub debian: Option<String>,
    /// Its interfaces; unknown if it did not report them.
    pub interfaces: Planes<Interface>,
}

/// The interface of a host in a plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its MTU in bytes.
    pub mtu: u32,
}

/// A value for each of the two planes, which may be one network or two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planes<T> {
    /// The value in the control plane; `None` if unknown.
    pub control: Option<T>,
    /// The value in the workload plane; `None` if unknown.
    pub workload: Option<T>,
}

impl<T> Planes<T> {
    /// Unknown in both planes.
    pub const UNKNOWN: Self = Self {
        control: None,
        workload: None,
    };

    /// The result of a function for each plane.
    pub fn and_then<U>(self, mut function: impl FnMut(T) -> Option<U>) -> Planes<U> {
        Planes {
            control: self.control.and_then(&mut function),
            workload: self.workload.and_then(&mut function),
        }
    }

    /// The planes for which both have a value, with the plane's name and the values.
    pub fn pairs<U>(self, other: Planes<U>) -> impl Iterator<Item = (&'static str, T, U)> {
        let control = self.control.zip(other.control);
        let workload = self.workload.zip(other.workload);
        let named = [("control plane", control), ("workload plane", workload)];
        named
            .into_iter()
            .filter_map(|(plane, both)| both.map(|(own, other)| (plane, own, other)))
    }
}

impl<T> Default for Planes<T> {
    fn default() -> Self {
        Self::UNKNOWN
    }
}
