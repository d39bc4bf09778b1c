//! The part that a host gets in the cluster, and what it is compared with.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// The part that the host gets in the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// It is the first host, which gets everything.
    #[default]
    First,
    /// It is added to a cluster.
    Added(Added),
}

/// A host that is added: its roles, and what the master knows for comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Added {
    /// It runs containers.
    pub runs_containers: bool,
    /// It gets a control plane.
    pub control_plane: bool,
    /// It gets a member of etcd.
    pub etcd: bool,
    /// It serves bundles.
    pub registry: bool,
    /// The master's time when it asked and when it had the answer, in seconds since 1970.
    pub clock: (i64, i64),
    /// The virtual address of the API.
    pub vip: Option<Ipv4Addr>,
    /// The host's addresses.
    pub addresses: Planes<Ipv4Addr>,
    /// The other hosts of the cluster.
    pub others: Vec<OtherHost>,
    /// The ports that roles bring to a host that is in the cluster already. On a host of this cluster
    /// all others are taken by what it has.
    pub gained: BTreeSet<u16>,
}

/// Another host of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherHost {
    /// Its name in the cluster.
    pub name: String,
    /// Its /etc/machine-id.
    pub machine_id: String,
    /// Its interfaces; none if it did not say.
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
    /// In the control plane; none if it is not known.
    pub control: Option<T>,
    /// In the workload plane; none if it is not known.
    pub workload: Option<T>,
}

impl<T> Planes<T> {
    /// Nothing is known.
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

    /// The values of a plane in both, with the plane's name.
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
