//! The form of a view: the names that templates use, and their meaning.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use halite_names::BundleVersion;
use ipnet::Ipv4Net;
use serde::Serialize;
use serde_json::{Map, Value};

use super::hardening::ComponentView;
use super::{etcd, proxy, registry};
use crate::bundle_facts::SiteBundle;
use crate::certificates::Certificates;
use crate::cluster::HostNetworks;
use crate::dns::Dns;
use crate::encryption_keys::KeyNames;
use crate::firewall::PodsToHosts;
use crate::flags::Flags;
use crate::host_settings::Time;
use crate::mirrors::Mirrors;
use crate::node::{ResolvedMember, Taint};
use crate::profile::HardeningProfile;
use crate::programs::{Addons, Cni, ContainerLimits, KubeProxy};
use crate::role::Role;
use crate::standbys::KeptJobs;
use crate::trust::Trusted;
use crate::upgrade::UpgradePace;

/// The data that Halite compiles for one minion.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct View<'a> {
    pub(super) cluster: Cluster<'a>,
    pub(super) networks: Networks<'a>,
    pub(super) api_server: ApiServer<'a>,
    pub(super) controller_manager: ComponentView<'a>,
    pub(super) scheduler: ComponentView<'a>,
    pub(super) etcd: etcd::View<'a>,
    pub(super) kubernetes: Kubernetes<'a>,
    pub(super) components: &'a BTreeMap<String, String>,
    pub(super) images: &'a BTreeMap<String, String>,
    pub(super) packages: &'a BTreeMap<String, String>,
    pub(super) rpms: &'a BTreeMap<String, String>,
    pub(super) bundle: Bundle<'a>,
    pub(super) bundles: Vec<SiteBundle>,
    pub(super) master: Master<'a>,
    pub(super) node: OwnNode<'a>,
    pub(super) nodes: BTreeMap<&'a str, OtherNode<'a>>,
    pub(super) pki: Authorities<'a>,
    pub(super) kubelet: Kubelet<'a>,
    pub(super) containerd: Containerd<'a>,
    pub(super) dns: &'a Dns,
    pub(super) kube_proxy: &'a KubeProxy,
    pub(super) addons: &'a Addons,
    pub(super) charts: &'a [String],
    pub(super) backup: Backup<'a>,
    pub(super) certificates: &'a Certificates,
    pub(super) upgrade: &'a UpgradePace,
    pub(super) site_registry: registry::View<'a>,
    pub(super) cni: &'a Cni,
    pub(super) trust: Trusted,
    pub(super) proxy: proxy::View<'a>,
    pub(super) profile: HardeningProfile,
    pub(super) host: HostSettings<'a>,
    pub(super) time: &'a Time,
    pub(super) firewall: Firewall<'a>,
    /// References to the operator's own secrets.
    pub(super) secrets: BTreeMap<&'a str, String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Cluster<'a> {
    pub(super) name: &'a str,
    pub(super) domain: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Networks<'a> {
    pub(super) control_plane: &'a HostNetworks,
    pub(super) workload_plane: Cidrs<'a>,
    pub(super) pods: Ipv4Net,
    pub(super) services: Ipv4Net,
    #[serde(rename = "apiServiceIP")]
    pub(super) api_service_ip: Ipv4Addr,
    #[serde(rename = "dnsServiceIP")]
    pub(super) dns_service_ip: Ipv4Addr,
}

#[derive(Debug, Serialize)]
pub(super) struct Cidrs<'a> {
    pub(super) cidrs: &'a [Ipv4Net],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiServer<'a> {
    pub(super) endpoint: String,
    /// The address to which its name resolves on this host.
    pub(super) address: Ipv4Addr,
    pub(super) port: u16,
    pub(super) vip: Option<Ipv4Addr>,
    pub(super) keepalived: bool,
    pub(super) local_proxy: bool,
    pub(super) servers: BTreeMap<String, Ipv4Addr>,
    #[serde(rename = "certSANs")]
    pub(super) cert_sans: &'a [String],
    #[serde(flatten)]
    pub(super) component: ComponentView<'a>,
    /// Its configuration files by name, on a control plane only.
    pub(super) files: BTreeMap<&'static str, Value>,
    /// The names of the keys in them, and their stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) keys: Option<KeyNames>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kubelet<'a> {
    /// The cluster's fields, with those of the host over them.
    pub(super) config: Cow<'a, Map<String, Value>>,
    pub(super) extra_args: Flags,
    /// `true` if clients verify the certificate of its server.
    pub(super) serving_certificate: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HostSettings<'a> {
    pub(super) sysctls: Cow<'a, BTreeMap<String, Option<String>>>,
    pub(super) kernel_modules: &'a [String],
    pub(super) manage_swap: bool,
    pub(super) manage_firewall: bool,
    pub(super) manage_time: bool,
    pub(super) packages: &'a [String],
}

#[derive(Debug, Serialize)]
pub(super) struct Kubernetes<'a> {
    pub(super) version: &'a str,
}

