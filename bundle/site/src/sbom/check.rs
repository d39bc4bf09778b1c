//! The check that a bundle's SPDX document names everything in the bundle.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use halite_fetch::oci_layout;
use halite_manifest::{ImageReference, Manifest, manifest};

use super::spdx::Document;
use crate::error::Error;
use crate::sbom::FILE;

/// Returns whether the document must name a file by its path. The blobs of images belong to their
/// images, and a signature is not a part of the bundle's content.
pub fn covers(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let signature = matches!(name, "InRelease" | "Release.gpg" | "repomd.xml.asc")
        || manifest::is_signature(path);
    !(signature
        || path.starts_with("images/blobs/")
        || [FILE, manifest::FILE, manifest::CHECKSUM].contains(&path))
}

/// The items that the SPDX document of the bundle in a directory lacks. Bundles without a document
/// were made before the document was introduced.
pub fn check(dir: &Path, manifest: &Manifest) -> Result<Vec<String>, Error> {
    if !manifest.files.contains_key(FILE) {
        return Ok(Vec::new());
    }
    let path = dir.join(FILE);
    let bytes = fs::read(&path).map_err(Error::file("read", &path))?;
    let document: Document = serde_json::from_slice(&bytes)
        .map_err(|error| Error::content(&path, format!("it is not an SPDX document: {error}")))?;
    let mut found = Vec::new();
    let named = oci_layout::names(&dir.join("images"))?;
    let digests: BTreeMap<_, _> = named
        .into_iter()
        .filter_map(|(name, entry)| Some((name?, entry.digest)))
        .collect();
    for (component, reference) in &manifest.images {
        let reference = ImageReference::new(reference).name;
        let Some(digest) = digests.get(reference) else {
            continue;
        };
        let wanted = digest.trim_start_matches("sha256:");
        let there = document.packages.iter().any(|package| {
            package.digest() == Some(wanted) && purl(package).starts_with("pkg:oci/")
        });
        if !there {
            found.push(format!("the image {reference} ({component}, {digest})"));
        }
    }
    for (name, version) in &manifest.packages {
        let there = document.packages.iter().any(|package| {
            package.name == *name
                && package.version_info == *version
                && purl(package).starts_with("pkg:deb/")
        });
        if !there {
            found.push(format!("the package {name} {version}"));
        }
    }
    let packages = document
        .packages
        .iter()
        .map(|package| (package.package_file_name.as_str(), package.digest()));
    let files = document.files.iter().map(|file| {
        let sha256 = file
            .checksums
            .iter()
            .find(|checksum| checksum.algorithm == "SHA256");
        (
            file.file_name.trim_start_matches("./"),
            sha256.map(|checksum| checksum.checksum_value.as_str()),
        )
    });
    let listed: BTreeMap<&str, Option<&str>> = packages.chain(files).collect();
    for (path, entry) in manifest.files.iter().filter(|(path, _)| covers(path)) {
        match listed.get(path.as_str()) {
            Some(Some(sha256)) if *sha256 == entry.sha256 => {}
            Some(_) => found.push(format!("the content of {path}")),
            None => found.push(format!("the file {path}")),
        }
    }
    Ok(found
        .into_iter()
        .map(|what| format!("{FILE} does not name {what}"))
        .collect())
}

fn purl(package: &super::spdx::Package) -> &str {
    package
        .external_refs
        .first()
        .map_or("", |reference| reference.reference_locator.as_str())
}
