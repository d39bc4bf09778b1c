//! The answer of a minion to a query for its host's health: facts that only the host itself knows.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// The function of the query.
pub const FUNCTION: &str = "halite.health";

/// The state of a host at the time of the query.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostHealth {
    /// The id of the current boot, different after each boot.
    pub boot: String,
    /// The addresses of its interfaces.
    pub addresses: Vec<Ipv4Addr>,
    /// The MTUs of its interfaces, by address.
    pub mtus: BTreeMap<Ipv4Addr, u32>,
    /// The certificates that Kubernetes and Halite use there.
    pub certificates: Vec<Lifetime>,
    /// The free bytes of the file system with its etcd member's data; `None` without a member.
    pub etcd_free: Option<u64>,
    /// The free bytes of the file system with containerd's images; `None` from a minion of an
    /// earlier version.
    pub images_free: Option<u64>,
    /// The free bytes of the file system with the bundles of a site; `None` from a minion of an
    /// earlier version.
    pub bundles_free: Option<u64>,
    /// Packages on hold: name to version, which is empty for a package that is not installed.
    /// Without dpkg, and from a minion of an earlier version, there are none.
    pub held: BTreeMap<String, String>,
    /// `true` if no run of the host's own has made it a host of the cluster yet: it has enrolled,
    /// or its first states are being applied. Always `false` from a minion of an earlier version.
    pub bare: bool,
}

/// The lifetime of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Lifetime {
    /// The last second of its validity, in seconds since 1970.
    pub ends: i64,
    /// The first second of its validity, in seconds since 1970.
    pub begins: i64,
    /// The path of its file.
    pub path: String,
    /// The name of its subject; empty from a minion of an earlier version.
    #[serde(default)]
    pub subject: String,
    /// The name of the CA that signed it; empty as `subject`.
    #[serde(default)]
    pub issuer: String,
}
