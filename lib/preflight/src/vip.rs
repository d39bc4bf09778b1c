//! The virtual address of the API, as seen from a host that is being added.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// The virtual address, and the proof that its holder belongs to this cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualAddress {
    /// The address.
    pub address: Ipv4Addr,
    /// The port of the API servers.
    pub port: u16,
    /// The API's name, which is in their certificates.
    pub name: String,
    /// The CA that signed these certificates, PEM.
    pub ca: String,
}

/// The answer at the virtual address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhoAnswers {
    /// An API server of this cluster.
    ThisCluster,
    /// No answer, with the reason.
    Nothing(String),
    /// Another machine, with the reason why its certificate is not accepted.
    Another(String),
}
