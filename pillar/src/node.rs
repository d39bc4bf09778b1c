//! The node document: `kind: Node`, one per host, in `nodes/NAME.yaml`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use halite_names::BundleVersion;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cluster::Metadata;
use crate::field_schemas;
use crate::field_schemas::API_VERSION;
use crate::programs::Kubelet;
use crate::role::{BOOTSTRAP_ROLES, Role};

/// The declaration of one host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Node {
    /// The version of the document's format.
    #[schemars(schema_with = "field_schemas::api_version")]
    pub api_version: String,
    /// The kind of the document.
    #[schemars(schema_with = "field_schemas::kind_node")]
    pub kind: String,
    /// The name of the host, which is also its minion id and its name in Kubernetes.
    pub metadata: Metadata,
    /// The roles of the host: `worker` runs workloads; `control-plane` runs the API server; `etcd`
    /// has a member of etcd; `registry` serves packages and images; `infra` and `frontend` are for
    /// the cluster's own services and for traffic from outside; `bootstrap` is the first host's
    /// alone. `ctl node roles` changes them. A control plane runs your pods only with the role
    /// `worker`, or with `controlPlane.taint: auto` in the cluster document.
    #[schemars(
        schema_with = "field_schemas::roles",
        extend("x-wizard" = {"default": BOOTSTRAP_ROLES})
    )]
    pub roles: Vec<Role>,
    /// The host's address in a control-plane network. Default: chosen from the addresses that the
    /// host reports. Needed if the host has several.
    #[serde(default)]
    #[schemars(
        schema_with = "field_schemas::optional_address",
        extend("x-wizard" = {"ask": true, "suggest": "host-address"})
    )]
    pub address: Option<Ipv4Addr>,
    /// The host's address in a network of the workload plane, which other hosts use for traffic of
    /// pods. Default: chosen from the addresses that the host reports. Needed if the host has
    /// several there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "field_schemas::optional_address")]
    pub workload_address: Option<Ipv4Addr>,
    /// Labels of the Kubernetes node, in addition to the labels of its roles. A label that leaves
    /// the document leaves the node.
    #[serde(default)]
    #[schemars(schema_with = "field_schemas::labels")]
    pub labels: BTreeMap<String, String>,
    /// Taints of the Kubernetes node, instead of the taints of its roles.
    ///
    /// The list is complete: taints that leave it leave the node. `[]`: the node has none, even as
    /// a control plane.
    #[serde(default)]
    pub taints: Option<Vec<Taint>>,
    /// The kubelet of this host: its fields and flags are merged over those of the cluster
    /// document.
    #[serde(default, skip_serializing_if = "Kubelet::is_empty")]
    pub kubelet: Kubelet,
    /// Free data for your own states, which see it as `pillar.custom`; merged over the cluster's.
    #[serde(default)]
    pub custom: Map<String, Value>,
    /// Written by Halite: the addresses that it chose, and the host's permanent values.
    ///
    /// Do not edit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<ResolvedNode>,
}

/// Halite's records about a host: its addresses and the start of its etcd member, which never
/// change, and its bundle in the middle of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolvedNode {
    /// The host's address in a control-plane network.
    #[schemars(schema_with = "field_schemas::address")]
    pub control_plane: Ipv4Addr,
    /// The host's address in a workload-plane network.
    #[schemars(schema_with = "field_schemas::address")]
    pub workload_plane: Ipv4Addr,
    /// The host's etcd member, once it has joined the members of other hosts. The first member has
    /// no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<ResolvedMember>,
    /// `true` if the host's control plane runs, or, without a control plane, if its etcd member has
    /// its vote. It is recorded if no record of a member beside the control plane implies it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joined: bool,
    /// The priority of a control-plane host in the election of the holder of the virtual address.
    /// It does not change when another host joins or leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 254))]
    pub vrrp_priority: Option<u8>,
    /// The version of the host's bundle, while it is not the cluster's. It is recorded once the
    /// host has it, and never before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "field_schemas::optional_bundle_version")]
    pub bundle: Option<BundleVersion>,
    /// The Kubernetes version of that bundle, for example `v1.36.3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "field_schemas::optional_version")]
    pub kubernetes: Option<String>,
}

