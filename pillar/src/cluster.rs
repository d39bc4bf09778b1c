//! The cluster document: `kind: Cluster`, one per cluster, in `cluster.yaml`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use halite_names::BundleVersion;
use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::api_server::ApiServer;
use crate::backup::Backup;
use crate::certificates::Certificates;
use crate::component::Component;
use crate::control_plane::ControlPlane;
use crate::dns::Dns;
use crate::etcd::{ClientIdentity, Etcd, ExternalEtcd, Placement, client_identity};
use crate::field_schemas;
use crate::firewall::Firewall;
use crate::host_settings::{HostSettings, Time};
use crate::notify::Notify;
use crate::own_secret;
use crate::own_secret::OwnSecret;
use crate::profile::HardeningProfile;
use crate::programs::{Addons, Cni, Containerd, KubeProxy, Kubelet};
use crate::proxy::Proxy;
use crate::registry::SiteRegistry;
use crate::standbys::Master;
use crate::trust::Trust;
use crate::upgrade::UpgradePace;

/// The declaration of a cluster. Every omitted field has a default that fits most sites.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cluster {
    /// The version of the document's format.
    #[schemars(schema_with = "field_schemas::api_version")]
    pub api_version: String,
    /// The kind of the document.
    #[schemars(schema_with = "field_schemas::kind_cluster")]
    pub kind: String,
    /// The name of the cluster.
    pub metadata: Metadata,
    /// The settings that apply where this document says nothing else: kubeadm's (`standard`), or
    /// those of docs/guide/hardening.md (`hardened`).
    #[serde(default)]
    pub profile: HardeningProfile,
    /// The DNS domain of Services: each has the name `NAME.NAMESPACE.svc.DOMAIN`. Choose it before
    /// the cluster is made.
    #[serde(default = "default_domain")]
    #[schemars(schema_with = "field_schemas::subdomain")]
    pub dns_domain: String,
    /// The networks of hosts, pods and services.
    ///
    /// The networks of pods and services must overlap neither each other nor a network of the
    /// hosts. Choose all of them before the cluster is made.
    pub networks: Networks,
    /// The address and name of the Kubernetes API, and the settings of its server.
    ///
    /// With one control plane, the defaults are enough. With several, hosts of the cluster need
    /// nothing here either; clients outside need an address that survives the loss of a host: a
    /// `vip`, held by keepalived or by your own load balancer.
    #[serde(default)]
    pub api_server: ApiServer,
    /// The taint of control planes.
    ///
    /// Needed in a cluster without workers, so that your own pods run on control planes.
    #[serde(default)]
    pub control_plane: ControlPlane,
    /// The Kubernetes controller manager.
    ///
    /// Needed only for its own flags, volumes and patches.
    #[serde(default)]
    pub controller_manager: Component,
    /// The Kubernetes scheduler.
    ///
    /// Needed only for its own flags, volumes and patches.
    #[serde(default)]
    pub scheduler: Component,
    /// etcd: the hosts of its members, the program that runs a member, and its flags.
    ///
    /// By default, each control plane has a member, which runs as a static pod, as with kubeadm.
    #[serde(default)]
    pub etcd: Etcd,
    /// The version of Kubernetes.
    pub kubernetes: Kubernetes,
    /// The pod network, which carries traffic between pods on different hosts.
    ///
    /// Needed to bring a pod network of your own, or to set the MTU.
    #[serde(default)]
    pub cni: Cni,
    /// The kubelet of every node.
    ///
    /// Needed to change its configuration, for example the number of pods on a node. The node
    /// document has the same field for one host.
    #[serde(default)]
    pub kubelet: Kubelet,
    /// The container runtime of every node.
    ///
    /// Needed for registries outside the site, and to change its configuration.
    #[serde(default)]
    pub containerd: Containerd,
    /// kube-proxy, which leads the addresses of Services to pods.
    ///
    /// Needed on hosts with a kernel older than 5.13 (`mode: iptables`), and to change its
    /// configuration.
    #[serde(default)]
    pub kube_proxy: KubeProxy,
    /// CoreDNS, the DNS of the cluster.
    ///
    /// Needed only for patches of its Deployment, for example for more replicas or memory.
    #[serde(default)]
    pub dns: Dns,
    /// Services that run in the cluster in addition to Kubernetes itself.
    ///
    /// An addon that is switched off again is removed from the cluster. The bundle must have its
    /// images.
    #[serde(default)]
    pub addons: Addons,
    /// The charts to install, by their names in the bundle. A chart that leaves the list is removed
    /// from the cluster.
    #[serde(default)]
    #[schemars(schema_with = "field_schemas::names")]
    pub charts: Vec<String>,
    /// The site registry: a registry for the site's own images, which clients can push to.
    ///
    /// Needed if images are built at the site. The bundle must have its package,
    /// `distribution-registry`. When the registry is switched off, its images are kept.
    #[serde(default)]
    pub site_registry: SiteRegistry,
    /// Backups of the whole cluster: etcd, the master's store, the CAs, and the declaration.
    ///
    /// They are made in any case. Declare at least `recipients`, without which a backup contains
    /// all keys and secrets of the cluster in plain text, and a `directory` on another disk.
    #[serde(default)]
    pub backup: Backup,
    /// The renewal of the certificates that Halite makes on the hosts. Each is valid for a year.
    ///
    /// Needed only to renew them by hand.
    #[serde(default)]
    pub certificates: Certificates,
    /// The pace of changes that take hosts out of service.
    ///
    /// Needed if a quarter of the hosts without a control plane is too many, or too few, at a time.
    #[serde(default)]
    pub upgrade: UpgradePace,
    /// Notifications: the receivers of the findings of `ctl health`.
    #[serde(default)]
    pub notify: Notify,
    /// Certificates that every host trusts, in addition to those of its distribution.
    ///
    /// Needed if hosts or containerd reach servers with certificates of your own CA.
    #[serde(default)]
    pub trust: Trust,
    /// The proxy through which containerd reaches registries outside the site.
    ///
    /// Needed only together with `containerd.registries`. No other program of the cluster uses it.
    #[serde(default)]
    pub proxy: Proxy,
    /// Settings of the hosts: kernel, swap, firewall, clock, packages.
    ///
    /// Needed to keep Halite from managing one of them, or for additional kernel parameters and
    /// packages.
    #[serde(default)]
    pub host: HostSettings,
    /// The time servers of the hosts.
    ///
    /// Required with `host.manageTime: true`, and refused otherwise.
    #[serde(default)]
    pub time: Time,
    /// The networks that may connect to the hosts.
    ///
    /// The ports follow from the roles of a host; only sources are declared. Needed if operators or
    /// clients are outside the control-plane networks. Without effect if `host.manageFirewall` is
    /// `false`.
    #[serde(default)]
    pub firewall: Firewall,
    /// The master's own settings: its standbys, and how long it keeps finished jobs.
    #[serde(default)]
    pub master: Master,
    /// Your own secrets, by name.
    ///
    /// Templates see each as `pillar.halite.secrets.NAME`, but only for the hosts named here. The
    /// site registry and an external etcd take their passwords and keys from here, too. Keep the
    /// mode of the file at 0600.
    #[serde(default)]
    #[schemars(schema_with = "own_secret::secrets")]
    pub secrets: BTreeMap<String, OwnSecret>,
    /// Free data for your own states, which see it as `pillar.custom`.
    #[serde(default)]
    pub custom: Map<String, Value>,
    /// Written by Halite: the values that were chosen when the cluster was made, so that a later
    /// repair uses the same.
    ///
    /// Do not edit it: `ctl bundle use`, `ctl upgrade` and `ctl master` do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<ResolvedCluster>,
}

