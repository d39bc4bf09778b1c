//! The scopes of kinds: namespaced or not.

use serde_json::Value;

/// Kinds of Kubernetes itself that have no namespace.
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

/// The kinds that a chart defines: group, kind, and `true` if the kind is namespaced.
#[derive(Debug, Default)]
pub struct Scopes {
    defined: Vec<(String, String, bool)>,
}

impl Scopes {
    /// Records the kind that a definition defines.
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

    /// Returns `true` if an object has a namespace. For a kind that is defined elsewhere, the name
    /// decides: `ClusterIssuer` is not namespaced, `Issuer` and `Cluster` are.
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