/// An etcd member that joined a running cluster: the values of its first start, which kubeadm
/// leaves in its manifest (cmd/kubeadm/app/phases/etcd/local.go).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolvedMember {
    /// The member's name.
    #[schemars(schema_with = "field_schemas::subdomain")]
    pub member: String,
    /// The members when it joined, itself included, in the format of `--initial-cluster`.
    #[schemars(length(min = 1))]
    pub initial_cluster: String,
    /// The id of the cluster that it joined, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "field_schemas::optional_etcd_id")]
    pub cluster_id: Option<String>,
    /// The id that the cluster gave it, in hexadecimal. A member that is removed and added again
    /// gets another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "field_schemas::optional_etcd_id")]
    pub member_id: Option<String>,
}

/// A taint of a Kubernetes node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Taint {
    /// The key, in the form of a label's key, for example `example.com/gpu`.
    #[schemars(schema_with = "field_schemas::label_key")]
    pub key: String,
    /// The value, in the form of a label's value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "field_schemas::label_value")]
    pub value: String,
    /// The effect on pods that do not tolerate the taint: no new ones (`NoSchedule`), new ones only
    /// if no other node fits (`PreferNoSchedule`), or none at all (`NoExecute`).
    #[schemars(schema_with = "field_schemas::taint_effect")]
    pub effect: String,
}

impl Node {
    /// A document with only these fields.
    #[must_use]
    pub fn new(name: &str, address: Option<Ipv4Addr>, roles: &[Role]) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "Node".to_owned(),
            metadata: Metadata {
                name: name.to_owned(),
            },
            roles: roles.to_vec(),
            address,
            workload_address: None,
            labels: BTreeMap::new(),
            taints: None,
            kubelet: Kubelet::default(),
            custom: Map::new(),
            resolved: None,
        }
    }

    /// Returns whether the host has a role.
    #[must_use]
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Returns whether the host runs containers, that is, whether it is a Kubernetes node. A host
    /// with only an etcd member is not: the member is a systemd unit.
    #[must_use]
    pub fn runs_containers(&self) -> bool {
        [Role::ControlPlane, Role::Worker, Role::Infra]
            .into_iter()
            .any(|role| self.has(role))
    }

    /// Returns whether the host founds etcd, or has founded it: the first host, unless it has given
    /// up its member since. Then it joins like any other.
    #[must_use]
    pub fn founds_etcd(&self) -> bool {
        let recorded = self.resolved.as_ref().is_some_and(|own| own.joined);
        self.has(Role::Bootstrap) && self.has(Role::Etcd) && !recorded
    }

    /// Returns whether the host is a member of etcd already: the founding host, or a host whose
    /// member is recorded.
    #[must_use]
    pub fn is_member(&self) -> bool {
        let recorded = (self.resolved.as_ref()).is_some_and(|own| own.etcd.is_some());
        self.founds_etcd() || self.has(Role::Etcd) && recorded
    }

    /// Returns whether the host's etcd member has its vote, so that API servers use it. Beside a
    /// control plane the record of the member implies it; elsewhere it has its own record.
    #[must_use]
    pub fn has_vote(&self) -> bool {
        let recorded = self.resolved.as_ref().is_some_and(|own| own.joined);
        self.is_member() && (self.has(Role::ControlPlane) || recorded)
    }

    /// Returns whether the host's control plane has joined the cluster: the first host's, one
    /// beside an etcd member, or one with a record. A host that is only declared, or has only its
    /// addresses, may still be bare.
    #[must_use]
    pub fn serves_api(&self) -> bool {
        let recorded = self.resolved.as_ref().is_some_and(|own| own.joined);
        self.has(Role::ControlPlane) && (self.has(Role::Bootstrap) || self.is_member() || recorded)
    }

    /// The bundle and the Kubernetes version that the document records, if they are not the
    /// cluster's.
    #[must_use]
    pub fn own_release(&self) -> Option<(&BundleVersion, &str)> {
        let resolved = self.resolved.as_ref()?;
        Some((resolved.bundle.as_ref()?, resolved.kubernetes.as_deref()?))
    }

    /// The control-plane address: the recorded one, or else the declared one.
    #[must_use]
    pub fn control_plane(&self) -> Option<Ipv4Addr> {
        self.resolved
            .as_ref()
            .map(|resolved| resolved.control_plane)
            .or(self.address)
    }

    /// Returns whether the node has kubeadm's taint of a control plane by its roles alone.
    #[must_use]
    pub fn has_plane_taint(&self) -> bool {
        self.taints.is_none() && self.has(Role::ControlPlane) && !self.has(Role::Worker)
    }

    /// The taints with which the node registers: the declared ones, or else kubeadm's for a
    /// control-plane node (none on workers). `controlPlane.taint` may remove them afterwards.
    #[must_use]
    pub fn effective_taints(&self) -> Vec<Taint> {
        match &self.taints {
            Some(taints) => taints.clone(),
            None if self.has_plane_taint() => vec![Taint {
                key: "node-role.kubernetes.io/control-plane".to_owned(),
                value: String::new(),
                effect: "NoSchedule".to_owned(),
            }],
            None => Vec::new(),
        }
    }

    /// The document as the text of its file, in short form.
    #[must_use]
    pub fn to_text(&self) -> String {
        let roles: Vec<&str> = self.roles.iter().map(|role| role.as_str()).collect();
        let mut text = format!(
            "apiVersion: {}\nkind: Node\nmetadata:\n  name: {}\nroles: [{}]\n",
            self.api_version,
            quoted(&self.metadata.name),
            roles.join(", ")
        );
        if let Some(address) = self.address {
            text.push_str(&format!("address: {address}\n"));
        }
        if let Some(address) = self.workload_address {
            text.push_str(&format!("workloadAddress: {address}\n"));
        }
        // JSON is YAML: values of any shape stay exact without an emitter.
        let mut further = |key: &str, value: Value| {
            text.push_str(&format!("{key}: {value}\n"));
        };
        if !self.labels.is_empty() {
            further("labels", serde_json::json!(self.labels));
        }
        if let Some(taints) = &self.taints {
            further("taints", serde_json::json!(taints));
        }
        if !self.custom.is_empty() {
            further("custom", Value::Object(self.custom.clone()));
        }
        if let Some(resolved) = &self.resolved {
            text.push_str(&node_block(resolved));
        }
        text
    }
}