fn default_domain() -> String {
    "cluster.local".to_owned()
}

/// The metadata of a cluster or a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// The name: lower-case letters, digits and `-` (RFC 1123); a node's name may also have dots.
    /// Choose it before the cluster or node is made: certificates and records contain it.
    #[schemars(schema_with = "field_schemas::subdomain", extend("x-wizard" = {"suggest": "name"}))]
    pub name: String,
}

/// The networks of hosts, pods and services. They must not overlap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Networks {
    /// The networks in which hosts reach the API, etcd and the master.
    pub control_plane: HostNetworks,
    /// The networks of traffic between pods of different hosts, and of NodePorts. Default: those of
    /// the control plane.
    #[serde(default)]
    pub workload_plane: Option<HostNetworks>,
    /// The addresses of pods. Each node gets a /24 of them, so the network limits the number of
    /// nodes: a /16 has room for 256.
    #[serde(default = "default_pods")]
    #[schemars(
        schema_with = "field_schemas::cidr",
        extend("x-wizard" = {"ask": true, "suggest": "free-network"})
    )]
    pub pods: Ipv4Net,
    /// The addresses of Services, from a /12 to a /28. The first is the API's, the tenth is DNS.
    #[serde(default = "default_services")]
    #[schemars(
        schema_with = "field_schemas::cidr",
        extend("x-wizard" = {"ask": true, "suggest": "free-network"})
    )]
    pub services: Ipv4Net,
}

