//! The view of one minion: all data that its templates may use.

mod api;
mod etcd;
mod proxy;
mod registry;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use halite_names::NodeName;
use halite_secrets::reference;
use serde_json::{Map, Value, json};

use crate::backup::Backup;
use crate::bundle_facts::BundleFacts;
use crate::control_plane::PlaneTaint;
use crate::declaration::{Declaration, Document};
use crate::masters::Part;
use crate::node::Node;
use crate::role::Role;
use crate::{mirrors, network, trust};

pub use self::api::{api_addresses, has_proxies};
pub use halite_names::MASTER;

/// The key of the pillar that contains everything that Halite compiles; the same name is reserved
/// in the state tree. All other keys are the operator's.
pub const RESERVED: &str = "halite";
/// The port of the API server.
pub const API_PORT: u16 = 6443;
/// The port on which the master listens.
pub const MASTER_PORT: u16 = 4550;
/// The port on which the bundle is served.
pub const BUNDLE_PORT: u16 = 4551;
/// The text in place of a certificate that does not exist yet.
pub const UNKNOWN: &str = "known after apply";

/// The certificate authorities and the service-account key pair, without any private key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pki {
    /// Certificates (PEM) by CA: `kubernetes`, `etcd`, `front-proxy`, `site`, `halite`. Missing
    /// ones are [`UNKNOWN`].
    pub certificates: BTreeMap<String, String>,
    /// Public half of the service-account key (PEM).
    pub service_account: Option<String>,
}

/// The reason why a view cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// No document declares the node.
    #[error("there is no node {0:?}; `ctl node add` declares one")]
    NoSuchNode(String),
    /// The host of the master is not declared, or its address is not known.
    #[error(
        "no node with the role `bootstrap` and a known address is declared; run `ctl bootstrap` first"
    )]
    NoBootstrap,
    /// The service network has no room for the fixed addresses.
    #[error("networks.services is too small")]
    Services,
}

/// The secrets of the PKI: name, key in the view, and the roles of the hosts that need it. The key of
/// etcd's CA is for kubeadm, which a host with a member alone does not have.
const PKI_SECRETS: [(&str, &str, &[Role]); 4] = [
    ("kubernetes", "key", &[Role::ControlPlane]),
    ("etcd", "key", &[Role::ControlPlane, Role::Etcd]),
    ("front-proxy", "key", &[Role::ControlPlane]),
    ("sa", "key", &[Role::ControlPlane]),
];

/// The pillar paths of the secrets that a minion may see. The pseudo-minion `master` sees none.
#[must_use]
pub fn allowed_secrets(declaration: &Declaration, minion: &str) -> BTreeSet<String> {
    let Some(node) = declaration.nodes.get(minion) else {
        return BTreeSet::new();
    };
    let pki = PKI_SECRETS
        .iter()
        .filter(|(_, _, roles)| roles.iter().all(|role| node.has(*role)))
        .map(|(name, key, _)| format!("pki.{name}.{key}"));
    let own = declaration
        .cluster
        .secrets
        .iter()
        .filter(|(_, secret)| {
            secret.nodes.iter().any(|name| name == minion)
                || secret.roles.iter().any(|role| node.has(*role))
        })
        .map(|(name, _)| format!("secrets.{name}"));
    pki.chain(own)
        .chain(registry::allowed(declaration, minion, node))
        .chain(etcd::allowed(&declaration.cluster, node))
        .collect()
}

/// The text of one of the operator's own secrets, or of a text that Halite makes from them, if this
/// minion may have it. Private keys of CAs are in the CA store instead.
#[must_use]
pub fn own_secret(declaration: &Declaration, minion: &str, path: &str) -> Option<String> {
    if !allowed_secrets(declaration, minion).contains(path) {
        return None;
    }
    let cluster = &declaration.cluster;
    match path.strip_prefix("secrets.") {
        Some(name) => Some(cluster.secrets.get(name)?.value.reveal().to_owned()),
        None => registry::secret(cluster, path).or_else(|| etcd::secret(cluster, path)),
    }
}

