//! The query to a node's minion.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use halite_host_reports::pod_network::{Question, Target, What};
use halite_pillar::cluster::Cluster;
use halite_pillar::network::{api_service, dns_service};
use halite_pillar::programs::CniPlugin;
use serde_json::{Value, json};

use super::{Fault, Replica};
use crate::kubernetes::{Api, ApiError};

/// The port of the Service of the API.
const API: u16 = 443;
/// The port of DNS.
const DNS: u16 = 53;
/// The number of pods on other nodes that are tested.
const PODS: usize = 2;
/// The label with the Service's name on an EndpointSlice, and the Service of the cluster's DNS.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const DNS_SERVICE: &str = "kube-dns";

/// The ready replicas of the cluster's DNS, from the endpoints of its Service.
///
/// # Errors
/// The API failed.
pub async fn ready_replicas(api: &dyn Api) -> Result<Vec<Replica>, ApiError> {
    let version = "discovery.k8s.io/v1";
    let slices = api
        .list(version, "EndpointSlice", "kube-system", "")
        .await?;
    let label = |slice: &&Value| slice["metadata"]["labels"][SERVICE_LABEL] == DNS_SERVICE;
    let endpoints = slices.iter().filter(label).flat_map(|slice| {
        let endpoints = slice["endpoints"].as_array();
        endpoints.into_iter().flatten()
    });
    let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == json!(true));
    let replicas = ready.filter_map(|endpoint| {
        let host = endpoint["nodeName"].as_str()?.to_owned();
        let address = endpoint["addresses"][0].as_str()?.parse().ok()?;
        Some(Replica { host, address })
    });
    Ok(replicas.collect())
}

/// Replicas whose addresses come from another network, one for each host.
#[must_use]
pub fn strangers(cluster: &Cluster, replicas: &[Replica]) -> Vec<Fault> {
    let pods = cluster.networks.pods;
    let others = replicas.iter().filter(|one| !pods.contains(&one.address));
    let by_host: BTreeMap<&str, Ipv4Addr> = others
        .map(|replica| (replica.host.as_str(), replica.address))
        .collect();
    let fault = |(host, address): (&str, Ipv4Addr)| {
        Fault::on(
            host,
            format!(
                "a pod of the cluster's DNS on {host} has the address {address}, which is not in {pods}: it was started in another network"
            ),
            format!("`ctl node reboot {host}` starts the pods there again"),
        )
    };
    by_host.into_iter().map(fault).collect()
}

/// Tests from these pods of the host, or otherwise from a replica of the DNS there, the connections
/// to replicas on other nodes, the API's Service, and the DNS. Only these pods are known to be
/// reachable, and to reach others, whatever a network forbids.
#[must_use]
pub fn question(
    cluster: &Cluster,
    host: &str,
    sources: &[Ipv4Addr],
    replicas: &[Replica],
) -> Question {
    let networks = &cluster.networks;
    let known = replicas
        .iter()
        .filter(|one| networks.pods.contains(&one.address));
    let (own, others): (Vec<&Replica>, Vec<&Replica>) =
        known.partition(|replica| replica.host == host);
    let pods = others.into_iter().take(PODS).map(|replica| Target {
        what: What::Pod(replica.host.clone()),
        address: replica.address,
        port: DNS,
    });
    let service = api_service(networks.services).map(|address| Target {
        what: What::Service,
        address,
        port: API,
    });
    // Without a replica there is nothing to test, and a separate finding reports it.
    let dns = dns_service(networks.services).filter(|_| !replicas.is_empty());
    let dns = dns.map(|address| Target {
        what: What::Dns(format!("kubernetes.default.svc.{}", cluster.dns_domain)),
        address,
        port: DNS,
    });
    let own = own.into_iter().map(|replica| replica.address);
    Question {
        pods: networks.pods.to_string(),
        sources: sources.iter().copied().chain(own).collect(),
        any: cluster.cni.plugin == CniPlugin::Flannel,
        targets: pods.chain(service).chain(dns).collect(),
    }
}
