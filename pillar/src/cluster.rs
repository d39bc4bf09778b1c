//! The cluster document: `kind: Cluster`, one per cluster, in `cluster.yaml`.
//!
//! Longer than 500 lines: the fields of one document, each with its text in the reference and its
//! mark for the wizard.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use halite_names::BundleVersion;
use halite_secrets::SecretText;
use ipnet::Ipv4Net;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::api_server::ApiServer;
use crate::backup::Backup;
use crate::certificates::Certificates;
use crate::control_plane::ControlPlane;
use crate::etcd::{ClientIdentity, Etcd, ExternalEtcd, Placement, client_identity};
use crate::field_schemas;
use crate::mirrors::ForeignRegistry;
use crate::proxy::Proxy;
use crate::registry::SiteRegistry;
use crate::role::Role;
use crate::standbys::Standbys;
use crate::trust::Trust;

/// The declaration of a cluster. Every omitted field has a default that fits most sites.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cluster {
    /// Always `halite/v1`.
    #[schemars(schema_with = "field_schemas::api_version")]
    pub api_version: String,
    /// Always `Cluster`.
    #[schemars(schema_with = "field_schemas::kind_cluster")]
    pub kind: String,
    /// The cluster's name.
    pub metadata: Metadata,
    /// Domain of Kubernetes' services.
    #[serde(default = "default_domain")]
    #[schemars(schema_with = "field_schemas::subdomain")]
    pub dns_domain: String,
    /// The networks of hosts, pods and services.
    pub networks: Networks,
    /// The address and name of the Kubernetes API, and flags of its server.
    #[serde(default)]
    pub api_server: ApiServer,
    /// The hosts with a control plane, as nodes of Kubernetes.
    #[serde(default)]
    pub control_plane: ControlPlane,
    /// The Kubernetes controller manager.
    #[serde(default)]
    pub controller_manager: Component,
    /// The Kubernetes scheduler.
    #[serde(default)]
    pub scheduler: Component,
    /// etcd: the hosts of its members, the program that runs a member, and its flags.
    #[serde(default)]
    pub etcd: Etcd,
    /// The version of Kubernetes.
    pub kubernetes: Kubernetes,
    /// The pod network.
    #[serde(default)]
    pub cni: Cni,
    /// The kubelet of every node.
    #[serde(default)]
    pub kubelet: Kubelet,
    /// The container runtime of every node.
    #[serde(default)]
    pub containerd: Containerd,
    /// kube-proxy.
    #[serde(default)]
    pub kube_proxy: KubeProxy,
    /// Services that run in the cluster in addition to Kubernetes itself.
    #[serde(default)]
    pub addons: Addons,
    /// Charts of the bundle that are installed, by name.
    #[serde(default)]
    #[schemars(schema_with = "field_schemas::names")]
    pub charts: Vec<String>,
    /// The site registry: a registry for the site's own images, which clients can push to.
    #[serde(default)]
    pub site_registry: SiteRegistry,
    /// Backups of the whole cluster: etcd, the master's store, the CAs, and the declaration.
    #[serde(default)]
    pub backup: Backup,
    /// The certificates that Halite makes on the hosts: each is valid for a year.
    #[serde(default)]
    pub certificates: Certificates,
    /// Certificates that every host trusts, in addition to those of its distribution.
    #[serde(default)]
    pub trust: Trust,
    /// The proxy through which containerd reaches registries outside the site.
    #[serde(default)]
    pub proxy: Proxy,
    /// Settings of the hosts: kernel, swap, firewall, clock, packages.
    #[serde(default)]
    pub host: Host,
    /// The time servers of the hosts; see `host.manageTime`.
    #[serde(default)]
    pub time: Time,
    /// Networks that may connect to the hosts.
    #[serde(default)]
    pub firewall: Firewall,
    /// The master's own settings.
    #[serde(default)]
    pub master: Master,
    /// The operator's own secrets, by name; templates see each as `pillar.halite.secrets.NAME`, but
    /// only for the hosts named.
    #[serde(default)]
    #[schemars(schema_with = "secrets")]
    pub secrets: BTreeMap<String, OwnSecret>,
    /// Free data for the operator's own states, as `pillar.custom`.
    #[serde(default)]
    pub custom: Map<String, Value>,
    /// Written by Halite: the values that were chosen when the cluster was made, so that a later
    /// repair uses the same.
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
    /// Lower-case letters, digits and `-` (RFC 1123); a node's name may also have dots.
    #[schemars(schema_with = "field_schemas::subdomain", extend("x-wizard" = {"suggest": "name"}))]
    pub name: String,
}

