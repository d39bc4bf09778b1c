//! The cluster document: `kind: Cluster`, one per cluster, in `cluster.yaml`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use halite_secrets::SecretText;
use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::formats;
use crate::mirrors::ForeignRegistry;
use crate::proxy::Proxy;
use crate::registry::SiteRegistry;
use crate::trust::Trust;

/// The version of both documents that this build reads.
pub const API_VERSION: &str = "halite/v1";

/// What a cluster is to be. Everything that is left out has a default that fits most sites.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cluster {
    /// Always `halite/v1`.
    #[schemars(schema_with = "formats::api_version")]
    pub api_version: String,
    /// Always `Cluster`.
    #[schemars(schema_with = "formats::kind_cluster")]
    pub kind: String,
    /// The cluster's name.
    pub metadata: Metadata,
    /// Domain of Kubernetes' services.
    #[serde(default = "default_domain")]
    #[schemars(schema_with = "formats::subdomain")]
    pub dns_domain: String,
    /// The networks of hosts, pods and services.
    pub networks: Networks,
    /// How the Kubernetes API is reached, and what is passed to its server.
    #[serde(default)]
    pub api_server: ApiServer,
    /// The Kubernetes controller manager.
    #[serde(default)]
    pub controller_manager: Component,
    /// The Kubernetes scheduler.
    #[serde(default)]
    pub scheduler: Component,
    /// etcd.
    #[serde(default)]
    pub etcd: Component,
    /// Which Kubernetes.
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
    /// What runs in the cluster besides Kubernetes itself.
    #[serde(default)]
    pub addons: Addons,
    /// Charts of the bundle that are installed, by name.
    #[serde(default)]
    #[schemars(schema_with = "formats::names")]
    pub charts: Vec<String>,
    /// A registry of the site's own, which images can be pushed to.
    #[serde(default)]
    pub site_registry: SiteRegistry,
    /// Certificates that every host trusts, besides those of its distribution.
    #[serde(default)]
    pub trust: Trust,
    /// The proxy through which containerd reaches registries outside of the site.
    #[serde(default)]
    pub proxy: Proxy,
    /// What is done to the hosts themselves.
    #[serde(default)]
    pub host: Host,
    /// Where hosts get the time from; see `host.manageTime`.
    #[serde(default)]
    pub time: Time,
    /// Who may reach what.
    #[serde(default)]
    pub firewall: Firewall,
    /// The master's own settings.
    #[serde(default)]
    pub master: Master,
    /// The operator's own secrets, by name; templates see each as `pillar.halite.secrets.NAME`, but
    /// only for the hosts named.
    #[serde(default)]
    #[schemars(schema_with = "formats::secrets")]
    pub secrets: BTreeMap<String, OwnSecret>,
    /// Anything that the operator's own states read, as `pillar.custom`.
    #[serde(default)]
    pub custom: Map<String, Value>,
    /// Written by Halite: what was chosen when the cluster was made, so that a repair next year
    /// chooses the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<ResolvedCluster>,
}

fn default_domain() -> String {
    "cluster.local".to_owned()
}

/// Names a cluster or a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// Lower-case letters, digits and `-` (RFC 1123); a node's name may also have dots.
    #[schemars(schema_with = "formats::subdomain")]
    pub name: String,
}

/// The networks of hosts, pods and services. None may overlap another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Networks {
    /// Networks in which hosts talk to the API, to etcd and to the master. Tried in order for an
    /// address of a host.
    pub control_plane: HostNetworks,
    /// Networks of the pods' traffic between hosts, and of NodePorts. Default: those of the control
    /// plane.
    #[serde(default)]
    pub workload_plane: Option<HostNetworks>,
    /// Addresses of pods; each node gets a /24 of it.
    #[serde(default = "default_pods")]
    #[schemars(schema_with = "formats::cidr")]
    pub pods: Ipv4Net,
    /// Addresses of services: from /12 to /28. The first is the API's, the tenth is DNS.
    #[serde(default = "default_services")]
    #[schemars(schema_with = "formats::cidr")]
    pub services: Ipv4Net,
}

/// 10.233.0.0/16.
pub(crate) fn default_pods() -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(10, 233, 0, 0), 16)
}

/// 10.96.0.0/12, as kubeadm has it.
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
    #[schemars(schema_with = "formats::cidrs")]
    pub cidrs: Vec<Ipv4Net>,
}

/// How the Kubernetes API is reached, and what is passed to its server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ApiServer {
    /// Name of the API in certificates, kubeconfigs and hosts entries. Default:
    /// `api.CLUSTER.internal`.
    #[schemars(schema_with = "formats::optional_subdomain")]
    pub endpoint: Option<String>,
    /// A virtual address that the API is reached at; inside a control-plane network, and nobody's
    /// own.
    #[schemars(schema_with = "formats::optional_address")]
    pub vip: Option<Ipv4Addr>,
    /// Whether Halite keeps the VIP with keepalived (default: true when there is a `vip`); `false`:
    /// somebody else does.
    pub keepalived: Option<bool>,
    /// Further names and addresses in the API server's certificate.
    #[serde(rename = "certSANs")]
    #[schemars(schema_with = "formats::sans")]
    pub cert_sans: Vec<String>,
    /// Flags added to, or replacing, those of the static pod, without dashes: `audit-log-maxage:
    /// 30`.
    #[schemars(schema_with = "formats::flags")]
    pub extra_args: BTreeMap<String, String>,
}

impl ApiServer {
    /// Whether this cluster's own keepalived holds the VIP.
    #[must_use]
    pub fn keeps_vip(&self) -> bool {
        self.vip.is_some() && self.keepalived.unwrap_or(true)
    }
}