/// 10.233.0.0/16.
pub(crate) fn default_pods() -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(10, 233, 0, 0), 16)
}

/// 10.96.0.0/12, kubeadm's default.
pub(crate) fn default_services() -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(10, 96, 0, 0), 12)
}

impl Networks {
    /// The workload plane's networks: the control plane's unless declared.
    #[must_use]
    pub fn workload_cidrs(&self) -> &[Ipv4Net] {
        self.workload_plane
            .as_ref()
            .map_or(&self.control_plane.cidrs, |plane| &plane.cidrs)
    }
}

/// Networks that hosts have addresses in.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostNetworks {
    /// Networks such as `10.0.0.0/24`, in order of preference: a host gets its address from the
    /// first one that it is in.
    #[schemars(
        schema_with = "field_schemas::cidrs",
        extend("x-wizard" = {"ask": true, "suggest": "host-networks"})
    )]
    pub cidrs: Vec<Ipv4Net>,
}

/// The version of Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kubernetes {
    /// The minor or patch version, for example `1.36` or `1.36.3`. The bundle must have it. `ctl
    /// upgrade` upgrades a running cluster, and writes the new minor version here.
    #[schemars(
        schema_with = "field_schemas::version",
        extend("x-wizard" = {"suggest": "kubernetes-version"})
    )]
    pub version: String,
}

/// The values that were chosen when the cluster was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolvedCluster {
    /// The Kubernetes version, for example `v1.36.3`.
    #[schemars(schema_with = "field_schemas::version")]
    pub kubernetes: String,
    /// The version of the bundle in use, one of those on the site. `ctl bundle use` changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "field_schemas::optional_bundle_version")]
    pub bundle: Option<BundleVersion>,
    /// The node that has the master, once it is no longer the first host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "field_schemas::optional_subdomain")]
    pub master: Option<String>,
    /// The placement of etcd with which the cluster was made, if it is not `stacked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "field_schemas::optional_etcd_placement")]
    pub etcd: Option<Placement>,
}

impl Cluster {
    /// The API's name: as declared, or `api.CLUSTER.internal`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.api_server
            .endpoint
            .clone()
            .unwrap_or_else(|| format!("api.{}.internal", self.metadata.name))
    }

    /// The registry's name in references of images, certificates and hosts entries.
    #[must_use]
    pub fn registry_name(&self) -> String {
        format!("registry.{}.internal", self.metadata.name)
    }

    /// The Kubernetes version in effect: the recorded one, or else the declared one.
    #[must_use]
    pub fn kubernetes_version(&self) -> &str {
        self.resolved
            .as_ref()
            .map_or(&self.kubernetes.version, |resolved| &resolved.kubernetes)
    }

    /// The external etcd of the cluster; `None` if its members are the cluster's own.
    #[must_use]
    pub fn external_etcd(&self) -> Option<&ExternalEtcd> {
        let is_external = self.etcd.placement == Placement::External;
        self.etcd.external.as_ref().filter(|_| is_external)
    }

    /// The client's certificate of the external etcd with its key.
    #[must_use]
    pub fn external_client(&self) -> Option<ClientIdentity> {
        let secret = self.secrets.get(&self.external_etcd()?.client_secret)?;
        client_identity(secret.known()?).ok()
    }
}
