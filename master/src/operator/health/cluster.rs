//! Checks of the Kubernetes API, the control planes' components, the virtual address and DNS.

use std::collections::BTreeSet;

use halite_errors::chain;

use super::Finding;
use super::observe::Component;
use super::picture::Picture;

pub(super) fn api(picture: &Picture) -> Vec<Finding> {
    let fault = (picture.seen.as_ref()).and_then(|seen| seen.api_fault.as_ref());
    let message = fault.map(|fault| {
        format!(
            "the Kubernetes API does not answer: {}; so nodes, their pods and the pod network are not checked",
            chain(fault)
        )
    });
    message
        .map(|message| Finding::on("", message))
        .into_iter()
        .collect()
}

pub(super) fn servers(picture: &Picture) -> Vec<Finding> {
    let servers = picture.seen.iter().flat_map(|seen| &seen.servers);
    let faults = servers.filter_map(|(host, fault)| {
        let message = format!("the API server on {host} is not ready: {}", fault.as_ref()?);
        Some(Finding::on(host.as_str(), message))
    });
    faults.collect()
}

pub(super) fn components(picture: &Picture) -> Vec<Finding> {
    let components = picture.seen.iter().flat_map(|seen| &seen.components);
    let fault = |component: &Component| {
        let Component { host, name, fault } = component;
        let message = format!("{name} on {host} does not run: {}", fault.as_ref()?);
        Some(Finding::on(host.as_str(), message))
    };
    components.filter_map(fault).collect()
}

/// The holders of the virtual address. They are not known while a control plane is not connected.
pub(super) fn vip(picture: &Picture) -> Vec<Finding> {
    let (Some(vip), Some(seen)) = (picture.vip, &picture.seen) else {
        return Vec::new();
    };
    let planes = seen.servers.iter().map(|(host, _)| host.as_str());
    let planes: BTreeSet<&str> = planes.collect();
    let holders = picture.holders();
    let holders: Vec<&str> = holders.into_iter().map(|host| host.as_str()).collect();
    match holders.len() {
        0 if planes.iter().all(|host| picture.health(host).is_some()) && !planes.is_empty() => {
            vec![Finding::on(
                "",
                format!("no host holds the virtual address {vip}"),
            )]
        }
        0 | 1 => Vec::new(),
        _ => vec![Finding::on(
            "",
            format!(
                "{} hold the virtual address {vip} at the same time",
                holders.join(" and ")
            ),
        )],
    }
}

pub(super) fn dns(picture: &Picture) -> Vec<Finding> {
    let replicas = picture.seen.as_ref().and_then(|seen| seen.dns.as_ref());
    if replicas.is_none_or(|hosts| !hosts.is_empty()) {
        return Vec::new();
    }
    vec![Finding::on("", "no replica of the cluster's DNS is ready")]
}

pub(super) fn dns_spread(picture: &Picture) -> Vec<Finding> {
    let Some(seen) = &picture.seen else {
        return Vec::new();
    };
    let replicas = seen.dns.iter().flatten().collect::<Vec<_>>();
    match replicas.as_slice() {
        [only] if seen.nodes.len() > 1 => vec![Finding::on(
            only,
            format!("all replicas of the cluster's DNS are on {only}"),
        )],
        _ => Vec::new(),
    }
}
