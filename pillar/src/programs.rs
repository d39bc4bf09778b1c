//! The sections of the cluster document about the programs of each node, and about services in the
//! cluster.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::field_schemas;
use crate::flags::Flags;
use crate::mirrors::ForeignRegistry;

/// The pod network.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Cni {
    /// The pod network: `flannel` with VXLAN, or `none` if you bring one yourself. flannel does not
    /// enforce NetworkPolicies.
    pub plugin: CniPlugin,
    /// The MTU of pods, in bytes. Default: flannel detects it. Refused with `plugin: none`.
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
    /// Fields that are merged over the `KubeletConfiguration` that Halite writes, for example
    /// `maxPods`. Fields that follow from others in this document are refused.
    pub config: Map<String, Value>,
    /// Flags of the kubelet, without dashes, for what its configuration does not have, for example
    /// `image-credential-provider-config`. A list gives a flag several times.
    #[schemars(schema_with = "field_schemas::flags")]
    pub extra_args: Flags,
}

impl Kubelet {
    /// Returns whether nothing is declared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.config.is_empty() && self.extra_args.is_empty()
    }
}

/// The container runtime of every node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Containerd {
    /// Lets containerd work where the kernel does not allow it to lower `oom_score_adj`, for
    /// example if the host is itself a container.
    pub restrict_oom_score_adj: bool,
    /// Fields that are merged over containerd's configuration (its TOML as a mapping).
    pub config: Map<String, Value>,
    /// Registries outside the site, by the host in the names of images (`docker.io`,
    /// `registry.corp:5000`). Images that the bundle has still come from the bundle.
    #[schemars(schema_with = "registries")]
    pub registries: BTreeMap<String, ForeignRegistry>,
    /// Limits of the processes in containers.
    pub limits: ContainerLimits,
}

/// Limits of the processes in containers, which they inherit from containerd. Containers that run
/// keep theirs until they are started again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ContainerLimits {
    /// The number of open files. Default: systemd's, which is 1024 for programs that do not raise
    /// it themselves.
    #[schemars(range(min = 1024, max = 1_048_576))]
    pub nofile: Option<u32>,
}

impl ContainerLimits {
    /// Returns whether nothing is declared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// kube-proxy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct KubeProxy {
    /// The kernel interface that kube-proxy programs: `nftables` (kernel 5.13 or newer), or
    /// `iptables`.
    pub mode: ProxyMode,
    /// Fields that are merged over the `KubeProxyConfiguration` that Halite writes. Fields that
    /// follow from others in this document are refused.
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
    /// storage class. Such a volume is lost with its node.
    #[schemars(extend("x-wizard" = {"ask": true}))]
    pub local_path: bool,
}

fn registries(generator: &mut SchemaGenerator) -> Schema {
    let one = generator.subschema_for::<ForeignRegistry>();
    json_schema!({"type": "object", "propertyNames": {"format": "registry-host"}, "additionalProperties": one})
}