#[derive(Debug, Serialize)]
pub(super) struct Bundle<'a> {
    pub(super) path: &'a str,
    pub(super) version: &'a str,
    pub(super) host: Ipv4Addr,
    pub(super) url: String,
    pub(super) servers: Vec<String>,
    pub(super) fallbacks: Vec<String>,
    pub(super) programs: &'a BTreeMap<String, String>,
    pub(super) charts: &'a BTreeMap<String, String>,
}

/// The master's host, its standbys, and the addresses of all of these, the master's first.
#[derive(Debug, Serialize)]
pub(super) struct Master<'a> {
    pub(super) node: Option<&'a str>,
    pub(super) standbys: Vec<&'a str>,
    pub(super) address: Ipv4Addr,
    pub(super) port: u16,
    pub(super) masters: Vec<String>,
    pub(super) jobs: &'a KeptJobs,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metrics: Option<Metrics<'a>>,
}

/// The metrics that the master's host serves.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metrics<'a> {
    pub(super) port: u16,
    /// The declared networks, for the firewall.
    pub(super) from: &'a [Ipv4Net],
    /// The networks of all possible sources, for the master: the nodes' too if pods are sources.
    pub(super) allowed: Vec<Ipv4Net>,
    /// `true` if pods are sources. Other hosts see the addresses of their nodes.
    pub(super) from_pods: bool,
    #[serde(rename = "clientCA")]
    pub(super) client_ca: Option<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OwnNode<'a> {
    pub(super) name: &'a str,
    pub(super) roles: &'a [Role],
    pub(super) runs: OwnPrograms,
    pub(super) control_plane: Option<Ipv4Addr>,
    pub(super) workload_plane: Option<Ipv4Addr>,
    pub(super) etcd: Option<&'a ResolvedMember>,
    pub(super) founds_etcd: bool,
    pub(super) vrrp_priority: Option<u8>,
    pub(super) labels: Cow<'a, BTreeMap<String, String>>,
    pub(super) taints: Vec<Taint>,
}

impl<'a> OwnNode<'a> {
    /// The part for the target `master`, which is not a host.
    pub(super) fn without_host(name: &'a str) -> Self {
        Self {
            name,
            roles: &[],
            runs: OwnPrograms::default(),
            control_plane: None,
            workload_plane: None,
            etcd: None,
            founds_etcd: false,
            vrrp_priority: None,
            labels: Cow::default(),
            taints: Vec::new(),
        }
    }
}

#[derive(Debug, Default, Serialize)]
pub(super) struct OwnPrograms {
    pub(super) containers: bool,
    pub(super) master: bool,
    pub(super) standby: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OtherNode<'a> {
    pub(super) roles: &'a [Role],
    pub(super) runs: Programs,
    pub(super) control_plane: Option<Ipv4Addr>,
    pub(super) workload_plane: Option<Ipv4Addr>,
    pub(super) labels: &'a BTreeMap<String, String>,
    pub(super) taints: Vec<Taint>,
    pub(super) taint_follows_workers: bool,
    pub(super) bundle: Option<&'a BundleVersion>,
}

#[derive(Debug, Serialize)]
pub(super) struct Programs {
    pub(super) containers: bool,
}

/// The certificate authorities, and the key pair of service accounts.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Authorities<'a> {
    pub(super) kubernetes: Authority<'a>,
    pub(super) etcd: Authority<'a>,
    pub(super) front_proxy: Authority<'a>,
    pub(super) site: Authority<'a>,
    pub(super) halite: Authority<'a>,
    pub(super) sa: ServiceAccounts<'a>,
    /// The number of the present stage of each rotation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) stages: &'a BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct Authority<'a> {
    /// All trusted certificates, the signer first.
    pub(super) cert: &'a str,
    /// The certificate that signs, while two are trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) signer: Option<&'a str>,
    /// A reference to the private key, for the hosts that need it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
}

/// The halves of a key pair, for the hosts that need them.
#[derive(Debug, Serialize)]
pub(super) struct ServiceAccounts<'a> {
    #[serde(rename = "pub", skip_serializing_if = "Option::is_none")]
    pub(super) public: Option<&'a str>,
    /// A reference to the private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Containerd<'a> {
    pub(super) restrict_oom_score_adj: bool,
    pub(super) config: &'a Map<String, Value>,
    pub(super) registries: BTreeMap<&'a str, Mirrors>,
    #[serde(skip_serializing_if = "ContainerLimits::is_empty")]
    pub(super) limits: &'a ContainerLimits,
}

/// The schedule of backups, with the times of this host. `ctl` gets the recipients from the master
/// when it makes one.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Backup<'a> {
    pub(super) is_made: bool,
    pub(super) at: String,
    pub(super) directory: &'a str,
    pub(super) verify: &'a str,
    pub(super) verify_at: String,
    pub(super) is_verified: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Firewall<'a> {
    pub(super) sources: Sources<'a>,
    pub(super) pods_to_hosts: PodsToHosts,
    pub(super) node_ports: Cidrs<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sources<'a> {
    pub(super) management: &'a [Ipv4Net],
    pub(super) load_balancers: &'a [Ipv4Net],
}
