//! The pod network of each node, from below: the pods of the node's daemons, what a new pod gets, what pods reach. The
//! minion of each host looks and tries; what its answer means is decided here, for `ctl health` and for the last step of
//! `ctl bootstrap` and `ctl node add`.

pub mod daemons;
pub mod judge;
pub mod question;
#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;

/// A part of the pod network that does not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The host; empty for the cluster as a whole.
    pub host: String,
    /// One sentence.
    pub message: String,
    /// The next step of the operator.
    pub remedy: String,
}

impl Fault {
    fn on(host: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            host: host.to_owned(),
            message: message.into(),
            remedy: remedy.into(),
        }
    }
}

/// A ready replica of the cluster's DNS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Its node.
    pub host: String,
    /// Its address.
    pub address: Ipv4Addr,
}
