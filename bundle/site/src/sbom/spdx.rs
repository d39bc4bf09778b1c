//! The subset of SPDX 2.3 in JSON that a bundle's document uses
//! (<https://spdx.github.io/spdx-spec/v2.3/>).

use std::collections::BTreeSet;

use halite_durable::digest;
use serde::{Deserialize, Serialize};

/// The id of the document itself, in relationships.
pub const DOCUMENT: &str = "SPDXRef-DOCUMENT";

/// The value of a field that is unknown.
pub const UNKNOWN: &str = "NOASSERTION";

/// An SPDX document.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    spdx_version: String,
    data_license: String,
    #[serde(rename = "SPDXID")]
    id: String,
    name: String,
    document_namespace: String,
    creation_info: Creation,
    /// Packages.
    pub packages: Vec<Package>,
    /// Files that no package covers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<File>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    has_extracted_licensing_infos: Vec<Licence>,
    /// Relationships between packages and files.
    pub relationships: BTreeSet<Relationship>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Creation {
    created: String,
    creators: Vec<String>,
}

/// A package in SPDX' sense: an image, an operating system's package, a program, a library.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Package {
    /// Its id.
    #[serde(rename = "SPDXID")]
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version_info: String,
    /// Its file in the bundle.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub package_file_name: String,
    download_location: String,
    files_analyzed: bool,
    /// Its digest, if it is one file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checksums: Vec<Checksum>,
    license_concluded: String,
    /// The licence that its author declared.
    pub license_declared: String,
    /// The place of the licence's text, or the reason why there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub license_comments: String,
    copyright_text: String,
    /// Its package URL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub external_refs: Vec<Reference>,
    /// Its purpose.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub primary_package_purpose: String,
    /// A comment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

/// A file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// Its id.
    #[serde(rename = "SPDXID")]
    pub id: String,
    /// Its path in the bundle, with `./` before it.
    pub file_name: String,
    /// Its digests.
    pub checksums: Vec<Checksum>,
    license_concluded: String,
    license_info_in_files: Vec<String>,
    copyright_text: String,
}

/// A digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Checksum {
    /// `SHA1`, `SHA256`.
    pub algorithm: String,
    /// The digest in hexadecimal.
    pub checksum_value: String,
}

/// The identifier of a package in another system.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reference {
    reference_category: String,
    reference_type: String,
    /// The identifier.
    pub reference_locator: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Licence {
    license_id: String,
    name: String,
    extracted_text: String,
}

/// The relationship of one element to another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Relationship {
    /// The element that contains or depends.
    pub spdx_element_id: String,
    /// `CONTAINS`, `DEPENDS_ON` …
    pub relationship_type: String,
    /// The element that is contained or depended on.
    pub related_spdx_element: String,
}

impl Document {
    /// An empty document. [`Document::name_after`] sets its namespace.
    pub fn new(name: &str, created: &str) -> Self {
        Self {
            spdx_version: "SPDX-2.3".to_owned(),
            // The licence of the document itself, which SPDX prescribes.
            data_license: "CC0-1.0".to_owned(),
            id: DOCUMENT.to_owned(),
            name: name.to_owned(),
            document_namespace: String::new(),
            creation_info: Creation {
                created: created.to_owned(),
                creators: vec![format!("Tool: halite-bundle-{}", env!("CARGO_PKG_VERSION"))],
            },
            packages: Vec::new(),
            files: Vec::new(),
            has_extracted_licensing_infos: Vec::new(),
            relationships: BTreeSet::new(),
        }
    }

    /// Adds a relationship between two elements.
    pub fn relate(&mut self, one: &str, kind: &str, other: &str) {
        self.relationships.insert(Relationship {
            spdx_element_id: one.to_owned(),
            relationship_type: kind.to_owned(),
            related_spdx_element: other.to_owned(),
        });
    }

    /// Adds the licences for which SPDX has no name, each with id, name and text.
    pub fn licences(&mut self, others: impl IntoIterator<Item = (String, String, String)>) {
        self.has_extracted_licensing_infos = others
            .into_iter()
            .map(|(license_id, name, extracted_text)| Licence {
                license_id,
                name,
                extracted_text,
            })
            .collect();
    }

    /// Sets the unique namespace of the document, from the digest of its content.
    pub fn name_after(&mut self, version: &str, digest: &str) {
        self.document_namespace = format!("https://halite.invalid/sbom/{version}/{digest}");
    }
}

impl Package {
    /// A package with only a name and a version. `key` distinguishes it from all others of its
    /// kind.
    pub fn new(kind: &str, key: &str, name: &str, version: &str) -> Self {
        Self {
            id: id(kind, key),
            name: name.to_owned(),
            version_info: version.to_owned(),
            package_file_name: String::new(),
            download_location: UNKNOWN.to_owned(),
            files_analyzed: false,
            checksums: Vec::new(),
            license_concluded: UNKNOWN.to_owned(),
            license_declared: UNKNOWN.to_owned(),
            license_comments: String::new(),
            copyright_text: UNKNOWN.to_owned(),
            external_refs: Vec::new(),
            primary_package_purpose: String::new(),
            comment: String::new(),
        }
    }

    /// Sets the package URL.
    pub fn purl(mut self, purl: String) -> Self {
        self.external_refs.push(Reference {
            reference_category: "PACKAGE-MANAGER".to_owned(),
            reference_type: "purl".to_owned(),
            reference_locator: purl,
        });
        self
    }

    /// Sets the SHA-256 of its file; does nothing if it is empty.
    pub fn sha256(mut self, sha256: &str) -> Self {
        if !sha256.is_empty() {
            self.checksums.push(checksum("SHA256", sha256));
        }
        self
    }

    /// Sets the purpose.
    pub fn purpose(mut self, purpose: &str) -> Self {
        purpose.clone_into(&mut self.primary_package_purpose);
        self
    }

    /// Its SHA-256; `None` if it has no digest.
    pub fn digest(&self) -> Option<&str> {
        let found = self
            .checksums
            .iter()
            .find(|checksum| checksum.algorithm == "SHA256");
        found.map(|checksum| checksum.checksum_value.as_str())
    }
}

impl File {
    /// A file of the bundle. SPDX also requires SHA-1.
    pub fn new(path: &str, sha1: &str, sha256: &str) -> Self {
        Self {
            id: id("File", path),
            file_name: format!("./{path}"),
            checksums: vec![checksum("SHA1", sha1), checksum("SHA256", sha256)],
            license_concluded: UNKNOWN.to_owned(),
            license_info_in_files: vec![UNKNOWN.to_owned()],
            copyright_text: UNKNOWN.to_owned(),
        }
    }
}

fn checksum(algorithm: &str, value: &str) -> Checksum {
    Checksum {
        algorithm: algorithm.to_owned(),
        checksum_value: value.to_owned(),
    }
}

/// A readable id that is unique in the document.
pub fn id(kind: &str, key: &str) -> String {
    let plain: String = key
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        })
        .collect();
    let short: String = plain.chars().take(80).collect();
    format!(
        "SPDXRef-{kind}-{}-{}",
        short.trim_matches('-'),
        &digest::sha256(key.as_bytes())[..8]
    )
}
