//! A client for apt repositories (<https://wiki.debian.org/DebianRepository/Format>). It needs no
//! apt on this machine, and reads repositories of other distributions and architectures.
//!
//! The signature covers `Release`, `Release` the indexes, and an index its packages; each step is
//! verified.

mod package;
mod release;

use std::io::{BufRead as _, BufReader, Read};

use jiff::Timestamp;
use release::{Refused, Release};

use crate::cache::CachedContent;
use crate::error::Error;
use crate::fetcher::{Artifact, Fetcher};
use crate::openpgp::Keyring;
use crate::unpack;
use crate::unpack::Compression;

pub use halite_versions::deb::compare;
pub use package::Package;

/// The largest `Release`, in bytes.
const RELEASE: u64 = 32 << 20;

/// The largest index when unpacked, in bytes; Debian's main has 50 MB.
const INDEX: u64 = 2 << 30;

/// A repository, like a line in `sources.list`.
#[derive(Debug, Clone)]
pub struct AptSource {
    /// Its URL, above `dists`.
    pub url: String,
    /// The suite, or a path that ends with `/` for a repository without components.
    pub suite: String,
    /// `main` …; empty for a suite that ends with `/`.
    pub components: Vec<String>,
    /// `amd64` …
    pub architectures: Vec<String>,
    /// The keys whose signatures are accepted.
    pub keyring: Keyring,
}

/// The packages of a repository.
#[derive(Debug, Clone)]
pub struct Repository {
    name: String,
    packages: Vec<Package>,
}

impl Repository {
    /// Reads a repository. `now` decides whether it is outdated: an attacker may serve an old state
    /// so that known vulnerabilities are installed.
    ///
    /// # Errors
    /// It cannot be reached, its signature is not valid, it is outdated, or it lacks an item
    /// that the source names.
    pub fn open(fetcher: &Fetcher, source: &AptSource, now: Timestamp) -> Result<Self, Error> {
        let base = format!("{}/", source.url.trim_end_matches('/'));
        let flat = source.suite.ends_with('/');
        let dir = match flat {
            true => format!("{base}{}", source.suite.trim_start_matches(['.', '/'])),
            false => format!("{base}dists/{}/", source.suite),
        };
        let release = Release::parse(&signed(fetcher, source, &dir)?);
        let name = format!("{dir}Release");
        let wrong = |refused: Refused| Error::invalid(&name, refused);
        let mut problems: Vec<_> = release
            .check_dates(now)
            .err()
            .map(wrong)
            .into_iter()
            .collect();
        if !flat {
            problems.extend(release.check_suite(&source.suite).err().map(wrong));
        }
        let mut indexes = Vec::new();
        for index in wanted(source, flat) {
            if index.contains("binary-all/") && release.repeats_all() {
                continue;
            }
            match release.find(&index) {
                Some(found) => indexes.push((found.artifact(&dir, release.by_hash()), found)),
                // All packages may be in `binary-all`, or none.
                None if index.contains("binary-all/") => {}
                None => problems.push(Error::content(
                    &name,
                    format!("it lists no {index} that is compressed with xz, zstd or gzip"),
                )),
            }
        }
        Error::all(problems)?;
        let (artifacts, found): (Vec<_>, Vec<_>) = indexes.into_iter().unzip();
        let mut packages = Vec::new();
        for ((entry, artifact), found) in fetcher
            .files(&artifacts)?
            .iter()
            .zip(&artifacts)
            .zip(&found)
        {
            let limit = found.unpacked.unwrap_or(INDEX).min(INDEX);
            packages.extend(read(entry, &artifact.url, found.compression, limit, &base)?);
        }
        packages.retain(|package: &Package| {
            package.architecture == "all" || source.architectures.contains(&package.architecture)
        });
        Ok(Self {
            name: dir,
            packages,
        })
    }

    /// All packages.
    #[must_use]
    pub fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// The package with this name and architecture (or `all`). Without a version, the newest.
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
            [architecture, "all"].contains(&package.architecture.as_str())
                && version.is_none_or(|version| package.version == version)
        };
        let newest = named()
            .filter(fits)
            .max_by(|a, b| compare(&a.version, &b.version));
        newest.ok_or_else(|| {
            let there =
                named().map(|package| format!("{} ({})", package.version, package.architecture));
            Error::no_package(&self.name, name, version, architecture, there)
        })
    }
}

/// The signed text of `InRelease`, or of `Release` with `Release.gpg` if there is no such file.
fn signed(fetcher: &Fetcher, source: &AptSource, dir: &str) -> Result<String, Error> {
    let inline = format!("{dir}InRelease");
    let client = fetcher.online(&format!("{inline} (a repository is read again each time)"))?;
    let bytes = match client.bytes(&inline, RELEASE) {
        Ok(message) => source.keyring.open_message(&inline, &message)?,
        Err(Error::Status { status, .. }) if status.starts_with("404") => {
            let url = format!("{dir}Release");
            let release = client.bytes(&url, RELEASE)?;
            let signature = client
                .bytes(&format!("{url}.gpg"), RELEASE)
                .map_err(|error| match error {
                    Error::Status { status, .. } if status.starts_with("404") => Error::Signature {
                        what: url.clone(),
                        message: "it is not signed (no InRelease, no Release.gpg)".into(),
                    },
                    error => error,
                })?;
            source.keyring.check(&url, &release, &signature)?;
            release
        }
        Err(error) => return Err(error),
    };
    String::from_utf8(bytes).map_err(|error| Error::invalid(inline, error))
}

/// The indexes to read, without the suffixes for their compression.
fn wanted(source: &AptSource, flat: bool) -> Vec<String> {
    if flat {
        return vec!["Packages".into()];
    }
    let mut architectures: Vec<&str> = source.architectures.iter().map(String::as_str).collect();
    if !architectures.contains(&"all") {
        architectures.push("all");
    }
    let of = |component: &String| {
        let name = |architecture: &&str| format!("{component}/binary-{architecture}/Packages");
        architectures.iter().map(name).collect::<Vec<_>>()
    };
    source.components.iter().flat_map(of).collect()
}

fn read(
    entry: &CachedContent,
    url: &str,
    compression: Compression,
    limit: u64,
    base: &str,
) -> Result<Vec<Package>, Error> {
    let mut reader = BufReader::new(unpack::open(&entry.path, compression, limit)?);
    let (mut packages, mut stanza, mut line) = (Vec::new(), String::new(), String::new());
    loop {
        line.clear();
        let count = Read::by_ref(&mut reader)
            .read_line(&mut line)
            .map_err(|error| Error::invalid(url, error))?;
        if count > 0 && !line.trim().is_empty() {
            stanza.push_str(&line);
            continue;
        }
        if !stanza.is_empty() {
            let package = Package::parse(&stanza, base);
            packages.push(package.map_err(|error| Error::invalid(url, error))?);
            stanza.clear();
        }
        if count == 0 {
            return Ok(packages);
        }
    }
}

impl Package {
    /// The package's file as an artifact to fetch.
    #[must_use]
    pub fn artifact(&self) -> Artifact {
        Artifact {
            name: format!("{} {} ({})", self.name, self.version, self.architecture),
            url: self.url.clone(),
            digest: Some(self.digest.clone()),
            size: Some(self.size),
            limit: None,
        }
    }
}
