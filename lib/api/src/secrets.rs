//! The operator's secrets, without their values.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::document;

/// The secrets that the cluster document names (`ctl secrets list`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretList {
    /// The secrets, by name.
    pub secrets: Vec<NamedSecret>,
}

document!(SecretList);

/// A secret, without its value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamedSecret {
    /// Its name.
    pub name: String,
    /// Hosts with one of these roles get it.
    pub roles: Vec<String>,
    /// These hosts get it; `master` stands for Kubernetes manifests.
    pub nodes: Vec<String>,
    /// The fields of the cluster document that use it.
    pub used_by: Vec<String>,
    /// The files that have its value, with the line. In an encrypted file it has no line.
    pub places: Vec<String>,
    /// `true` if the value is in the encrypted file only.
    pub encrypted: bool,
}

/// Those who can decrypt the values of secrets (`ctl secrets recipients`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRecipients {
    /// The recipients to which the present file is encrypted.
    pub recipients: Vec<RecipientOfSecrets>,
    /// The standbys of the master that cannot decrypt it yet.
    pub missing: Vec<String>,
    /// `true` if the next write of the file changes the recipients.
    pub outdated: bool,
    /// `true` if the file exists.
    pub exists: bool,
    /// The reason why the identity of this host does not decrypt the file, with the remedy. Absent
    /// if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

document!(SecretRecipients);

/// A recipient of the encrypted file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecipientOfSecrets {
    /// The host that has the identity. Absent for a recovery recipient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The public key.
    pub recipient: String,
}
