//! A client for yum repositories (`repomd.xml` and its indexes, as createrepo_c writes them). It
//! needs no dnf on this machine.
//!
//! The signature covers `repomd.xml`, `repomd.xml` the indexes, and an index its packages; each
//! step is verified. A repository whose `repomd.xml` is not signed is refused unless its source
//! says that it is unsigned. Then the packages' own signatures must be verified.

mod error;
mod filelists;
mod package;
mod primary;
mod repomd;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufReader, Read};
use std::path::Path;

use error::InvalidIndex;
use repomd::Repomd;

use crate::error::Error;
use crate::fetcher::{Artifact, Fetcher};
use crate::openpgp::Keyring;
use crate::unpack;
use crate::unpack::Compression;

pub use package::{Flag, Need, Package, Version};

/// The largest `repomd.xml`, in bytes.
const REPOMD: u64 = 4 << 20;

/// The largest index when unpacked, in bytes; Fedora's has 200 MB.
const INDEX: u64 = 4 << 30;

/// A repository.
#[derive(Debug, Clone)]
pub struct YumSource {
    /// Its URL, above `repodata`.
    pub url: String,
    /// The keys whose signatures are accepted.
    pub keyring: Keyring,
    /// `true` if `repomd.xml` must be signed.
    pub signed: bool,
}

/// The packages of a repository.
#[derive(Debug, Clone)]
pub struct Repository {
    name: String,
    packages: Vec<Package>,
    repomd: Repomd,
}

impl Repository {
    /// Reads a repository; only packages of these architectures and of `noarch` are kept.
    ///
    /// # Errors
    /// It cannot be reached, its signature is not valid, or its indexes differ from `repomd.xml` or
    /// are invalid.
    pub fn open(
        fetcher: &Fetcher,
        source: &YumSource,
        architectures: &[&str],
    ) -> Result<Self, Error> {
        let base = format!("{}/", source.url.trim_end_matches('/'));
        let url = format!("{base}repodata/repomd.xml");
        let client = fetcher.online(&format!("{url} (a repository is read again each time)"))?;
        let repomd = client.bytes(&url, REPOMD)?;
        if source.signed {
            let signature =
                client
                    .bytes(&format!("{url}.asc"), REPOMD)
                    .map_err(|error| match error {
                        Error::Status { status, .. } if status.starts_with("404") => {
                            Error::Signature {
                                what: url.clone(),
                                message: "it is not signed (no repomd.xml.asc)".into(),
                            }
                        }
                        error => error,
                    })?;
            source.keyring.check(&url, &repomd, &signature)?;
        }
        let repomd = Repomd::parse(&repomd).map_err(|error| Error::invalid(&url, error))?;
        let mut repository = Self {
            name: base,
            packages: Vec::new(),
            repomd,
        };
        let (address, reader) = repository.fetch(fetcher, Repomd::primary)?;
        repository
            .fill(reader, architectures)
            .map_err(|error| Error::invalid(&address, error))?;
        Ok(repository)
    }

    /// Reads a repository in a directory without checking its signature. Its packages have paths
    /// below the directory in place of URLs. A file that a package requires is listed by every
    /// package that owns it.
    ///
    /// # Errors
    /// Its indexes cannot be read.
    pub fn local(root: &Path) -> Result<Self, Error> {
        let path = root.join("repodata/repomd.xml");
        let bytes = fs::read(&path).map_err(Error::file("read", &path))?;
        let wrong = |error: InvalidIndex| Error::invalid(path.display().to_string(), error);
        let repomd = Repomd::parse(&bytes).map_err(wrong)?;
        let primary = repomd.primary().map_err(wrong)?;
        let filelists = repomd.filelists().map_err(wrong)?;
        let mut repository = Self {
            name: String::new(),
            packages: Vec::new(),
            repomd,
        };
        let open = |index: &repomd::Index| {
            let place = root.join(&index.href);
            unpack::open(&place, compression(&index.href).map_err(wrong)?, INDEX)
        };
        repository
            .fill(open(&primary)?, &["x86_64"])
            .map_err(wrong)?;
        let wanted: BTreeSet<String> = repository.required_files();
        repository
            .extend(open(&filelists)?, &wanted)
            .map_err(wrong)?;
        Ok(repository)
    }

