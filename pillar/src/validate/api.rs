//! The API's address and name, and the flags of the control plane.

use std::net::Ipv4Addr;

use super::Check;
use super::hardening::{NO_PROBES, is_off};
use crate::flags::Flags;
use crate::network;
use crate::role::Role;

pub(super) fn check(check: &mut Check<'_>) {
    vip(check);
    endpoint(check);
    let cluster = &check.declaration.cluster;
    flags(
        check,
        "apiServer",
        &cluster.api_server.extra_args,
        API_SERVER,
    );
    anonymous(check);
    flags(
        check,
        "controllerManager",
        &cluster.controller_manager.extra_args,
        CONTROLLER_MANAGER,
    );
    flags(check, "scheduler", &cluster.scheduler.extra_args, SCHEDULER);
    flags(check, "etcd", &cluster.etcd.extra_args, ETCD);
}

fn vip(check: &mut Check<'_>) {
    const PATH: &str = "apiServer.vip";
    let declaration = check.declaration;
    let networks = &declaration.cluster.networks;
    let Some(vip) = declaration.cluster.api_server.vip else {
        if declaration.cluster.api_server.keepalived == Some(true) && check.sound(PATH) {
            check.cluster(
                "apiServer.keepalived",
                "keepalived has no address to keep",
                "add `vip: ADDRESS`, or remove `keepalived`",
            );
        }
        return;
    };
    let mut misplaced = false;
    for (what, path, own) in [
        ("pod network", "networks.pods", networks.pods),
        ("service network", "networks.services", networks.services),
    ] {
        if check.sound(path) && own.contains(&vip) {
            misplaced = true;
            let message = format!("the VIP {vip} is in the {what} {own}");
            check.cluster(
                PATH,
                message,
                "take a free address of a control-plane network",
            );
        }
    }
    let cidrs = &networks.control_plane.cidrs;
    match cidrs.iter().find(|cidr| cidr.contains(&vip)) {
        Some(cidr) if network::is_edge(*cidr, vip) => check.cluster(
            PATH,
            format!("the VIP {vip} is the network's own or its broadcast address ({cidr})"),
            "take a free address between them",
        ),
        None if !misplaced && !cidrs.is_empty() && check.sound("networks.controlPlane.cidrs") => {
            check.cluster(
                PATH,
                format!("the VIP {vip} is outside the control-plane networks"),
                "take a free address of one of them",
            )
        }
        _ => {}
    }
    shared(check, vip);
    for node in declaration.nodes.values() {
        let taken = |address: Option<Ipv4Addr>| address == Some(vip);
        if taken(node.address)
            || taken(node.workload_address)
            || node
                .resolved
                .as_ref()
                .is_some_and(|r| r.control_plane == vip || r.workload_plane == vip)
        {
            let message = format!(
                "the VIP {vip} is the address of the node `{}`",
                node.metadata.name
            );
            check.cluster(
                PATH,
                message,
                "take an address that no host has; keepalived moves it between hosts",
            );
        }
    }
}

/// Keepalived puts the VIP on an interface of the control-plane host that holds it, so all of these
/// hosts must be in its network.
fn shared(check: &mut Check<'_>, vip: Ipv4Addr) {
    let declaration = check.declaration;
    let networks = &declaration.cluster.networks.control_plane.cidrs;
    let own = networks.iter().find(|cidr| cidr.contains(&vip));
    let Some(network) = own.filter(|_| declaration.cluster.api_server.keeps_vip()) else {
        return;
    };
    for node in declaration.nodes.values() {
        let path = if node.resolved.is_some() {
            "resolved.controlPlane"
        } else {
            "address"
        };
        let outside = node
            .control_plane()
            .filter(|address| node.has(Role::ControlPlane) && !network.contains(address));
        if let Some(address) = outside.filter(|_| node.source.is_sound(path)) {
            check.node(
                node,
                path,
                format!("{address} is not in {network}, the network of the VIP {vip}, so keepalived could not put it here"),
                "take a VIP in a network that all control-plane hosts share, or give the host an address in this one",
            );
        }
    }
}

/// Kubelet, keepalived and load balancers ask the API server for its health without a certificate.
fn anonymous(check: &mut Check<'_>) {
    const FLAG: &str = "anonymous-auth";
    let api_server = &check.declaration.cluster.api_server;
    // Together with `authentication` the flag is refused anyway.
    if is_off(&api_server.extra_args, FLAG) && api_server.authentication.is_none() {
        check.cluster(
            &format!("apiServer.extraArgs.{FLAG}"),
            NO_PROBES,
            "remove it, and allow anonymous requests for health only:\n\
             apiServer:\n\
             \x20 authentication:\n\
             \x20   anonymous: {enabled: true, conditions: [{path: /livez}, {path: /readyz}]}",
        );
    }
}

