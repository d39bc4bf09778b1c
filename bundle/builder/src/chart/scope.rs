//! Which objects have a namespace.

use serde_json::Value;

/// Kinds of Kubernetes itself that have none.
const OF_THE_CLUSTER: &[&str] = &[
    "APIService",
    "CSIDriver",
    "CSINode",
    "CertificateSigningRequest",
    "ClusterRole",
    "ClusterRoleBinding",
    "ClusterTrustBundle",
    "CustomResourceDefinition",
    "DeviceClass",
    "DeviceTaintRule",
    "FlowSchema",
    "IPAddress",
    "IngressClass",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PriorityClass",
    "PriorityLevelConfiguration",
    "ResourceSlice",
    "RuntimeClass",
    "ServiceCIDR",
    "StorageClass",
    "StorageVersionMigration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
    "VolumeAttachment",
    "VolumeAttributesClass",
];

/// What the definitions in a chart say of their own kinds: group, kind, and whether it has a
/// namespace.
#[derive(Debug, Default)]
pub struct Scopes {
    defined: Vec<(String, String, bool)>,
}

impl Scopes {
    /// Remembers what a definition says.
    pub fn learn(&mut self, object: &Value) {
        if object["kind"] == "CustomResourceDefinition" {
            let spec = &object["spec"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let namespaced = spec["scope"] == "Namespaced";
            self.defined.push((
                text(&spec["group"]),
                text(&spec["names"]["kind"]),
                namespaced,
            ));
        }
    }

    /// Whether an object has a namespace. Of a kind that is defined elsewhere, its name has to say
    /// it: `ClusterIssuer` has none, an `Issuer` and a `Cluster` have one.
    pub fn is_namespaced(&self, object: &Value) -> bool {
        let kind = object["kind"].as_str().unwrap_or_default();
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let defined = self
            .defined
            .iter()
            .find(|(g, k, _)| g == group && k == kind);
        if let Some((_, _, namespaced)) = defined {
            return *namespaced;
        }
        if !group.contains('.') || group.ends_with(".k8s.io") {
            return !OF_THE_CLUSTER.contains(&kind);
        }
        kind.strip_prefix("Cluster").is_none_or(str::is_empty)
    }
}
