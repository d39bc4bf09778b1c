//! Changes of the cluster document by its top-level keys.

use std::fs;

use anyhow::{Context as _, Result};
use halite_lab::cluster::{Cluster, DOCUMENT};

/// Sets a top-level key of the cluster document, on one line; an empty value removes the key.
pub(crate) fn declare(cluster: &Cluster, key: &str, value: &str) -> Result<()> {
    let file = cluster.bootstrap.file(DOCUMENT);
    let text = fs::read_to_string(&file)?;
    let key = format!("{key}:");
    let rest: String = text
        .lines()
        .filter(|line| !line.starts_with(&key))
        .map(|line| format!("{line}\n"))
        .collect();
    let line = if value.is_empty() {
        String::new()
    } else {
        format!("{key} {value}\n")
    };
    fs::write(&file, rest + &line).with_context(|| format!("cannot write {}", file.display()))
}
