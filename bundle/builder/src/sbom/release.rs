//! The document of a release: Halite's programs, and the crates from which each was built.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use halite_bundle::sbom::spdx::{DOCUMENT, Document, Package, id};
use halite_durable::digest;

use super::crates::Inputs;
use super::own::{CONTAINS, DEPENDS_ON, DESCRIBES, library, program, to_bytes};
use super::{crates, purl};
use crate::error::Error;

/// The document of the release of that version. `inputs` is a file as for the recipe's
/// `sbom-inputs`; `programs` has the SHA-256 of each program; `created` is an RFC 3339 time in UTC.
/// The same arguments give the same bytes.
///
/// # Errors
/// The file cannot be read, or does not describe these programs.
pub fn release_sbom(
    version: &str,
    created: &str,
    inputs: &Path,
    programs: &BTreeMap<String, String>,
) -> Result<Vec<u8>, Error> {
    let inputs = Inputs::read(inputs, programs)?;
    let mut document = Document::new(&format!("halite-{version}"), created);
    let release =
        Package::new("Release", version, "halite", version).purl(purl::generic("halite", version));
    let release_id = release.id.clone();
    document.packages.push(release);
    document.relate(DOCUMENT, DESCRIBES, &release_id);
    let mut linked = BTreeSet::new();
    for (name, sha256) in programs {
        let Some(described) = inputs.programs.get(name) else {
            continue;
        };
        let package = program(name, sha256, described);
        document.relate(&release_id, CONTAINS, &package.id);
        for key in &described.crates {
            document.relate(&package.id, DEPENDS_ON, &id("Crate", key));
            linked.insert(key);
        }
        document.packages.push(package);
    }
    for key in linked {
        if let Some(((name, version), part)) = crates::split(key).zip(inputs.crates.get(key)) {
            document.packages.push(library(key, name, version, part));
        }
    }
    document.packages.sort_by(|a, b| a.id.cmp(&b.id));
    let unnamed = to_bytes(&document)?;
    document.name_after(version, &digest::sha256(&unnamed));
    to_bytes(&document)
}
