//! The virtual address of the API, as a host that is added sees it.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// The virtual address, and how its holder shows that it is of this cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualAddress {
    /// The address.
    pub address: Ipv4Addr,
    /// The port of the API servers.
    pub port: u16,
    /// The API's name, which is in their certificates.
    pub name: String,
    /// The CA that signed these, PEM.
    pub ca: String,
}

/// The answer at the virtual address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhoAnswers {
    /// An API server of this cluster.
    ThisCluster,
    /// No program, with the reason.
    Nothing(String),
    /// Something else, with the reason why its certificate is not accepted.
    Another(String),
}
