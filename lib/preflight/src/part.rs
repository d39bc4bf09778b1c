//! The part that a host gets in the cluster, and what it is compared with.

use std::collections::{BTreeMap, BTreeSet};
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
    /// The addresses of the host in the control plane and in the workload plane.
    pub planes: BTreeSet<Ipv4Addr>,
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
    /// The MTUs of its interfaces in the planes, by address; empty if it did not say.
    pub mtus: BTreeMap<Ipv4Addr, u32>,
}