/// The pillar of one minion: the data that Halite compiles under [`RESERVED`], and the operator's
/// own values as `custom`. It contains references in place of secrets.
///
/// # Errors
/// The minion is not declared, or the cluster has no first host yet.
pub fn view(
    declaration: &Declaration,
    bundle: &BundleFacts,
    pki: &Pki,
    minion: &str,
) -> Result<Value, ViewError> {
    let cluster = &declaration.cluster.value;
    let node = declaration.nodes.get(minion);
    if node.is_none() && minion != MASTER {
        return Err(ViewError::NoSuchNode(minion.to_owned()));
    }
    let first = declaration
        .master_node()
        .and_then(|node| node.control_plane())
        .ok_or(ViewError::NoBootstrap)?;
    let seen = api::seen_by(declaration, node.map(|node| &node.value))?;
    let networks = &cluster.networks;
    let api = network::api_service(networks.services).ok_or(ViewError::Services)?;
    let dns = network::dns_service(networks.services).ok_or(ViewError::Services)?;
    let allowed = allowed_secrets(declaration, minion);
    let api_server = &cluster.api_server;
    let firewall = &cluster.firewall;
    let recorded = declaration.kubernetes_for(minion);
    let kubernetes = if bundle.satisfies(recorded) {
        &bundle.kubernetes
    } else {
        recorded
    };
    let compiled = json!({
        "cluster": {"name": cluster.metadata.name, "domain": cluster.dns_domain},
        "networks": {
            "controlPlane": {"cidrs": networks.control_plane.cidrs},
            "workloadPlane": {"cidrs": networks.workload_cidrs()},
            "pods": networks.pods,
            "services": networks.services,
            "apiServiceIP": api,
            "dnsServiceIP": dns,
        },
        "apiServer": {
            "endpoint": cluster.endpoint(),
            "address": seen.address,
            "port": API_PORT,
            "vip": api_server.vip,
            "keepalived": api_server.keeps_vip(),
            "localProxy": seen.proxied,
            "servers": seen.servers,
            "certSANs": api_server.cert_sans,
            "extraArgs": api_server.extra_args,
        },
        "controllerManager": {"extraArgs": cluster.controller_manager.extra_args},
        "scheduler": {"extraArgs": cluster.scheduler.extra_args},
        "etcd": etcd::view(declaration, |path| allowed.contains(path)),
        "kubernetes": {"version": kubernetes},
        "components": bundle.components,
        "images": bundle.images,
        "packages": bundle.packages,
        "rpms": bundle.rpms,
        "bundle": {
            "path": bundle.path,
            "version": bundle.version,
            "host": first,
            "url": bundle_url(first, &bundle.version),
            "servers": servers(declaration, first, &bundle.version),
            "fallbacks": fallbacks(declaration, first, &bundle.version),
            "programs": bundle.programs,
            "charts": bundle.charts,
        },
        "bundles": bundle.on_site(),
        "master": masters(declaration, first),
        "node": this_node(declaration, node, minion),
        "nodes": all_nodes(declaration),
        "pki": pki_view(pki, &allowed),
        "kubelet": {"config": cluster.kubelet.config},
        "containerd": {
            "restrictOomScoreAdj": cluster.containerd.restrict_oom_score_adj,
            "config": cluster.containerd.config,
            "registries": mirrors::view(&cluster.containerd.registries),
        },
        "kubeProxy": {"mode": cluster.kube_proxy.mode, "config": cluster.kube_proxy.config},
        "addons": cluster.addons,
        "charts": cluster.charts,
        "backup": backup(declaration, minion),
        "certificates": cluster.certificates,
        "siteRegistry": registry::view(declaration, |path| allowed.contains(path)),
        "cni": {"plugin": cluster.cni.plugin, "mtu": cluster.cni.mtu},
        "trust": trust::view(&cluster.trust),
        "proxy": proxy::view(cluster),
        "host": cluster.host,
        "time": cluster.time,
        "firewall": {
            "sources": {
                "management": firewall.sources.management.as_ref().unwrap_or(&networks.control_plane.cidrs),
                "loadBalancers": firewall.sources.load_balancers.as_deref().unwrap_or_default(),
            },
            "podsToHosts": firewall.pods_to_hosts,
            "nodePorts": {"cidrs": firewall.node_ports.cidrs.as_deref().unwrap_or(networks.workload_cidrs())},
        },
        "secrets": own_secrets(&allowed),
    });
    Ok(json!({RESERVED: compiled, "custom": custom(declaration, node)}))
}

/// The host of the master, its standbys, and the addresses of all of them, the master's first.
fn masters(declaration: &Declaration, own: Ipv4Addr) -> Value {
    let name = |node: &Document<Node>| node.metadata.name.clone();
    let addresses = declaration.master_addresses().into_iter();
    json!({
        "node": declaration.master_node().map(name),
        "standbys": declaration.standbys().into_iter().map(name).collect::<Vec<_>>(),
        "address": own,
        "port": MASTER_PORT,
        "masters": addresses.map(|address| format!("{address}:{MASTER_PORT}")).collect::<Vec<_>>(),
        "jobs": declaration.cluster.master.jobs,
    })
}

/// The schedule of backups, with the times of this host. `ctl` gets the recipients from the master
/// when it makes one.
fn backup(declaration: &Declaration, minion: &str) -> Value {
    let backup = &declaration.cluster.backup;
    let hosts = declaration.backup_hosts();
    let turn = match declaration.part(minion) {
        Some(Part::Standby) => Backup::turn_of_standby(minion),
        _ => 0,
    };
    json!({
        "isMade": hosts.iter().any(|host| host.metadata.name == minion),
        "at": backup.times_of(turn),
        "directory": backup.directory,
        "verify": backup.verify,
        "verifyAt": Backup::verified_at(turn),
        "isVerified": backup.is_verified(),
    })
}

