//! Hardening of the API server, as declared: audit, encryption at rest, authentication, admission.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::field_schemas;

/// The audit log of the API server, in `/var/log/kubernetes/audit/audit.log` of each control plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ApiAudit {
    /// The fields of the `Policy` (`audit.k8s.io/v1`): `rules`, `omitStages`, `omitManagedFields`.
    /// Default: Halite's policy, which records who wrote what and when, but no content of Secrets
    /// and ConfigMaps.
    pub policy: Map<String, Value>,
    /// The number of days for which a file is kept.
    #[schemars(range(min = 1, max = 36500))]
    pub max_age: u32,
    /// The number of full files that are kept.
    #[schemars(range(min = 1, max = 10000))]
    pub max_backups: u32,
    /// The size, in megabytes, at which a new file begins.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_size: u32,
}

impl Default for ApiAudit {
    fn default() -> Self {
        Self {
            policy: Map::new(),
            max_age: 30,
            max_backups: 10,
            max_size: 100,
        }
    }
}

/// Encryption of objects in etcd with a key that the master makes and keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ApiEncryption {
    /// The resources that are written encrypted: `secrets`, `configmaps`. Encrypted objects stay
    /// readable when their resource leaves the list.
    #[schemars(schema_with = "encrypted_resources")]
    pub resources: Vec<String>,
}

/// The resources that can be encrypted, with the kinds of their objects.
pub const ENCRYPTED_KINDS: [(&str, &str); 2] = [("secrets", "Secret"), ("configmaps", "ConfigMap")];

impl Default for ApiEncryption {
    fn default() -> Self {
        Self {
            resources: vec!["secrets".to_owned()],
        }
    }
}

fn encrypted_resources(_: &mut SchemaGenerator) -> Schema {
    let names = ENCRYPTED_KINDS.map(|(resource, _)| resource);
    json_schema!({"type": "array", "items": {"type": "string", "enum": names}})
}

/// Structured authentication: the fields of the `AuthenticationConfiguration`
/// (`apiserver.config.k8s.io/v1`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ApiAuthentication {
    /// The issuers of tokens (OIDC) that the API server accepts, with their claims.
    #[schemars(schema_with = "free_list")]
    pub jwt: Vec<Map<String, Value>>,
    /// Anonymous requests. With `conditions`, they are only allowed for these paths, to which
    /// `/livez` and `/readyz` must belong. Default: they are allowed, as RBAC permits.
    #[schemars(schema_with = "free_mapping")]
    pub anonymous: Option<Map<String, Value>>,
}

/// Admission to the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ApiAdmission {
    /// The Pod Security Standard of namespaces without labels of their own. Default: none, as in
    /// Kubernetes.
    pub pod_security: Option<PodSecurity>,
    /// The configurations of further admission plugins.
    pub plugins: Vec<AdmissionPlugin>,
    /// Admission plugins that are enabled in addition to Kubernetes' defaults and
    /// `NodeRestriction`.
    #[schemars(schema_with = "plugin_names")]
    pub enable: Vec<String>,
    /// Admission plugins of Kubernetes' defaults that are disabled.
    #[schemars(schema_with = "plugin_names")]
    pub disable: Vec<String>,
}

/// The Pod Security Standard of namespaces without labels of their own
/// (`pod-security.kubernetes.io`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PodSecurity {
    /// The standard whose violations are refused.
    pub enforce: PodSecurityLevel,
    /// The standard whose violations are noted in the audit log.
    pub audit: PodSecurityLevel,
    /// The standard whose violations give the client a warning.
    pub warn: PodSecurityLevel,
    /// The version of the standards: `latest`, or a minor release such as `v1.36`.
    pub version: String,
    /// Namespaces to which no standard applies, in addition to Halite's own: `kube-system`,
    /// `kube-flannel` and `local-path-storage`.
    #[schemars(schema_with = "field_schemas::names")]
    pub exempt_namespaces: Vec<String>,
}

impl Default for PodSecurity {
    fn default() -> Self {
        Self {
            enforce: PodSecurityLevel::Restricted,
            audit: PodSecurityLevel::Restricted,
            warn: PodSecurityLevel::Restricted,
            version: "latest".to_owned(),
            exempt_namespaces: Vec::new(),
        }
    }
}

/// A Pod Security Standard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(schema_with = "pod_security_level")]
pub enum PodSecurityLevel {
    /// No restriction.
    Privileged,
    /// No known escalation of privileges.
    Baseline,
    /// Current best practice for pods.
    #[default]
    Restricted,
}

/// The configuration of an admission plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdmissionPlugin {
    /// The plugin's name, for example `EventRateLimit`.
    pub name: String,
    /// Its configuration, with `apiVersion` and `kind`.
    pub configuration: Map<String, Value>,
}

fn pod_security_level(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["privileged", "baseline", "restricted"]})
}

fn plugin_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "minLength": 1}})
}

fn free_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "object", "additionalProperties": true}})
}

fn free_mapping(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["object", "null"], "additionalProperties": true})
}
