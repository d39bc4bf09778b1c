//! The recipe's packages for RPM distributions.
//!
//! ```yaml
//! packages:
//!   rpm:
//!     base: rocky-9-minimal.txt           # the packages of a minimal host; the guide has the command that writes it
//!     repositories:
//!       - {name: baseos, url: "https://mirror.example.org/rocky/9/BaseOS/x86_64/os", key: keys/rocky.asc}
//!       - {name: appstream, url: "https://…", key: keys/rocky.asc, signed-index: false}
//!     names: [conntrack-tools, nginx, keepalived]
//! ```

use std::path::PathBuf;

use serde_json::Value;

use super::reader::Reader;

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
    /// True if its index must be signed; otherwise only the signatures of the packages are checked.
    pub signed_index: bool,
}

impl Rpm {
    pub(super) fn read(reader: &mut Reader, value: &Value) -> Option<Self> {
        let path = "packages.rpm";
        let map = reader.map(path, Some(value), &["base", "repositories", "names"])?;
        let base = reader.path(&format!("{path}.base"), map.get("base"));
        let listed = |reader: &mut Reader, key: &str| match map.get(key) {
            Some(value) => reader.list(&format!("{path}.{key}"), Some(value)).to_vec(),
            None => Vec::new(),
        };
        let mut repositories = Vec::new();
        for (index, item) in listed(reader, "repositories").iter().enumerate() {
            let path = format!("{path}.repositories[{index}]");
            let known = ["name", "url", "key", "signed-index"];
            let Some(map) = reader.map(&path, Some(item), &known) else {
                continue;
            };
            let url = reader.text(&format!("{path}.url"), map.get("url"));
            let signed_index = match map.get("signed-index") {
                None => true,
                Some(Value::Bool(signed)) => *signed,
                Some(_) => {
                    reader.problem(&format!("{path}.signed-index"), "must be true or false");
                    true
                }
            };
            if !url.is_empty() {
                // A signed index may come without TLS.
                let otherwise = "take a repository whose index is signed";
                reader.address(&format!("{path}.url"), &url, signed_index, otherwise);
            }
            repositories.push(YumRepository {
                name: reader.text(&format!("{path}.name"), map.get("name")),
                url,
                key: reader.path(&format!("{path}.key"), map.get("key")),
                signed_index,
            });
        }
        let names = match map.get("names") {
            Some(names) => reader.texts(&format!("{path}.names"), Some(names)),
            None => Vec::new(),
        };
        if !names.is_empty() && repositories.is_empty() {
            reader.problem(
                &format!("{path}.repositories"),
                "is missing: nowhere to take the packages from",
            );
        }
        let bare = |c: char| c.is_ascii_alphanumeric() || "+._-=:~^".contains(c);
        for name in names.iter().filter(|name| !name.chars().all(bare)) {
            reader.problem(
                &format!("{path}.names"),
                &format!("{name:?} is no package: write NAME or NAME=VERSION"),
            );
        }
        Some(Self {
            base,
            repositories,
            names,
        })
    }

    /// The files that the recipe names here: the purpose and path of each.
    pub(super) fn files(&self) -> Vec<(String, PathBuf)> {
        let keys = self.repositories.iter().map(|repository| {
            (
                format!("the key of the repository {}", repository.name),
                repository.key.clone(),
            )
        });
        std::iter::once(("packages.rpm.base".to_owned(), self.base.clone()))
            .chain(keys)
            .collect()
    }
}
