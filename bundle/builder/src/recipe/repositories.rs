//! Package repositories that a recipe names, in place of this machine's own sources.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::document;
use super::document::AptRepository;
use super::reader::RecipeReader;

/// An apt repository, like a line in `sources.list`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// Its address, above `dists`.
    pub url: String,
    /// The suite, or a path that ends with `/` for a repository without components.
    pub suite: String,
    /// `main` …; empty for a suite that ends with `/`.
    pub components: Vec<String>,
    /// The public key (OpenPGP, binary or armoured) that signs the repository.
    pub key: PathBuf,
}

/// A further Debian release of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebianRelease {
    /// The status file of dpkg on a bare host of this release.
    pub base: PathBuf,
    /// The repositories of its packages.
    pub repositories: Vec<Repository>,
}

impl DebianRelease {
    pub(super) fn read_all(
        reader: &mut RecipeReader,
        releases: BTreeMap<String, document::DebianRelease>,
    ) -> BTreeMap<String, Self> {
        let mut found = BTreeMap::new();
        for (codename, release) in releases {
            let path = format!("packages.releases.{codename}.repositories");
            if release.repositories.is_empty() {
                reader.problem(&path, "is empty", "name the repositories of the release");
            }
            let repositories = read(reader, &path, release.repositories);
            let base = reader.path(&release.base);
            found.insert(codename, Self { base, repositories });
        }
        found
    }
}

/// Reads the repositories at a path of the recipe.
pub(super) fn read(
    reader: &mut RecipeReader,
    path: &str,
    listed: Vec<AptRepository>,
) -> Vec<Repository> {
    let mut found = Vec::new();
    for (index, item) in listed.into_iter().enumerate() {
        let path = format!("{path}[{index}]");
        // The content is signed, so TLS is not required.
        reader.address(&format!("{path}.url"), &item.url, true, "");
        let components = format!("{path}.components");
        match (item.suite.ends_with('/'), item.components.is_empty()) {
            (true, false) => reader.problem(
                &components,
                "a suite that ends with / has no components",
                "remove the components",
            ),
            (false, true) if reader.source.is_sound(&format!("{path}.suite")) => {
                reader.problem(&components, "is missing", "for example [main]");
            }
            _ => {}
        }
        found.push(Repository {
            url: item.url,
            suite: item.suite,
            components: item.components,
            key: reader.path(&item.key),
        });
    }
    found
}