/// The block that records a node's chosen values.
#[must_use]
pub fn node_block(resolved: &ResolvedNode) -> String {
    let mut block = String::from(
        "# Chosen by Halite; certificates and etcd name these addresses.\nresolved:\n",
    );
    let _ = writeln!(block, "  controlPlane: {}", resolved.control_plane);
    let _ = writeln!(block, "  workloadPlane: {}", resolved.workload_plane);
    if let Some(etcd) = &resolved.etcd {
        let _ = writeln!(block, "  etcd:");
        let _ = writeln!(block, "    member: {}", quoted(&etcd.member));
        let _ = writeln!(
            block,
            "    initialCluster: {}",
            Value::from(etcd.initial_cluster.as_str())
        );
        let ids = [
            ("clusterId", &etcd.cluster_id),
            ("memberId", &etcd.member_id),
        ];
        for (key, id) in ids {
            // It may look like a number.
            if let Some(id) = id {
                let _ = writeln!(block, "    {key}: {}", Value::from(id.as_str()));
            }
        }
    }
    if resolved.joined {
        let _ = writeln!(block, "  joined: true");
    }
    if let Some(priority) = resolved.vrrp_priority {
        let _ = writeln!(block, "  vrrpPriority: {priority}");
    }
    if let Some(bundle) = &resolved.bundle {
        // A version may look like a number.
        let _ = writeln!(block, "  bundle: {}", Value::from(bundle.as_str()));
    }
    if let Some(kubernetes) = &resolved.kubernetes {
        let _ = writeln!(block, "  kubernetes: {kubernetes}");
    }
    block
}

/// Quotes a name that other programs would read as a number or a boolean.
fn quoted(name: &str) -> String {
    if name.starts_with(|c: char| c.is_ascii_alphabetic())
        && !matches!(
            name,
            "on" | "off" | "yes" | "no" | "y" | "n" | "true" | "false" | "null"
        )
    {
        name.to_owned()
    } else {
        format!("'{name}'")
    }
}
