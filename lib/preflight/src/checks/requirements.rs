//! The requirements of a cluster document for its hosts.

use std::collections::BTreeMap;

use halite_pillar::cluster::Cluster;
use halite_pillar::programs::{CniPlugin, ProxyMode};
use serde_json::Value;

use crate::node_facts::HostRequirements;

/// The requirements of a cluster document. The caller adds the packages that a host gets.
#[must_use]
pub fn of_cluster(cluster: &Cluster) -> HostRequirements {
    let kubelet = |key: &str| {
        let value = cluster.kubelet.config.get(key);
        value.and_then(Value::as_bool).unwrap_or(true)
    };
    HostRequirements {
        manage_swap: cluster.host.manage_swap,
        fail_swap_on: kubelet("failSwapOn"),
        fail_cgroup_v1: kubelet("failCgroupV1"),
        manage_firewall: cluster.host.manage_firewall,
        nftables: cluster.kube_proxy.mode == ProxyMode::Nftables,
        eviction: thresholds(cluster.kubelet.config.get("evictionHard")),
        vip: cluster
            .api_server
            .vip
            .filter(|_| cluster.api_server.keeps_vip()),
        external_etcd: cluster.external_etcd().is_some(),
        own_pod_network: cluster.cni.plugin == CniPlugin::None,
        forwarders: !cluster.dns.forwarders.is_empty(),
        resolver: resolver(cluster.kubelet.config.get("resolvConf")),
        packages: BTreeMap::new(),
    }
}

/// The declared hard eviction thresholds of the kubelet, by signal.
#[must_use]
pub fn thresholds(declared: Option<&Value>) -> Option<BTreeMap<String, String>> {
    let each =
        |(signal, limit): (&String, &Value)| Some((signal.clone(), limit.as_str()?.to_owned()));
    Some(declared?.as_object()?.iter().filter_map(each).collect())
}

/// The declared file with the name servers of pods. An empty one is the kubelet's way to say none.
#[must_use]
pub fn resolver(declared: Option<&Value>) -> Option<String> {
    let path = declared?.as_str()?;
    (!path.is_empty()).then(|| path.to_owned())
}
