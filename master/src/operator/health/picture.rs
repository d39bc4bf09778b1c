//! The cluster as the master sees it at one moment; the checks judge nothing else.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use halite_api::{CertificateAuthority, HighstateResult, KubernetesNode};
use halite_core::board::HostRenewal;
use halite_etcd::Overview;
use halite_host_reports::health::HostHealth;
use halite_names::NodeName;
use halite_store::Millis;

use super::observe::ClusterAnswers;

/// The cluster at one moment.
#[derive(Default)]
pub(in crate::operator) struct Picture {
    /// The time.
    pub now: Millis,
    /// The problems that other modules of the master find, by the name of the check.
    pub reported: BTreeMap<&'static str, Vec<String>>,
    /// All hosts that are declared or have a key.
    pub hosts: Vec<HostPicture>,
    /// The virtual address, if Halite's keepalived holds it.
    pub vip: Option<Ipv4Addr>,
    /// The CAs of the master, each with the start of its validity, in seconds since the epoch.
    pub authorities: Vec<(CertificateAuthority, i64)>,
    /// The hosts with certificates that are due for renewal, as found by the upkeep.
    pub renewals: Vec<HostRenewal>,
    /// Answers of the cluster; `None` if the declaration cannot be read.
    pub seen: Option<ClusterAnswers>,
}

/// A host.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::operator) struct HostPicture {
    /// Its name.
    pub name: String,
    /// `true` if it is declared.
    pub declared: bool,
    /// `true` if it is declared as a Kubernetes node.
    pub runs_containers: bool,
    /// `true` if the master has accepted its key.
    pub accepted: bool,
    /// `true` if its minion is connected.
    pub connected: bool,
    /// The result of its last highstate.
    pub highstate: Option<HighstateResult>,
    /// The state of its Kubernetes node.
    pub node: Option<KubernetesNode>,
}

impl Picture {
    /// The answer of a host's minion.
    pub(super) fn health(&self, host: &str) -> Option<&HostHealth> {
        self.seen.as_ref()?.minions.get(host)
    }

    /// The answers of all minions.
    pub(super) fn answers(&self) -> impl Iterator<Item = (&NodeName, &HostHealth)> {
        let seen = self.seen.iter();
        seen.flat_map(|seen| &seen.minions)
    }

    /// The hosts that hold the virtual address, among the hosts whose minions answered.
    pub(in crate::operator) fn holders(&self) -> Vec<&NodeName> {
        let holds =
            |health: &HostHealth| self.vip.is_some_and(|vip| health.addresses.contains(&vip));
        let answers = self.answers().filter(|(_, health)| holds(health));
        answers.map(|(host, _)| host).collect()
    }

    /// The members of etcd, if one answered.
    pub(super) fn etcd(&self) -> Option<&Overview> {
        self.seen.as_ref()?.etcd.as_ref()?.as_ref().ok()
    }
}
