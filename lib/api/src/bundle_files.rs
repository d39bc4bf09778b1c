//! Answers about a bundle in a directory or an image, whether a site has it or not.

use std::collections::BTreeMap;

use halite_names::BundleVersion;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::BundleImage;
use crate::document::document;

/// The content of a bundle (`ctl bundle show`). Nothing of it is verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleContent {
    /// Its version.
    #[schemars(with = "String")]
    pub version: BundleVersion,
    /// The time at which its recipe was resolved.
    pub built: String,
    /// Its Kubernetes.
    pub kubernetes: String,
    /// The components with versions of their own, by name.
    pub components: BTreeMap<String, String>,
    /// The images, by name.
    pub images: Vec<BundleImage>,
    /// The packages for Debian, by name.
    pub packages: Vec<BundlePackage>,
    /// The packages for RPM distributions, by name; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rpms: Vec<BundlePackage>,
    /// The charts, by name, with their versions.
    pub charts: BTreeMap<String, String>,
    /// The number of its files.
    pub files: u64,
    /// Their size in bytes.
    pub size: u64,
}

document!(BundleContent);

/// A package of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundlePackage {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The size of its file in bytes.
    pub size: u64,
}

/// The outcome of a verification (`ctl bundle verify`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifiedBundle {
    /// `true` if nothing has changed and nothing is missing.
    pub sound: bool,
    /// The bundle's version. Only of an image: its signatures cover it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The number of files that were read.
    pub files: u64,
    /// Their size in bytes. Absent for an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// All damage.
    pub problems: Vec<BundleProblem>,
    /// The trusted keys that signed it. Absent if no signature was checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signers: Option<Vec<BundleSigner>>,
    /// Signatures that do not count, each with the reason; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
    /// `true` if it was checked that it contains all that its states can request. Absent for an
    /// image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completeness_checked: Option<bool>,
    /// The bundles between which it is a delta. Absent if it is a whole bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta: Option<BundleDelta>,
}

document!(VerifiedBundle);

/// A damage to a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleProblem {
    /// The damage, in one sentence.
    pub message: String,
    /// The file. Absent if it is about none, or about several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The first damaged byte of the image. Absent for a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The size of the damaged range in bytes. Absent for a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// A key that signed a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleSigner {
    /// Its id.
    pub key: String,
    /// Its name in the directory of trusted keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The bundles between which a delta is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleDelta {
    /// The bundle that a site must have.
    pub old: DeltaSide,
    /// The bundle that the site has afterwards.
    pub new: DeltaSide,
}

/// A bundle at one end of a delta.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeltaSide {
    /// Its version.
    #[schemars(with = "String")]
    pub version: BundleVersion,
    /// Its Kubernetes.
    pub kubernetes: String,
    /// The time at which its recipe was resolved.
    pub built: String,
    /// The SHA-256 of its manifest.
    pub manifest_sha256: String,
}

/// A bundle that was packed into an image (`ctl bundle pack`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackedBundle {
    /// The image.
    pub image: String,
    /// Its size in bytes.
    pub size: u64,
    /// The bundle's version.
    #[schemars(with = "String")]
    pub version: BundleVersion,
    /// The ids of the keys that signed it.
    pub signers: Vec<String>,
}

document!(PackedBundle);

/// A delta that was written (`ctl bundle export`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedDelta {
    /// The image.
    pub image: String,
    /// Its size in bytes.
    pub size: u64,
    /// The bundle that a site must have.
    pub old: DeltaSide,
    /// The bundle that the site has afterwards.
    pub new: DeltaSide,
    /// The ids of the keys that signed it.
    pub signers: Vec<String>,
}

document!(ExportedDelta);

/// A new key pair that signs bundles (`ctl bundle key`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewSigningKey {
    /// Its id.
    pub key: String,
    /// The file that signs.
    pub secret: String,
    /// The file for the sites.
    pub public: String,
    /// The public key in one line.
    pub line: String,
}

document!(NewSigningKey);
