//! The view of one minion: all data that its templates may use.

mod api;
mod etcd;
pub(crate) mod hardening;
mod proxy;
mod registry;
mod shape;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use halite_secrets::reference;
use ipnet::Ipv4Net;
use serde_json::{Map, Value, json};

use crate::backup::Backup;
use crate::bundle_facts::BundleFacts;
use crate::cluster::Cluster;
use crate::control_plane::PlaneTaint;
use crate::declaration::{Declaration, Document};
use crate::encryption_keys::{KeyNames, key_name};
use crate::flags::Flags;
use crate::masters::MasterPart;
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

/// The certificate authorities, the service-account key pair and the names of the keys of objects
/// in etcd, without any private key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pki {
    /// Trusted certificates (PEM) by CA: `kubernetes`, `etcd`, `front-proxy`, `site`, `halite`.
    /// Missing ones are [`UNKNOWN`]. While a CA is rotated there are two, the signer first.
    pub certificates: BTreeMap<String, String>,
    /// The certificate (PEM) that signs, of each CA of which two are trusted.
    pub signers: BTreeMap<String, String>,
    /// Public half of the service-account key (PEM); two while it is rotated, the signer first.
    pub service_account: Option<String>,
    /// The number of the present stage of each CA's rotation, and of `sa`.
    pub stages: BTreeMap<&'static str, u64>,
    /// The names of the keys that encrypt objects in etcd; `None` if there are none yet.
    pub encryption: Option<KeyNames>,
}

/// All flags, volumes and patches of the API server, the controller manager and the scheduler, by
/// their names in the document: those that are declared, and those that follow from other fields.
#[must_use]
pub fn components(cluster: &Cluster) -> Value {
    let api_server = hardening::api_server(cluster, None, &reference::for_path);
    json!({
        "apiServer": api_server.component,
        "controllerManager": hardening::component(cluster, &cluster.controller_manager),
        "scheduler": hardening::component(cluster, &cluster.scheduler),
    })
}

/// The reason why a view cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// No document declares the node.
    #[error("there is no node {0:?}; `ctl node add` declares one")]
    NoSuchNode(String),
    /// The master's host is not declared, or its address is not known.
    #[error(
        "no node with the role `bootstrap` and a known address is declared; run `ctl bootstrap` first"
    )]
    NoBootstrap,
    /// The service network has no room for the fixed addresses.
    #[error("networks.services is too small")]
    Services,
}

/// The secrets of the PKI: name, key in the view, and the roles of the hosts that need it. The key
/// of etcd's CA is for kubeadm, which a host with only a member does not have.
const PKI_SECRETS: [(&str, &str, &[Role]); 4] = [
    ("kubernetes", "key", &[Role::ControlPlane]),
    ("etcd", "key", &[Role::ControlPlane, Role::Etcd]),
    ("front-proxy", "key", &[Role::ControlPlane]),
    ("sa", "key", &[Role::ControlPlane]),
];

