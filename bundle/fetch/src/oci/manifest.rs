//! Manifests and indexes of OCI and of Docker.

use std::fmt;
use std::str::FromStr;

use halite_durable::digest::InvalidDigest;
use serde::Deserialize;

use crate::oci_layout::Descriptor;

/// The media types that are requested from a registry.
pub const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
                          application/vnd.docker.distribution.manifest.list.v2+json, \
                          application/vnd.oci.image.manifest.v1+json, \
                          application/vnd.docker.distribution.manifest.v2+json";

/// The platform of an image: `linux/amd64`, `linux/arm/v7`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Platform {
    /// `linux` …
    pub os: String,
    /// `amd64` …
    pub architecture: String,
    /// `v7` …, if the architecture has variants.
    pub variant: Option<String>,
}

impl Default for Platform {
    fn default() -> Self {
        Self {
            os: "linux".into(),
            architecture: "amd64".into(),
            variant: None,
        }
    }
}

/// A text that is not a platform.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a platform; write OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT")]
pub struct InvalidPlatform(String);

/// The part of a manifest or configuration that is invalid or refused.
#[derive(Debug, thiserror::Error)]
pub enum InvalidImage {
    #[error("its configuration cannot be parsed")]
    Configuration(#[source] serde_json::Error),
    #[error("it exists only for {found}, not for {wanted}")]
    OtherPlatform { found: String, wanted: Platform },
    #[error("it is not a manifest")]
    NoManifest(#[source] serde_json::Error),
    #[error(
        "its manifest has the old schema 1, which contains no digests of layers; push it again"
    )]
    OldSchema,
    #[error("{0} is not the manifest of an image")]
    MediaType(String),
    #[error("it is neither an image nor an index of images")]
    OtherKind,
    #[error("an index within an index is not supported")]
    NestedIndex,
    #[error("it does not exist for {wanted}; available: {there}")]
    NoPlatform { wanted: Platform, there: String },
    #[error("its index says that its manifest has {expected} bytes, but it has {found}")]
    Size { expected: u64, found: u64 },
    #[error(transparent)]
    Digest(#[from] InvalidDigest),
}

impl FromStr for Platform {
    type Err = InvalidPlatform;

    fn from_str(text: &str) -> Result<Self, InvalidPlatform> {
        let parts: Vec<_> = text.split('/').collect();
        let (os, architecture, variant) = match parts[..] {
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(variant)),
            _ => ("", "", None),
        };
        if os.is_empty() || architecture.is_empty() || variant == Some("") {
            return Err(InvalidPlatform(text.to_owned()));
        }
        let (os, architecture) = (os.to_owned(), architecture.to_owned());
        Ok(Self {
            os,
            architecture,
            variant: variant.map(str::to_owned),
        })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant
            .as_ref()
            .map_or(Ok(()), |variant| write!(f, "/{variant}"))
    }
}

/// The platform that an image declares, in an index or in its configuration.
#[derive(Debug, Deserialize)]
pub struct DeclaredPlatform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    variant: Option<String>,
}

impl Platform {
    /// Returns whether an image with the declared platform runs on this one. A variant that only
    /// one of the two has is ignored: `arm64` is `arm64/v8`.
    fn takes(&self, said: &DeclaredPlatform) -> bool {
        let variant = self.variant.as_ref().zip(said.variant.as_ref());
        self.os == said.os
            && self.architecture == said.architecture
            && variant.is_none_or(|(a, b)| a == b)
    }

    /// Checks the platform in an image's configuration.
    pub fn check(&self, configuration: &[u8]) -> Result<(), InvalidImage> {
        let said: DeclaredPlatform =
            serde_json::from_slice(configuration).map_err(InvalidImage::Configuration)?;
        // Artifacts packed as images (a chart, a policy) declare no platform.
        if said.os.is_empty() && said.architecture.is_empty() || self.takes(&said) {
            return Ok(());
        }
        Err(InvalidImage::OtherPlatform {
            found: said.to_string(),
            wanted: self.clone(),
        })
    }
}

impl fmt::Display for DeclaredPlatform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            os,
            architecture,
            variant,
        } = self;
        Platform {
            os: os.clone(),
            architecture: architecture.clone(),
            variant: variant.clone(),
        }
        .fmt(f)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    schema_version: u32,
    media_type: Option<String>,
    manifests: Option<Vec<IndexEntry>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

/// An entry of an index.
#[derive(Deserialize)]
pub struct IndexEntry {
    #[serde(flatten)]
    pub descriptor: Pointer,
    platform: Option<DeclaredPlatform>,
}

/// The required fields of an entry.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pointer {
    pub digest: String,
    pub size: u64,
}

/// A parsed manifest.
pub enum Manifest {
    /// A list by platform.
    Index {
        /// Its media type.
        media_type: String,
        /// Its entries.
        listed: Vec<IndexEntry>,
    },
    /// One image.
    Image {
        /// Its media type.
        media_type: String,
        /// Configuration and layers, in this order.
        parts: Vec<Descriptor>,
    },
}