fn endpoint(check: &mut Check<'_>) {
    const PATH: &str = "apiServer.endpoint";
    let cluster = &check.declaration.cluster;
    let Some(endpoint) = &cluster.api_server.endpoint else {
        return;
    };
    if endpoint.parse::<Ipv4Addr>().is_ok() {
        check.cluster(
            PATH,
            format!("`{endpoint}` is an address, but the endpoint is a name"),
            "write the address as `vip:`; the name is kept in every host's /etc/hosts",
        );
    }
    let domain = &cluster.dns_domain;
    if check.sound("dnsDomain") && (endpoint == domain || endpoint.ends_with(&format!(".{domain}")))
    {
        check.cluster(
            PATH,
            format!("`{endpoint}` is in the cluster's own domain {domain}"),
            "the cluster's DNS would say that it does not exist; take a name outside",
        );
    }
    if check.declaration.nodes.contains_key(endpoint.as_str()) {
        check.cluster(
            PATH,
            format!("`{endpoint}` is the name of a node"),
            "take a name of its own, such as api.CLUSTER.internal, that can move between hosts",
        );
    }
}

/// Flags that Halite sets from other keys, with the key to use instead (kubeadm's static pods have
/// the same flags).
type Owned = &'static [(&'static str, &'static str)];

const API_SERVER: Owned = &[
    ("advertise-address", "it follows from networks.controlPlane"),
    ("secure-port", "the port is always 6443"),
    (
        "service-cluster-ip-range",
        "it follows from networks.services",
    ),
    ("service-account-issuer", "it follows from dnsDomain"),
    ("etcd-servers", "it follows from the nodes' role etcd"),
    ("etcd-cafile", CERTIFICATES),
    ("etcd-certfile", CERTIFICATES),
    ("etcd-keyfile", CERTIFICATES),
    ("client-ca-file", CERTIFICATES),
    ("tls-cert-file", CERTIFICATES),
    ("tls-private-key-file", CERTIFICATES),
    ("kubelet-client-certificate", CERTIFICATES),
    ("kubelet-client-key", CERTIFICATES),
    ("service-account-key-file", CERTIFICATES),
    ("service-account-signing-key-file", CERTIFICATES),
];
const CONTROLLER_MANAGER: Owned = &[
    ("cluster-cidr", "it follows from networks.pods"),
    ("cluster-name", "it follows from metadata.name"),
    (
        "service-cluster-ip-range",
        "it follows from networks.services",
    ),
    ("kubeconfig", CERTIFICATES),
    ("cluster-signing-cert-file", CERTIFICATES),
    ("cluster-signing-key-file", CERTIFICATES),
    ("root-ca-file", CERTIFICATES),
    ("service-account-private-key-file", CERTIFICATES),
];
const SCHEDULER: Owned = &[("kubeconfig", CERTIFICATES)];
const ETCD: Owned = &[
    ("name", "it follows from the node's metadata.name"),
    ("data-dir", "it is always /var/lib/etcd"),
    ("wal-dir", "the log is always in data-dir"),
    ("initial-cluster", "it follows from the nodes' role etcd"),
    (
        "initial-cluster-state",
        "it follows from the data on the host",
    ),
    (
        "advertise-client-urls",
        "it follows from networks.controlPlane",
    ),
    (
        "listen-client-urls",
        "it follows from networks.controlPlane",
    ),
    ("listen-peer-urls", "it follows from networks.controlPlane"),
    (
        "initial-advertise-peer-urls",
        "it follows from networks.controlPlane",
    ),
    ("cert-file", CERTIFICATES),
    ("key-file", CERTIFICATES),
    ("trusted-ca-file", CERTIFICATES),
    ("peer-cert-file", CERTIFICATES),
    ("peer-key-file", CERTIFICATES),
    ("peer-trusted-ca-file", CERTIFICATES),
];
const CERTIFICATES: &str = "Halite makes the certificates";

fn flags(check: &mut Check<'_>, section: &str, given: &Flags, owned: Owned) {
    for name in given.keys() {
        if let Some((_, instead)) = owned.iter().find(|(flag, _)| flag == name) {
            let path = format!("{section}.extraArgs.{name}");
            check.cluster(
                &path,
                format!("Halite sets `{name}` itself"),
                format!("remove it: {instead}"),
            );
        }
    }
}
