//! The statement: the text that a signature covers.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::damage::SealDamage;

/// The only format of the statement so far.
const FORMAT: u32 = 1;

/// The description of an image by its builder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The bundle's name.
    pub name: String,
    /// The bundle's version.
    pub version: String,
    /// The image's volume id.
    pub volume: String,
    /// The time at which its content was resolved.
    pub built: Timestamp,
    /// The file of the image whose SHA-256 is stated: the manifest, or a delta's description.
    pub stated: String,
}

/// The statement that the signatures of an image cover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Statement {
    /// The statement's format, 1.
    pub format: u32,
    /// The bundle's name.
    pub name: String,
    /// The bundle's version.
    pub version: String,
    /// The image's volume id.
    pub volume: String,
    /// The time at which its content was resolved.
    pub built: Timestamp,
    /// The image's size in bytes, without the trailer.
    pub size: u64,
    /// The SHA-256 of the whole image, without the trailer.
    pub sha256: String,
    /// The SHA-256 of the map.
    pub map_sha256: String,
    /// The SHA-256 of the manifest in the image; for a delta, of its description.
    pub manifest_sha256: String,
}

/// The format, parsed before the rest because another format has other fields.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

impl Statement {
    /// Makes the statement of an image.
    pub(super) fn new(
        facts: &Facts,
        size: u64,
        sha256: String,
        map: String,
        manifest: String,
    ) -> Self {
        Self {
            format: FORMAT,
            name: facts.name.clone(),
            version: facts.version.clone(),
            volume: facts.volume.clone(),
            built: facts.built,
            size,
            sha256,
            map_sha256: map,
            manifest_sha256: manifest,
        }
    }

    /// The bytes that are signed.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads a statement.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, SealDamage> {
        let Format { format } = serde_json::from_slice(bytes).map_err(SealDamage::Statement)?;
        if format != FORMAT {
            return Err(SealDamage::Format {
                what: "statement",
                found: format,
                known: FORMAT,
            });
        }
        serde_json::from_slice(bytes).map_err(SealDamage::Statement)
    }

    /// The comment that is signed with the statement and displayed by `minisign`.
    pub(super) fn comment(&self) -> String {
        format!(
            "timestamp:{}\tname:{}\tversion:{}\tsize:{}\tsha256:{}",
            self.built.as_second(),
            self.name,
            self.version,
            self.size,
            self.sha256
        )
    }
}
