//! Checks whether a host can become part of a cluster, and reports all problems at once: for the
//! first host in `ctl bootstrap`, for every added host in the step `halite.preflight`.
//!
//! A check is a pure function of [`NodeFacts`], which are collected once, on the host, without
//! changing anything. So each check can be tested without a host on which it fails, and the minion,
//! which only collects, contains no checks: they are in the feature `checks`.

#[cfg(feature = "checks")]
pub mod checks;
mod firewalls;
mod fsync;
mod kernel_tables;
mod neighbours;
mod node_facts;
mod packages;
mod part;
mod peers;
mod pod_network;
mod resolver;
mod storage;
mod vip;

use serde::{Deserialize, Serialize};

pub use fsync::p99 as fsync_p99;
pub use kernel_tables::{KernelRoute, addresses_by_interface, kernel_routes, local_addresses};
pub use node_facts::{
    ExistingCluster, HostRequirements, NodeFacts, REPOSITORY, TOOLS, WatchedFileSystem,
};
pub use packages::{PackageTraces, held_packages};
pub use part::{Added, ClusterPart, Interface, OtherHost, Planes};
pub use peers::{Peer, unreachable};
pub use pod_network::PodNetworkTraces;
pub use storage::FilledPlace;
pub use vip::{VirtualAddress, WhoAnswers};

/// The function by which the master asks a minion for the facts.
pub const FUNCTION: &str = "halite.preflight";

/// The query of the master.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Question {
    /// The requirements of the declaration.
    pub requirements: HostRequirements,
    /// The ports that the host must be able to reach.
    pub peers: Vec<Peer>,
    /// `true` if the host gets a member of etcd: the latency of its disk matters.
    pub etcd: bool,
    /// The virtual address of the API, if the host must reach it.
    pub vip: Option<VirtualAddress>,
}

impl NodeFacts {
    /// Collects the facts about this host that a query asks for. It takes some seconds with a slow
    /// disk.
    pub async fn answer(question: Question, now: i64) -> Self {
        let (mut facts, unreachable, fsync) = tokio::join!(
            Self::collect(question.requirements, now),
            peers::unreachable(&question.peers),
            async {
                if question.etcd {
                    fsync::p99().await
                } else {
                    None
                }
            },
        );
        facts.unreachable = unreachable;
        facts.fsync_p99_us = fsync;
        facts
    }
}