/// A control-plane component.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Component {
    /// Flags added to, or replacing, those of the static pod, without dashes.
    #[schemars(schema_with = "formats::flags")]
    pub extra_args: BTreeMap<String, String>,
}

/// Which Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kubernetes {
    /// `1.36` or `1.36.3`; the bundle must have it.
    #[schemars(schema_with = "formats::version")]
    pub version: String,
}

/// The pod network.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Cni {
    /// Which plugin.
    pub plugin: CniPlugin,
    /// MTU of pods, in bytes. Default: what the plugin finds out.
    #[schemars(range(min = 1280, max = 65535))]
    pub mtu: Option<u32>,
}

/// A pod network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(schema_with = "formats::plugin")]
pub enum CniPlugin {
    /// flannel with VXLAN.
    #[default]
    Flannel,
    /// None: the operator brings one.
    None,
}

/// The kubelet of every node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Kubelet {
    /// Laid over the `KubeletConfiguration` that Halite writes.
    pub config: Map<String, Value>,
}

/// The container runtime of every node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Containerd {
    /// For hosts whose kernel does not let containerd lower `oom_score_adj`.
    pub restrict_oom_score_adj: bool,
    /// Laid over containerd's configuration (its TOML as a mapping).
    pub config: Map<String, Value>,
    /// Registries outside of the site, by the host in the names of images (`docker.io`,
    /// `registry.corp:5000`). What the bundle has comes from the bundle all the same.
    #[schemars(schema_with = "formats::registries")]
    pub registries: BTreeMap<String, ForeignRegistry>,
}

/// The master's own settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Master {
    /// Which finished jobs and orchestrations its store keeps.
    pub jobs: KeptJobs,
}

/// Which finished jobs and orchestrations the master's store keeps: what one of the two says is
/// kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct KeptJobs {
    /// Those that ended in the last so many days.
    pub keep_days: u32,
    /// The last so many, however old.
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
    /// How it programs the kernel.
    pub mode: ProxyMode,
    /// Laid over the `KubeProxyConfiguration` that Halite writes.
    pub config: Map<String, Value>,
}

/// How kube-proxy programs the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(schema_with = "formats::proxy_mode")]
pub enum ProxyMode {
    /// nftables (Kubernetes' recommendation since 1.33).
    #[default]
    Nftables,
    /// iptables.
    Iptables,
}

/// What runs in the cluster besides Kubernetes itself. What is switched off again is removed from
/// the cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Addons {
    /// metrics-server: what nodes and pods use just now, for `kubectl top` and for autoscalers.
    pub metrics_server: bool,
    /// local-path storage: volumes in a directory of the node that runs the pod, as the default
    /// storage class.
    pub local_path: bool,
}

/// What is done to the hosts themselves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Host {
    /// Kernel parameters by dotted name, added to Halite's own; null leaves one of Halite's own
    /// alone.
    #[schemars(schema_with = "formats::sysctls")]
    pub sysctls: BTreeMap<String, Option<String>>,
    /// Kernel modules that Halite loads, now and at boot. `[]` where the kernel has them built in.
    #[schemars(schema_with = "formats::modules")]
    pub kernel_modules: Vec<String>,
    /// Whether swap is turned off, now and for the next boot.
    pub manage_swap: bool,
    /// Whether firewalld is installed and given the roles' rules.
    pub manage_firewall: bool,
    /// Whether chrony is installed and keeps the clock by `time.servers`.
    pub manage_time: bool,
    /// Further packages of the bundle that every host gets.
    #[schemars(schema_with = "formats::packages")]
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

/// Where hosts get the time from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Time {
    /// Names or addresses of NTP servers (RFC 5905). Nobody else is asked.
    #[schemars(schema_with = "formats::time_servers")]
    pub servers: Vec<String>,
}

/// Who may reach what. Ports follow from roles; only sources are declared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Firewall {
    /// Networks that may reach what is not for the cluster's own hosts alone.
    pub sources: Sources,
    /// Where NodePorts answer.
    pub node_ports: NodePorts,
}

/// Networks that may reach what is not for the cluster's own hosts alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Sources {
    /// Networks that operators work from: they reach the Kubernetes API and the master. Default:
    /// the control-plane networks.
    #[schemars(schema_with = "formats::optional_cidrs")]
    pub management: Option<Vec<Ipv4Net>>,
}

/// Where NodePorts answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NodePorts {
    /// Networks whose addresses NodePorts listen on. Default: the workload plane's.
    #[schemars(schema_with = "formats::optional_cidrs")]
    pub cidrs: Option<Vec<Ipv4Net>>,
}

/// A secret of the operator, and who may see it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OwnSecret {
    /// The secret itself. Never shown again; keep the file's mode at 0600.
    #[schemars(with = "String")]
    pub value: SecretText,
    /// Hosts with one of these roles get it.
    #[serde(default)]
    #[schemars(schema_with = "formats::roles_optional")]
    pub roles: Vec<crate::node::Role>,
    /// Hosts with one of these names get it.
    #[serde(default)]
    #[schemars(schema_with = "formats::names")]
    pub nodes: Vec<String>,
}

/// What was chosen when the cluster was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolvedCluster {
    /// The Kubernetes version, for example `v1.36.3`.
    #[schemars(schema_with = "formats::version")]
    pub kubernetes: String,
    /// The version of the bundle in use, one of those that stand on the site. `ctl bundle use`
    /// changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
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

    /// The Kubernetes version that counts: the recorded one, else the declared one.
    #[must_use]
    pub fn kubernetes_version(&self) -> &str {
        self.resolved
            .as_ref()
            .map_or(&self.kubernetes.version, |resolved| &resolved.kubernetes)
    }
}