/// The networks of hosts, pods and services. They must not overlap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Networks {
    /// Networks in which hosts reach the API, etcd and the master. A host's address is chosen in
    /// this order.
    pub control_plane: HostNetworks,
    /// Networks of the traffic between pods of different hosts, and of NodePorts. Default: those of
    /// the control plane.
    #[serde(default)]
    pub workload_plane: Option<HostNetworks>,
    /// Addresses of pods. Each node gets a /24 of it.
    #[serde(default = "default_pods")]
    #[schemars(
        schema_with = "field_schemas::cidr",
        extend("x-wizard" = {"ask": true, "suggest": "free-network"})
    )]
    pub pods: Ipv4Net,
    /// Addresses of services: from /12 to /28. The first is the API's, the tenth is DNS.
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
    /// Networks such as `10.0.0.0/24`, in order of preference.
    #[schemars(
        schema_with = "field_schemas::cidrs",
        extend("x-wizard" = {"ask": true, "suggest": "host-networks"})
    )]
    pub cidrs: Vec<Ipv4Net>,
}

/// A control-plane component.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Component {
    /// Flags that are added to the static pod's or replace them, without dashes.
    #[schemars(schema_with = "field_schemas::flags")]
    pub extra_args: BTreeMap<String, String>,
}

/// The version of Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kubernetes {
    /// `1.36` or `1.36.3`. The bundle must have this version.
    #[schemars(
        schema_with = "field_schemas::version",
        extend("x-wizard" = {"suggest": "kubernetes-version"})
    )]
    pub version: String,
}

/// The pod network.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Cni {
    /// The CNI plugin.
    pub plugin: CniPlugin,
    /// MTU of pods, in bytes. Default: the plugin detects it.
    #[schemars(range(min = 1280, max = 65535))]
    pub mtu: Option<u32>,
}

/// A pod network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(schema_with = "field_schemas::plugin")]
pub enum CniPlugin {
    /// flannel with VXLAN.
    #[default]
    Flannel,
    /// None: the operator installs one.
    None,
}

/// The kubelet of every node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Kubelet {
    /// Fields that are merged over the `KubeletConfiguration` that Halite writes.
    pub config: Map<String, Value>,
}

/// The container runtime of every node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Containerd {
    /// Set this on hosts whose kernel does not let containerd lower `oom_score_adj`.
    pub restrict_oom_score_adj: bool,
    /// Fields that are merged over containerd's configuration (its TOML as a mapping).
    pub config: Map<String, Value>,
    /// Registries outside the site, by the host in the names of images (`docker.io`,
    /// `registry.corp:5000`). Images that the bundle has still come from the bundle.
    #[schemars(schema_with = "registries")]
    pub registries: BTreeMap<String, ForeignRegistry>,
}

/// The master's own settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Master {
    /// The hosts with a full copy of the master's data, which can take its place: `auto` for two
    /// control planes, or the names of at most two.
    #[schemars(schema_with = "field_schemas::standbys")]
    pub standbys: Standbys,
    /// The finished jobs and orchestrations that the master's store keeps.
    pub jobs: KeptJobs,
}

/// The finished jobs and orchestrations that the master's store keeps. A job is kept while one of
/// the two limits covers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct KeptJobs {
    /// Keep those that ended in the last N days.
    pub keep_days: u32,
    /// Keep the last N, however old.
    pub keep_last: u32,
}

impl Default for KeptJobs {
    fn default() -> Self {
        Self {
            keep_days: 30,
            keep_last: 100,
        }
    }
}

/// kube-proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct KubeProxy {
    /// The kernel interface that it programs.
    pub mode: ProxyMode,
    /// Fields that are merged over the `KubeProxyConfiguration` that Halite writes.
    pub config: Map<String, Value>,
}

/// The kernel interface that kube-proxy programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(schema_with = "field_schemas::proxy_mode")]
pub enum ProxyMode {
    /// nftables (Kubernetes' recommendation since 1.33).
    #[default]
    Nftables,
    /// iptables.
    Iptables,
}

/// Services that run in the cluster in addition to Kubernetes itself. A service that is switched
/// off again is removed from the cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Addons {
    /// metrics-server: the current usage of nodes and pods, for `kubectl top` and for autoscalers.
    #[schemars(extend("x-wizard" = {"ask": true}))]
    pub metrics_server: bool,
    /// local-path storage: volumes in a directory of the node that runs the pod, as the default
    /// storage class.
    #[schemars(extend("x-wizard" = {"ask": true}))]
    pub local_path: bool,
}

