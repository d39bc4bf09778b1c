//! The recipe's packages for RPM distributions.
//!
//! ```yaml
//! packages:
//!   rpm:
//!     base: rocky-9-minimal.txt  # a minimal host, as the guide's command writes it
//!     repositories:
//!       - {name: baseos, url: "https://mirror.example.org/BaseOS/x86_64/os", key: keys/rocky.asc}
//!       - {name: appstream, url: "https://…", key: keys/rocky.asc, signed-index: false}
//!     names: [conntrack-tools, nginx, keepalived]
//! ```

use std::path::PathBuf;

use super::document;
use super::reader::RecipeReader;

/// Packages for RPM distributions. The packages that the recipe makes are also made for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rpm {
    /// The packages of a minimal host ([`crate::rpm::Base`]).
    pub base: PathBuf,
    /// The repositories; a package that several have is taken from the first one.
    pub repositories: Vec<YumRepository>,
    /// The packages to take, with everything that a minimal host lacks for them: `NAME` or
    /// `NAME=VERSION`.
    pub names: Vec<String>,
}

/// A yum repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YumRepository {
    /// Its name in messages.
    pub name: String,
    /// Its address, above `repodata`.
    pub url: String,
    /// The OpenPGP public keys that sign its packages and its index.
    pub key: PathBuf,
    /// `true` if its index must be signed; otherwise only the signatures of the packages are
    /// checked.
    pub signed_index: bool,
}

impl Rpm {
    pub(super) fn read(reader: &mut RecipeReader, document: document::Rpm) -> Self {
        let path = "packages.rpm";
        let mut repositories = Vec::new();
        for (index, item) in document.repositories.into_iter().enumerate() {
            // A signed index may be fetched without TLS.
            let otherwise = "use a repository whose index is signed";
            let url = format!("{path}.repositories[{index}].url");
            reader.address(&url, &item.url, item.signed_index, otherwise);
            repositories.push(YumRepository {
                name: item.name,
                url: item.url,
                key: reader.path(&item.key),
                signed_index: item.signed_index,
            });
        }
        if !document.names.is_empty() && repositories.is_empty() {
            reader.problem(
                &format!("{path}.repositories"),
                "is missing",
                "name the repositories of the packages",
            );
        }
        Self {
            base: reader.path(&document.base),
            repositories,
            names: document.names,
        }
    }

    /// The files that the recipe names here: the path in the document, and the file.
    pub(super) fn files(&self) -> Vec<(String, PathBuf)> {
        let keys = self
            .repositories
            .iter()
            .enumerate()
            .map(|(index, repository)| {
                let path = format!("packages.rpm.repositories[{index}].key");
                (path, repository.key.clone())
            });
        std::iter::once(("packages.rpm.base".to_owned(), self.base.clone()))
            .chain(keys)
            .collect()
    }
}