    /// The paths of its indexes, below the repository.
    pub fn indexes(&self) -> impl Iterator<Item = &str> {
        self.repomd.places()
    }

    /// Finds the owners of these files in the index of all files, and adds the files to their
    /// packages.
    ///
    /// # Errors
    /// The index cannot be fetched, or is invalid.
    pub fn find_files(
        &mut self,
        fetcher: &Fetcher,
        wanted: &BTreeSet<String>,
    ) -> Result<(), Error> {
        let (address, reader) = self.fetch(fetcher, Repomd::filelists)?;
        self.extend(reader, wanted)
            .map_err(|error| Error::invalid(address, error))
    }

    /// The files that its packages require.
    pub fn required_files(&self) -> BTreeSet<String> {
        let needs = self.packages.iter().flat_map(|package| &package.requires);
        // Boolean requirements are included; a path in one ends with a blank or a parenthesis.
        let words = needs.flat_map(|need| need.name.split([' ', '(', ')']));
        words
            .filter(|word| word.starts_with('/'))
            .map(str::to_owned)
            .collect()
    }

    fn fetch(
        &self,
        fetcher: &Fetcher,
        which: fn(&Repomd) -> Result<repomd::Index, InvalidIndex>,
    ) -> Result<(String, Box<dyn Read>), Error> {
        let url = format!("{}repodata/repomd.xml", self.name);
        let wrong = |error: InvalidIndex| Error::invalid(&url, error);
        let index = which(&self.repomd).map_err(wrong)?;
        let compression = compression(&index.href).map_err(wrong)?;
        let address = format!("{}{}", self.name, index.href);
        let artifact = Artifact {
            name: address.clone(),
            url: address.clone(),
            digest: Some(index.digest),
            size: index.size,
            limit: Some(INDEX),
        };
        let entry = fetcher.files(&[artifact])?.remove(0);
        let reader = unpack::open(
            &entry.path,
            compression,
            index.unpacked.unwrap_or(INDEX).min(INDEX),
        )?;
        Ok((address, Box::new(reader)))
    }

    fn fill(&mut self, reader: impl Read, architectures: &[&str]) -> Result<(), InvalidIndex> {
        primary::read(BufReader::new(reader), &self.name, |package| {
            if package.architecture == "noarch"
                || architectures.contains(&package.architecture.as_str())
            {
                self.packages.push(package);
            }
        })
    }

    fn extend(&mut self, reader: impl Read, wanted: &BTreeSet<String>) -> Result<(), InvalidIndex> {
        let mut found = filelists::read(BufReader::new(reader), wanted)?;
        for package in &mut self.packages {
            let files = found.remove(package.digest.hex()).unwrap_or_default();
            package.files.extend(
                files
                    .into_iter()
                    .filter(|file| !package.files.contains(file))
                    .collect::<Vec<_>>(),
            );
        }
        Ok(())
    }

    /// All packages.
    #[must_use]
    pub fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// The package with this name and architecture (or `noarch`). Without a version
    /// (`[EPOCH:]VERSION[-RELEASE]`), the newest.
    ///
    /// # Errors
    /// There is no such package; the error names the available versions.
    pub fn find(
        &self,
        name: &str,
        version: Option<&str>,
        architecture: &str,
    ) -> Result<&Package, Error> {
        let named = || self.packages.iter().filter(|package| package.name == name);
        let fits = |package: &&Package| {
            [architecture, "noarch"].contains(&package.architecture.as_str())
                && version.is_none_or(|version| package.version.is(version))
        };
        let newest = named()
            .filter(fits)
            .max_by(|a, b| a.version.order(&b.version));
        newest.ok_or_else(|| {
            let there =
                named().map(|package| format!("{} ({})", package.version, package.architecture));
            Error::no_package(&self.name, name, version, architecture, there)
        })
    }
}

fn compression(href: &str) -> Result<Compression, InvalidIndex> {
    Compression::of(href).ok_or_else(|| InvalidIndex::Compression(href.to_owned()))
}