impl Manifest {
    /// Parses a manifest; `content_type` is the server's header.
    pub fn parse(bytes: &[u8], content_type: Option<&str>) -> Result<Self, InvalidImage> {
        let raw: Raw = serde_json::from_slice(bytes).map_err(InvalidImage::NoManifest)?;
        if raw.schema_version != 2 {
            return Err(InvalidImage::OldSchema);
        }
        let said = content_type.map(|text| text.split(';').next().unwrap_or(text).trim());
        match raw {
            Raw {
                manifests: Some(listed),
                media_type,
                ..
            } => {
                // Determined from the bytes alone: bytes from the cache have no server's header.
                let media_type = media_type.filter(|kind| !kind.is_empty());
                let media_type =
                    media_type.unwrap_or_else(|| crate::oci_layout::INDEXES[0].to_owned());
                if !crate::oci_layout::INDEXES.contains(&media_type.as_str()) {
                    return Err(InvalidImage::MediaType(media_type));
                }
                Ok(Self::Index { media_type, listed })
            }
            Raw {
                config: Some(config),
                layers: Some(layers),
                media_type,
                ..
            } => {
                // The field is absent in OCI's first version; then only the server's header has it.
                let media_type = media_type
                    .or_else(|| said.map(str::to_owned))
                    .filter(|kind| !kind.is_empty());
                let media_type =
                    media_type.unwrap_or_else(|| crate::oci_layout::MANIFESTS[0].to_owned());
                if !crate::oci_layout::MANIFESTS.contains(&media_type.as_str()) {
                    return Err(InvalidImage::MediaType(media_type));
                }
                let mut parts = vec![config];
                parts.extend(layers);
                Ok(Self::Image { media_type, parts })
            }
            _ => Err(InvalidImage::OtherKind),
        }
    }
}

/// Finds the entry for a platform; the error lists the available platforms.
pub fn choose<'a>(
    listed: &'a [IndexEntry],
    platform: &Platform,
) -> Result<&'a Pointer, InvalidImage> {
    let said = || {
        listed
            .iter()
            .filter_map(|entry| Some((entry, entry.platform.as_ref()?)))
    };
    // An entry with the exact variant takes precedence over one without a variant.
    let exact = said().find(|(_, said)| platform.takes(said) && said.variant == platform.variant);
    if let Some((entry, _)) = exact.or_else(|| said().find(|(_, said)| platform.takes(said))) {
        return Ok(&entry.descriptor);
    }
    // Attestations are listed under a platform that does not exist.
    let mut there: Vec<_> = said()
        .filter(|(_, said)| said.os != "unknown")
        .map(|(_, said)| said.to_string())
        .collect();
    there.sort_unstable();
    there.dedup();
    let there = if there.is_empty() {
        "none with a platform".to_owned()
    } else {
        there.join(", ")
    };
    Err(InvalidImage::NoPlatform {
        wanted: platform.clone(),
        there,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(platforms: &[&str]) -> Vec<IndexEntry> {
        let entry = |(n, platform): (usize, &&str)| {
            let Platform {
                os,
                architecture,
                variant,
            } = platform.parse().unwrap();
            let platform =
                serde_json::json!({"os": os, "architecture": architecture, "variant": variant});
            serde_json::json!({"mediaType": "m", "digest": n.to_string(), "size": 1, "platform": platform})
        };
        let manifests: Vec<_> = platforms.iter().enumerate().map(entry).collect();
        let bytes =
            serde_json::to_vec(&serde_json::json!({"schemaVersion": 2, "manifests": manifests}))
                .unwrap();
        match Manifest::parse(&bytes, None).unwrap() {
            Manifest::Index { listed, .. } => listed,
            Manifest::Image { .. } => panic!("an image"),
        }
    }

    #[test]
    fn the_platform_is_chosen() {
        let listed = index(&[
            "linux/arm/v6",
            "linux/arm/v7",
            "linux/arm64/v8",
            "linux/amd64",
            "unknown/unknown",
        ]);
        let chosen = |platform: &str| {
            choose(&listed, &platform.parse().unwrap()).map(|entry| entry.digest.as_str())
        };
        assert_eq!(chosen("linux/amd64").unwrap(), "3");
        assert_eq!(chosen("linux/arm/v7").unwrap(), "1");
        assert_eq!(chosen("linux/arm64").unwrap(), "2");
        assert_eq!(
            chosen("windows/amd64").unwrap_err().to_string(),
            "it does not exist for windows/amd64; available: linux/amd64, linux/arm/v6, linux/arm/v7, \
             linux/arm64/v8"
        );
        assert!("linux".parse::<Platform>().is_err() && "linux//".parse::<Platform>().is_err());
    }

    #[test]
    fn a_document_that_is_not_an_image_is_refused() {
        for (json, why) in [
            (r#"{"schemaVersion": 1}"#, "old schema 1"),
            (r#"{"schemaVersion": 2}"#, "neither an image nor an index"),
            ("<html>", "not a manifest"),
        ] {
            let error = Manifest::parse(json.as_bytes(), None)
                .err()
                .unwrap()
                .to_string();
            assert!(error.contains(why), "{error}");
        }
        let error = Platform::default()
            .check(br#"{"os": "linux", "architecture": "arm64"}"#)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "it exists only for linux/arm64, not for linux/amd64"
        );
        assert!(Platform::default().check(b"{}").is_ok());
    }
}