/// Settings of the hosts: kernel, swap, firewall, clock, packages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Host {
    /// Kernel parameters by dotted name, in addition to Halite's own. `null`: Halite does not set
    /// its own value.
    #[schemars(schema_with = "field_schemas::sysctls")]
    pub sysctls: BTreeMap<String, Option<String>>,
    /// Kernel modules that Halite loads, now and at boot. `[]` if the kernel has them built in.
    #[schemars(schema_with = "field_schemas::modules")]
    pub kernel_modules: Vec<String>,
    /// Turns swap off, now and at boot.
    pub manage_swap: bool,
    /// Installs firewalld and sets the rules of the host's roles.
    pub manage_firewall: bool,
    /// Installs chrony, which sets the clock from `time.servers`.
    #[schemars(extend("x-wizard" = {"ask": true}))]
    pub manage_time: bool,
    /// Additional packages of the bundle that every host gets.
    #[schemars(schema_with = "field_schemas::packages")]
    pub packages: Vec<String>,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            sysctls: BTreeMap::new(),
            kernel_modules: vec![
                "overlay".to_owned(),
                "br_netfilter".to_owned(),
                "nf_conntrack".to_owned(),
            ],
            manage_swap: true,
            manage_firewall: true,
            manage_time: false,
            packages: Vec::new(),
        }
    }
}

/// The time servers of the hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Time {
    /// Names or addresses of NTP servers (RFC 5905). chrony uses no others.
    #[schemars(
        schema_with = "field_schemas::time_servers",
        extend("x-wizard" = {"ask": true, "when": "host.manageTime"})
    )]
    pub servers: Vec<String>,
}

/// Networks that may connect to the hosts. The ports follow from the roles; only sources are
/// declared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Firewall {
    /// Networks that may reach the ports that are not only for the cluster's own hosts.
    pub sources: Sources,
    /// Networks in which NodePorts answer.
    pub node_ports: NodePorts,
    /// The connections that pods may open to hosts of the cluster.
    pub pods_to_hosts: PodsToHosts,
}

/// The connections that pods may open to hosts of the cluster. A host cannot tell a pod of another
/// host from that host itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(schema_with = "field_schemas::pods_to_hosts")]
pub enum PodsToHosts {
    /// Only to the API, to DNS servers, to NodePorts, and to ports that an addon in use needs.
    #[default]
    Deny,
    /// To all ports that the hosts open to each other.
    Allow,
}

/// Networks that may reach the ports that are not only for the cluster's own hosts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Sources {
    /// The operators' networks: they reach the Kubernetes API and the master. Default: the
    /// control-plane networks.
    #[schemars(schema_with = "field_schemas::optional_cidrs")]
    pub management: Option<Vec<Ipv4Net>>,
    /// The networks of load balancers in front of the Kubernetes API: they reach it. Default: none.
    #[schemars(schema_with = "field_schemas::optional_cidrs")]
    pub load_balancers: Option<Vec<Ipv4Net>>,
}

/// Networks in which NodePorts answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NodePorts {
    /// Networks whose addresses NodePorts listen on. Default: the workload plane's.
    #[schemars(schema_with = "field_schemas::optional_cidrs")]
    pub cidrs: Option<Vec<Ipv4Net>>,
}

/// A secret of the operator, and the hosts that may see it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OwnSecret {
    /// The secret itself. No command displays it; keep the file's mode at 0600.
    #[schemars(with = "String")]
    pub value: SecretText,
    /// Hosts with one of these roles get it.
    #[serde(default)]
    #[schemars(schema_with = "field_schemas::roles_optional")]
    pub roles: Vec<Role>,
    /// Hosts with one of these names get it.
    #[serde(default)]
    #[schemars(schema_with = "field_schemas::names")]
    pub nodes: Vec<String>,
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
        client_identity(secret.value.reveal()).ok()
    }
}

fn registries(generator: &mut SchemaGenerator) -> Schema {
    let one = generator.subschema_for::<ForeignRegistry>();
    json_schema!({"type": "object", "propertyNames": {"format": "registry-host"}, "additionalProperties": one})
}

fn secrets(generator: &mut SchemaGenerator) -> Schema {
    let one = generator.subschema_for::<OwnSecret>();
    json_schema!({"type": "object", "propertyNames": {"format": "secret-name"}, "additionalProperties": one})
}