/// The pillar paths of the secrets that a minion may see. The pseudo-minion `master` sees those of
/// the operator that name it.
#[must_use]
pub fn allowed_secrets(declaration: &Declaration, minion: &str) -> BTreeSet<String> {
    let Some(node) = declaration.nodes.get(minion) else {
        let own = declaration.cluster.secrets.iter();
        return own
            .filter(|(_, secret)| {
                minion == MASTER && secret.nodes.iter().any(|name| name == MASTER)
            })
            .map(|(name, _)| format!("secrets.{name}"))
            .collect();
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

/// Returns whether a pillar path is that of a key of objects in etcd, and the minion may have it.
#[must_use]
pub fn is_encryption_key(declaration: &Declaration, minion: &str, path: &str) -> bool {
    let node = declaration.nodes.get(minion);
    key_name(path).is_some() && node.is_some_and(|node| node.has(Role::ControlPlane))
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
        Some(name) => cluster.secrets.get(name)?.known().map(str::to_owned),
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
    let hardened = hardening::api_server(cluster, pki.encryption.as_ref(), &reference::for_path);
    let is_plane = node.is_some_and(|node| node.has(Role::ControlPlane));
    let firewall = &cluster.firewall;
    let sources = &firewall.sources;
    let recorded = declaration.kubernetes_for(minion);
    let kubernetes = if bundle.satisfies(recorded) {
        &bundle.kubernetes
    } else {
        recorded
    };
    let compiled = shape::View {
        cluster: shape::Cluster {
            name: &cluster.metadata.name,
            domain: &cluster.dns_domain,
        },
        networks: shape::Networks {
            control_plane: &networks.control_plane,
            workload_plane: shape::Cidrs {
                cidrs: networks.workload_cidrs(),
            },
            pods: networks.pods,
            services: networks.services,
            api_service_ip: api,
            dns_service_ip: dns,
        },
        api_server: shape::ApiServer {
            endpoint: cluster.endpoint(),
            address: seen.address,
            port: API_PORT,
            vip: api_server.vip,
            keepalived: api_server.keeps_vip(),
            local_proxy: seen.proxied,
            servers: seen.servers,
            cert_sans: &api_server.cert_sans,
            component: hardened.component,
            // One of them has keys.
            files: hardened.files.into_iter().filter(|_| is_plane).collect(),
            keys: hardened.keys.filter(|_| is_plane),
        },
        controller_manager: hardening::component(cluster, &cluster.controller_manager),
        scheduler: hardening::component(cluster, &cluster.scheduler),
        etcd: etcd::view(declaration, |path| allowed.contains(path)),
        kubernetes: shape::Kubernetes {
            version: kubernetes,
        },
        components: &bundle.components,
        images: &bundle.images,
        packages: &bundle.packages,
        rpms: &bundle.rpms,
        bundle: shape::Bundle {
            path: &bundle.path,
            version: &bundle.version,
            host: first,
            url: bundle_url(first, &bundle.version),
            servers: servers(declaration, first, &bundle.version),
            fallbacks: fallbacks(declaration, first, &bundle.version),
            programs: &bundle.programs,
            charts: &bundle.charts,
        },
        bundles: bundle.on_site(),
        master: masters(declaration, first),
        node: this_node(declaration, node, minion),
        nodes: all_nodes(declaration),
        pki: pki_view(pki, &allowed),
        kubelet: shape::Kubelet {
            config: kubelet_config(cluster, node),
            extra_args: kubelet_flags(cluster, node),
            serving_certificate: cluster.addons.metrics_server || cluster.is_hardened(),
        },
        containerd: shape::Containerd {
            restrict_oom_score_adj: cluster.containerd.restrict_oom_score_adj,
            config: &cluster.containerd.config,
            registries: mirrors::view(&cluster.containerd.registries),
            limits: &cluster.containerd.limits,
        },
        dns: &cluster.dns,
        kube_proxy: &cluster.kube_proxy,
        addons: &cluster.addons,
        charts: &cluster.charts,
        backup: backup(declaration, minion),
        certificates: &cluster.certificates,
        upgrade: &cluster.upgrade,
        site_registry: registry::view(declaration, |path| allowed.contains(path)),
        cni: &cluster.cni,
        trust: trust::view(&cluster.trust),
        proxy: proxy::view(cluster),
        profile: cluster.profile,
        host: shape::HostSettings {
            sysctls: cluster.node_sysctls(),
            kernel_modules: &cluster.host.kernel_modules,
            manage_swap: cluster.host.manage_swap,
            manage_firewall: cluster.host.manage_firewall,
            manage_time: cluster.host.manage_time,
            packages: &cluster.host.packages,
        },
        time: &cluster.time,
        firewall: shape::Firewall {
            sources: shape::Sources {
                management: (sources.management.as_deref())
                    .unwrap_or(&networks.control_plane.cidrs),
                load_balancers: sources.load_balancers.as_deref().unwrap_or_default(),
            },
            pods_to_hosts: firewall.pods_to_hosts,
            node_ports: shape::Cidrs {
                cidrs: (firewall.node_ports.cidrs.as_deref()).unwrap_or(networks.workload_cidrs()),
            },
        },
        secrets: own_secrets(&allowed),
    };
    Ok(json!({RESERVED: compiled, "custom": custom(declaration, node)}))
}

fn masters(declaration: &Declaration, own: Ipv4Addr) -> shape::Master<'_> {
    let masters = declaration.master_addresses().into_iter();
    let masters = masters.map(|address| format!("{address}:{MASTER_PORT}"));
    shape::Master {
        node: declaration.master_node().map(name),
        standbys: declaration.standbys().into_iter().map(name).collect(),
        address: own,
        port: MASTER_PORT,
        masters: masters.collect(),
        jobs: &declaration.cluster.master.jobs,
        metrics: metrics(&declaration.cluster),
    }
}

fn metrics(cluster: &Cluster) -> Option<shape::Metrics<'_>> {
    let metrics = cluster.master.metrics.as_ref()?;
    let networks = &cluster.networks;
    let is_pod_network = |from: &Ipv4Net| network::overlap(*from, networks.pods);
    let from_pods = metrics.from.iter().any(is_pod_network);
    let nodes = networks.control_plane.cidrs.iter();
    let nodes = nodes.chain(networks.workload_cidrs()).filter(|_| from_pods);
    let allowed: BTreeSet<Ipv4Net> = metrics.from.iter().chain(nodes).copied().collect();
    Some(shape::Metrics {
        port: metrics.listen,
        from: &metrics.from,
        allowed: allowed.into_iter().collect(),
        from_pods,
        client_ca: metrics.client_ca.as_deref(),
    })
}

fn name(node: &Document<Node>) -> &str {
    &node.metadata.name
}

fn backup<'a>(declaration: &'a Declaration, minion: &str) -> shape::Backup<'a> {
    let backup = &declaration.cluster.backup;
    let hosts = declaration.backup_hosts();
    let turn = match declaration.part(minion) {
        Some(MasterPart::Standby) => Backup::turn_of_standby(minion),
        _ => 0,
    };
    shape::Backup {
        is_made: hosts.iter().any(|host| host.metadata.name == minion),
        at: backup.times_of(turn),
        directory: &backup.directory,
        verify: &backup.verify,
        verify_at: Backup::verified_at(turn),
        is_verified: backup.is_verified(),
    }
}