/// The URL at which a host serves a bundle.
fn bundle_url(host: Ipv4Addr, version: &str) -> String {
    format!("https://{host}:{BUNDLE_PORT}/bundles/{version}")
}

/// The URLs of the bundle in use: that of the first host, then those of the hosts with the role
/// `registry`, sorted by name.
fn servers(declaration: &Declaration, first: Ipv4Addr, version: &str) -> Vec<String> {
    let serving = declaration
        .nodes
        .values()
        .filter(|node| node.has(Role::Registry));
    let others = serving
        .filter_map(|node| node.control_plane())
        .filter(|address| *address != first);
    std::iter::once(first)
        .chain(others)
        .map(|host| bundle_url(host, version))
        .collect()
}

/// The URLs of the other bundles that the cluster or a host uses. In the middle of an upgrade a
/// host runs pods with images of both.
fn fallbacks(declaration: &Declaration, first: Ipv4Addr, own: &str) -> Vec<String> {
    let used = declaration.bundles_in_use().into_iter();
    used.filter(|version| version.as_str() != own)
        .flat_map(|version| servers(declaration, first, version.as_str()))
        .collect()
}

fn this_node(declaration: &Declaration, node: Option<&Document<Node>>, minion: &str) -> Value {
    let Some(node) = node else {
        return json!({
            "name": minion, "roles": [], "runs": {"containers": false, "master": false, "standby": false},
            "controlPlane": null, "workloadPlane": null, "etcd": null, "foundsEtcd": false, "vrrpPriority": null, "labels": {}, "taints": [],
        });
    };
    json!({
        "name": minion,
        "roles": node.roles,
        "runs": {
            "containers": node.runs_containers(),
            "master": declaration.part(minion) == Some(Part::Master),
            "standby": declaration.part(minion) == Some(Part::Standby),
        },
        "controlPlane": node.control_plane(),
        "workloadPlane": workload_plane(node),
        "etcd": node.resolved.as_ref().and_then(|resolved| resolved.etcd.as_ref()),
        "foundsEtcd": node.founds_etcd(),
        "vrrpPriority": declaration.vrrp_priority(minion),
        "labels": node.labels,
        "taints": node.effective_taints(),
    })
}

/// Until an address is recorded, the declared one is used for both planes.
fn workload_plane(node: &Node) -> Option<Ipv4Addr> {
    node.resolved
        .as_ref()
        .map(|resolved| resolved.workload_plane)
        .or(node.address)
}

fn all_nodes(declaration: &Declaration) -> Value {
    let follows = declaration.cluster.control_plane.taint == PlaneTaint::Auto;
    let each = |(name, node): (&NodeName, &Document<Node>)| {
        let value = json!({
            "roles": node.roles,
            "runs": {"containers": node.runs_containers()},
            "controlPlane": node.control_plane(),
            "workloadPlane": workload_plane(node),
            "labels": node.labels,
            "taints": node.effective_taints(),
            "taintFollowsWorkers": follows && node.has_plane_taint(),
            "bundle": declaration.bundle_for(name.as_str()),
        });
        (name.to_string(), value)
    };
    Value::Object(declaration.nodes.iter().map(each).collect())
}

fn pki_view(pki: &Pki, allowed: &BTreeSet<String>) -> Value {
    let mut out = Map::new();
    for name in ["kubernetes", "etcd", "front-proxy", "site", "halite"] {
        let certificate = pki.certificates.get(name).map_or(UNKNOWN, String::as_str);
        out.insert(name.to_owned(), json!({"cert": certificate}));
    }
    let mut sa = Map::new();
    if allowed.contains("pki.sa.key") {
        sa.insert(
            "pub".to_owned(),
            json!(pki.service_account.as_deref().unwrap_or(UNKNOWN)),
        );
    }
    out.insert("sa".to_owned(), Value::Object(sa));
    for (name, key, _) in PKI_SECRETS {
        let path = format!("pki.{name}.{key}");
        if allowed.contains(&path)
            && let Some(Value::Object(entry)) = out.get_mut(name)
        {
            entry.insert(key.to_owned(), json!(reference::for_path(&path)));
        }
    }
    Value::Object(out)
}

fn own_secrets(allowed: &BTreeSet<String>) -> Value {
    let each = |path: &String| {
        Some((
            path.strip_prefix("secrets.")?.to_owned(),
            json!(reference::for_path(path)),
        ))
    };
    Value::Object(allowed.iter().filter_map(each).collect())
}

/// `custom/pillar.yaml`, then the cluster's `custom`, then the node's: the more specific one wins.
fn custom(declaration: &Declaration, node: Option<&Document<Node>>) -> Value {
    let mut out = declaration.custom.clone();
    merge_over(&mut out, &declaration.cluster.custom);
    if let Some(node) = node {
        merge_over(&mut out, &node.custom);
    }
    Value::Object(out)
}

/// Mappings merge, everything else replaces.
fn merge_over(under: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(Value::Object(under)), Value::Object(over)) => merge_over(under, over),
            _ => {
                under.insert(key.clone(), value.clone());
            }
        }
    }
}
