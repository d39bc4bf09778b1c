//! A client for yum repositories (`repomd.xml` and what it names, as createrepo_c writes them): needs no dnf on this
//! machine.
//!
//! The signature covers `repomd.xml`, that the indexes, an index its packages; each link is checked. A repository whose
//! `repomd.xml` is not signed is refused.

mod package;
mod primary;
mod repomd;
mod version;

use std::io::BufReader;

pub use package::{Flag, Need, Package, Version};
use repomd::Repomd;
pub use version::compare;

use super::{
    Artifact, Error, Fetcher, Keyring,
    unpack::{self, Compression},
};

/// No `repomd.xml` is larger.
const REPOMD: u64 = 4 << 20;

/// No index is larger, unpacked; Fedora's has 200 MB.
const INDEX: u64 = 4 << 30;

/// A repository.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its address, above `repodata`.
    pub url: String,
    /// Whose signature counts.
    pub keyring: Keyring,
}

/// What a repository holds.
#[derive(Debug, Clone)]
pub struct Repository {
    name: String,
    packages: Vec<Package>,
}

impl Repository {
    /// Reads a repository; only packages of these architectures and of `noarch` are kept.
    ///
    /// # Errors
    /// When it cannot be reached, its signature is not good, or its indexes are not what it says or not understood.
    pub fn open(fetcher: &Fetcher, source: &Source, architectures: &[&str]) -> Result<Self, Error> {
        let base = format!("{}/", source.url.trim_end_matches('/'));
        let url = format!("{base}repodata/repomd.xml");
        let client = fetcher.online(&format!("{url} (a repository is looked at anew each time)"))?;
        let repomd = client.bytes(&url, REPOMD)?;
        let signature = client.bytes(&format!("{url}.asc"), REPOMD).map_err(|error| match error {
            Error::Status { status, .. } if status.starts_with("404") => {
                Error::Signature { what: url.clone(), message: "it is not signed (no repomd.xml.asc)".into() }
            }
            error => error,
        })?;
        source.keyring.check(&url, &repomd, &signature)?;
        let wrong = |message: String| Error::content(&url, message);
        let primary = Repomd::parse(&repomd).and_then(|repomd| repomd.primary()).map_err(wrong)?;
        let compression = Compression::of(&primary.href);
        let compression = compression
            .ok_or_else(|| wrong(format!("{} is compressed in a way that is not read here", primary.href)))?;
        let address = format!("{base}{}", primary.href);
        let artifact = Artifact {
            name: address.clone(),
            url: address.clone(),
            digest: Some(primary.digest),
            size: primary.size,
        };
        let entry = fetcher.files(&[artifact])?.remove(0);
        let reader = unpack::open(&entry.path, compression, primary.unpacked.unwrap_or(INDEX).min(INDEX))?;
        let mut packages = Vec::new();
        primary::read(BufReader::new(reader), &base, |package| {
            if package.architecture == "noarch" || architectures.contains(&package.architecture.as_str()) {
                packages.push(package);
            }
        })
        .map_err(|message| Error::content(&address, message))?;
        Ok(Self { name: base, packages })
    }

    /// Everything in it.
    #[must_use]
    pub fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// A package by name, of an architecture (or `noarch`); of several versions the newest, unless one is named
    /// (`[EPOCH:]VERSION[-RELEASE]`).
    ///
    /// # Errors
    /// When it is not there, with what is there instead.
    pub fn find(&self, name: &str, version: Option<&str>, architecture: &str) -> Result<&Package, Error> {
        let named = || self.packages.iter().filter(|package| package.name == name);
        let fits = |package: &&Package| {
            [architecture, "noarch"].contains(&package.architecture.as_str())
                && version.is_none_or(|version| package.version.is(version))
        };
        let newest = named().filter(fits).max_by(|a, b| a.version.order(&b.version));
        newest.ok_or_else(|| {
            let there = named().map(|package| format!("{} ({})", package.version, package.architecture));
            Error::no_package(&self.name, name, version, architecture, there)
        })
    }
}
