//! Package repositories that a recipe names, in place of this machine's own sources.

use std::path::PathBuf;

use serde_json::Value;

use super::reader::Reader;

/// An apt repository, as a line in `sources.list` names it.
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

pub(super) fn read(reader: &mut Reader, value: Option<&Value>) -> Vec<Repository> {
    let Some(value) = value else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (index, item) in reader
        .list("packages.repositories", Some(value))
        .iter()
        .enumerate()
    {
        let path = format!("packages.repositories[{index}]");
        let Some(map) = reader.map(&path, Some(item), &["url", "suite", "components", "key"])
        else {
            continue;
        };
        let url = reader.text(&format!("{path}.url"), map.get("url"));
        if !url.is_empty() {
            // The content is signed, so TLS is not required.
            reader.address(&format!("{path}.url"), &url, true, "");
        }
        let suite = reader.text(&format!("{path}.suite"), map.get("suite"));
        let components = match map.get("components") {
            None if suite.ends_with('/') => Vec::new(),
            listed => reader.texts(&format!("{path}.components"), listed),
        };
        if suite.ends_with('/') && !components.is_empty() {
            reader.problem(
                &format!("{path}.components"),
                "a suite that ends with / has none",
            );
        }
        let key = reader.path(&format!("{path}.key"), map.get("key"));
        found.push(Repository {
            url,
            suite,
            components,
            key,
        });
    }
    found
}
