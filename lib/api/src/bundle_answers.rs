//! Answers about one bundle of the site.

use halite_names::BundleVersion;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::document;

/// A bundle that was added to the site (`ctl bundle add`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddedBundle {
    /// Its version.
    #[schemars(with = "String")]
    pub version: BundleVersion,
    /// Its path.
    pub path: String,
    /// The path to which its path links. Absent if it is not a link, or with `--test`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<String>,
    /// `true` if it was added or repaired; `false` if the site already had it, or with `--test`.
    pub changed: bool,
    /// `true` if it would be added or repaired. Absent without `--test`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_change: Option<bool>,
}

document!(AddedBundle);

/// A bundle that was copied from another host (`ctl bundle copy`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CopiedBundle {
    /// Its version.
    #[schemars(with = "String")]
    pub version: BundleVersion,
    /// Its path.
    pub path: String,
    /// `true` if something was copied.
    pub changed: bool,
    /// The bytes that came over the network. Absent with `--check`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetched: Option<u64>,
    /// The bytes that another bundle on this host had. Absent as `fetched`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reused: Option<u64>,
}

document!(CopiedBundle);

/// A bundle that was removed from the site (`ctl bundle remove`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemovedBundle {
    /// Its version.
    #[schemars(with = "String")]
    pub version: BundleVersion,
    /// `true` if it was removed; `false` with `--test`.
    pub changed: bool,
    /// Its path. Absent with `--test`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The path to which its path linked, and which stays. Absent if it was not a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<String>,
}

document!(RemovedBundle);

/// The bundle that the cluster is to use (`ctl bundle use`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsedBundle {
    /// Its version.
    #[schemars(with = "String")]
    pub version: BundleVersion,
    /// The bundle that was in use. Absent if the cluster document names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub before: Option<BundleVersion>,
    /// `true` if the choice was recorded; `false` with `--test`, or if the bundle is already in
    /// use.
    pub changed: bool,
    /// `true` if its Halite differs from that of the bundle in use.
    pub other_halite: bool,
    /// The changes between the two bundles. Absent if the bundle in use is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<BundleDiff>,
}

document!(UsedBundle);

/// The changes between two bundles (`ctl bundle diff`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleDiff {
    /// The versions of the bundle and of Kubernetes.
    pub versions: Vec<BundleChange>,
    /// The components, by name, with their versions.
    pub components: Vec<BundleChange>,
    /// The images, by component, with their references.
    pub images: Vec<BundleChange>,
    /// The packages, by name, with their versions.
    pub packages: Vec<BundleChange>,
    /// The charts, by name, with their versions.
    pub charts: Vec<BundleChange>,
    /// The states, by path, with their digests.
    pub states: Vec<BundleChange>,
    /// The size of the old bundle in bytes.
    pub old_size: u64,
    /// The size of the new bundle in bytes.
    pub new_size: u64,
    /// The size of the contents that only the new bundle has, in bytes.
    pub added_size: u64,
}

document!(BundleDiff);

/// An item that differs between two bundles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleChange {
    /// Its name.
    pub name: String,
    /// Its value in the old bundle. Absent if it is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// Its value in the new bundle. Absent if it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
}

/// The problems for which a bundle was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedBundle {
    /// The problems, one sentence each.
    pub problems: Vec<String>,
    /// Always `false`: nothing was changed.
    pub changed: bool,
}

document!(RefusedBundle);
