//! The pod network of each node, from below: the pods of the node's daemons, the network of a new
//! pod, and the targets that pods reach. The minion of each host inspects and tests; this module
//! interprets its answer, for `ctl health` and for the last step of `ctl bootstrap` and `ctl node
//! add`.

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
    /// The problem in one sentence.
    pub message: String,
    /// The operator's next step.
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
