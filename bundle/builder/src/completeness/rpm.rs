//! Packages of a bundle for RPM distributions, and their dependencies.

use std::collections::BTreeMap;
use std::path::Path;

use halite_fetch::yum::{Package, Repository};
use halite_manifest::ManifestEntry;

use super::RPM_BASE;
use crate::error::Error;
use crate::rpm::{Base, REPOMD};

/// The path of the repository in a bundle.
const ROOT: &str = "rpm";

/// The packages of a bundle for hosts of RPM distributions, and the base.
#[derive(Debug, Clone)]
pub struct Rpms {
    pub(super) base: Base,
    pub(super) packages: Vec<Package>,
    indexes: Vec<String>,
}

impl Rpms {
    /// Reads the indexes of the repository of the bundle in a directory.
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let repository = Repository::local(&dir.join(ROOT))?;
        let indexes = repository.indexes().map(str::to_owned).collect();
        let base = Base::load(&dir.join(RPM_BASE))?;
        Ok(Self {
            base,
            packages: repository.packages().to_vec(),
            indexes,
        })
    }

    /// The names of its packages.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.packages.iter().map(|package| package.name.as_str())
    }

    /// Removes a package.
    pub fn remove(&mut self, name: &str) {
        self.packages.retain(|package| package.name != name);
    }

    /// The files without which it is not a repository, each with the reason. The key is named by
    /// the state tree.
    pub fn own_files(&self) -> Vec<(String, &'static str)> {
        let mut files = vec![
            (
                RPM_BASE.to_owned(),
                "the packages to install on RPM hosts are derived from it",
            ),
            (format!("{ROOT}/{REPOMD}"), "dnf reads it first"),
            (
                format!("{ROOT}/{REPOMD}.asc"),
                "dnf checks the repository with it",
            ),
        ];
        files.extend(
            self.indexes
                .iter()
                .map(|index| (format!("{ROOT}/{index}"), "repomd.xml names it")),
        );
        files
    }

    /// Describes the missing part of a package; `None` if it is complete.
    pub fn lacks(
        &self,
        name: &str,
        version: Option<&str>,
        files: &BTreeMap<String, ManifestEntry>,
    ) -> Option<String> {
        let fits = |found: &str| version.is_none_or(|version| version == found);
        let named = |package: &&Package| package.name == name;
        if let Some(package) = self.packages.iter().find(named) {
            if fits(&package.version.to_string()) {
                return self.file(package, files);
            }
            return Some(format!("the repository has {} instead", package.version));
        }
        let mut of_base = self.base.packages.iter().filter(|there| {
            there.name == name || there.provides.iter().any(|need| need.name == name)
        });
        if of_base.any(|there| fits(&there.version.to_string())) {
            return None;
        }
        // dnf also accepts a package that only provides the name.
        let provides = |package: &&Package| package.provides.iter().any(|need| need.name == name);
        match self
            .packages
            .iter()
            .find(provides)
            .filter(|_| version.is_none())
        {
            Some(package) => self.file(package, files),
            None => Some(
                "neither a minimal RPM host nor the repository of the bundle has it".to_owned(),
            ),
        }
    }

    fn file(&self, package: &Package, files: &BTreeMap<String, ManifestEntry>) -> Option<String> {
        let path = format!("{ROOT}/{}", package.url);
        let there = files
            .get(&path)
            .is_some_and(|entry| entry.sha256 == package.digest.hex());
        (!there).then(|| format!("{path} is missing or does not match the repository's index"))
    }
}
