//! The operator's own secrets in the cluster document.

use halite_secrets::SecretText;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::field_schemas;
use crate::role::Role;

/// A secret of the operator, and the hosts that may see it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OwnSecret {
    /// The secret itself. No command displays it. Without it, the value is in the encrypted file
    /// `secrets.yaml.age` beside this document (`ctl secrets edit`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub value: Option<SecretText>,
    /// Hosts with one of these roles get it.
    #[serde(default)]
    #[schemars(schema_with = "field_schemas::roles_optional")]
    pub roles: Vec<Role>,
    /// Hosts with one of these names get it; `master` stands for your Kubernetes manifests.
    #[serde(default)]
    #[schemars(schema_with = "field_schemas::names")]
    pub nodes: Vec<String>,
}

impl OwnSecret {
    /// The value; `None` if it is in the encrypted file, and this reader has not decrypted that.
    #[must_use]
    pub fn known(&self) -> Option<&str> {
        self.value.as_ref().map(SecretText::reveal)
    }
}

/// The schema of all secrets, by name.
pub(crate) fn secrets(generator: &mut SchemaGenerator) -> Schema {
    let one = generator.subschema_for::<OwnSecret>();
    json_schema!({"type": "object", "propertyNames": {"format": "secret-name"}, "additionalProperties": one})
}
