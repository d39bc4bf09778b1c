//! Halite's own programs and their crates as SPDX packages, for bundles and for releases.

use halite_bundle::sbom::FILE;
use halite_bundle::sbom::spdx::{Document, Package};

use super::crates::{Crate, Program};
use super::{licence, purl};
use crate::error::Error;

/// The relationships of SPDX that documents use.
pub(super) const CONTAINS: &str = "CONTAINS";
pub(super) const DESCRIBES: &str = "DESCRIBES";
pub(super) const DEPENDS_ON: &str = "DEPENDS_ON";

/// One of our own programs.
pub(super) fn program(name: &str, sha256: &str, described: &Program) -> Package {
    let mut package = Package::new("Program", sha256, name, &described.version)
        .purl(purl::generic(name, &described.version))
        .sha256(sha256)
        .purpose("APPLICATION");
    package.license_declared = licence::of_crate(&described.licence);
    package.comment = format!("Built with {}.", described.compiler);
    package
}

/// A crate from which a program was built.
pub(super) fn library(key: &str, name: &str, version: &str, part: &Crate) -> Package {
    let mut package = Package::new("Crate", key, name, version)
        .purl(purl::cargo(name, version))
        .sha256(&part.sha256)
        .purpose("LIBRARY");
    package.license_declared = licence::of_crate(&part.licence);
    package
}

/// The bytes of a document.
pub(super) fn to_bytes(document: &Document) -> Result<Vec<u8>, Error> {
    let mut bytes = serde_json::to_vec_pretty(document)
        .map_err(|error| Error::content(FILE, error.to_string()))?;
    bytes.push(b'\n');
    Ok(bytes)
}