/// The URL at which a host serves a bundle.
fn bundle_url(host: Ipv4Addr, version: &str) -> String {
    format!("https://{host}:{BUNDLE_PORT}/bundles/{version}")
}

/// The URLs of the bundle in use: the first host's, then those of the hosts with the role
/// `registry`, sorted by name.
fn servers(declaration: &Declaration, first: Ipv4Addr, version: &str) -> Vec<String> {
    let nodes = declaration.nodes.values();
    let serving = nodes.filter(|node| node.has(Role::Registry));
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

fn this_node<'a>(
    declaration: &'a Declaration,
    node: Option<&'a Document<Node>>,
    minion: &'a str,
) -> shape::OwnNode<'a> {
    let Some(node) = node else {
        return shape::OwnNode::without_host(minion);
    };
    shape::OwnNode {
        name: minion,
        roles: &node.roles,
        runs: shape::OwnPrograms {
            containers: node.runs_containers(),
            master: declaration.part(minion) == Some(MasterPart::Master),
            standby: declaration.part(minion) == Some(MasterPart::Standby),
        },
        control_plane: node.control_plane(),
        workload_plane: workload_plane(node),
        etcd: (node.resolved.as_ref()).and_then(|resolved| resolved.etcd.as_ref()),
        founds_etcd: node.founds_etcd(),
        vrrp_priority: declaration.vrrp_priority(minion),
        labels: Cow::Borrowed(&node.labels),
        taints: node.effective_taints(),
    }
}

/// Until an address is recorded, the declared one is used for both planes.
fn workload_plane(node: &Node) -> Option<Ipv4Addr> {
    node.resolved
        .as_ref()
        .map(|resolved| resolved.workload_plane)
        .or(node.address)
}

fn all_nodes(declaration: &Declaration) -> BTreeMap<&str, shape::OtherNode<'_>> {
    let follows = declaration.cluster.control_plane.taint == PlaneTaint::Auto;
    let mut all = BTreeMap::new();
    for (name, node) in &declaration.nodes {
        let view = shape::OtherNode {
            roles: &node.roles,
            runs: shape::Programs {
                containers: node.runs_containers(),
            },
            control_plane: node.control_plane(),
            workload_plane: workload_plane(node),
            labels: &node.labels,
            taints: node.effective_taints(),
            taint_follows_workers: follows && node.has_plane_taint(),
            bundle: declaration.bundle_for(name.as_str()),
        };
        all.insert(name.as_str(), view);
    }
    all
}

fn pki_view<'a>(pki: &'a Pki, allowed: &BTreeSet<String>) -> shape::Authorities<'a> {
    let key = |name: &str| {
        let mut secrets = PKI_SECRETS.iter();
        let (_, key, _) = secrets.find(|(secret, ..)| *secret == name)?;
        let path = format!("pki.{name}.{key}");
        allowed.contains(&path).then(|| reference::for_path(&path))
    };
    let authority = |name: &str| shape::Authority {
        cert: pki.certificates.get(name).map_or(UNKNOWN, String::as_str),
        signer: pki.signers.get(name).map(String::as_str),
        key: key(name),
    };
    let key_pair = key("sa");
    let public = pki.service_account.as_deref().unwrap_or(UNKNOWN);
    shape::Authorities {
        kubernetes: authority("kubernetes"),
        etcd: authority("etcd"),
        front_proxy: authority("front-proxy"),
        site: authority("site"),
        halite: authority("halite"),
        sa: shape::ServiceAccounts {
            public: key_pair.is_some().then_some(public),
            key: key_pair,
        },
        stages: &pki.stages,
    }
}

fn own_secrets(allowed: &BTreeSet<String>) -> BTreeMap<&str, String> {
    let own = allowed.iter();
    own.filter_map(|path| Some((path.strip_prefix("secrets.")?, reference::for_path(path))))
        .collect()
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

/// The fields over the kubelet's configuration: the cluster's, then the node's.
fn kubelet_config<'a>(
    cluster: &'a Cluster,
    node: Option<&Document<Node>>,
) -> Cow<'a, Map<String, Value>> {
    let mut config = cluster.kubelet_config();
    if let Some(node) = node.filter(|node| !node.kubelet.config.is_empty()) {
        merge_over(config.to_mut(), &node.kubelet.config);
    }
    config
}

/// The flags of the kubelet: the cluster's, then the node's.
fn kubelet_flags(cluster: &Cluster, node: Option<&Document<Node>>) -> Flags {
    let mut flags = cluster.kubelet.extra_args.clone();
    let own = node.into_iter().flat_map(|node| &node.kubelet.extra_args);
    flags.extend(own.map(|(name, value)| (name.clone(), value.clone())));
    flags
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
