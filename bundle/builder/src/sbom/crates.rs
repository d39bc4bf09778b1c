//! The recipe's `sbom-inputs`: the inputs from which Halite's own programs were built. A Rust
//! program does not contain them, so its builder records them together with the program's digest:
//! they apply to no other program.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use halite_durable::files;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The inputs from which programs were built.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inputs {
    /// The format of the file: 1.
    pub format: u32,
    /// The programs by their names in the recipe's `binaries`.
    pub programs: BTreeMap<String, Program>,
    /// Every crate from which any of the programs was built, by name and version: `serde 1.0.229`.
    pub crates: BTreeMap<String, Crate>,
}

/// A program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// SHA-256 of its file.
    pub sha256: String,
    /// Its own version.
    pub version: String,
    /// Its licence, an SPDX expression.
    pub licence: String,
    /// The compiler: `rustc 1.95.0`.
    pub compiler: String,
    /// The crates from which it was built, direct and indirect.
    pub crates: Vec<String>,
}

/// A crate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crate {
    /// Its licence according to its manifest; empty if the manifest states none.
    pub licence: String,
    /// SHA-256 of its archive; empty for a crate from the same source tree as the program.
    #[serde(default)]
    pub sha256: String,
}

impl Inputs {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read or parsed, or does not match the programs in `programs`: all
    /// problems.
    pub fn read(path: &Path, programs: &BTreeMap<String, String>) -> Result<Self, Error> {
        let bytes = fs::read(path).map_err(Error::file("read", path))?;
        let inputs: Self = serde_json::from_slice(&bytes)
            .map_err(|error| Error::content(path, error.to_string()))?;
        let mut problems = Vec::new();
        if inputs.format != 1 {
            problems.push(format!("format {} is not supported, only 1", inputs.format));
        }
        for (name, sha256) in programs {
            match inputs.programs.get(name) {
                None => problems.push(format!("it does not say what {name} was built from")),
                Some(program) if program.sha256 != *sha256 => problems.push(format!(
                    "it describes another {name} (sha256 {}) than the recipe's ({sha256}): generate it again after building",
                    program.sha256
                )),
                Some(program) => {
                    let unknown = program.crates.iter().filter(|id| !inputs.crates.contains_key(*id));
                    problems.extend(unknown.map(|id| format!("{name}: the crate {id:?} is not described")));
                }
            }
        }
        problems.extend(
            inputs
                .crates
                .keys()
                .filter(|id| split(id).is_none())
                .map(|id| {
                    format!("{id:?} is not a crate: write its name, a space, and its version")
                }),
        );
        if problems.is_empty() {
            Ok(inputs)
        } else {
            Err(Error::content(path, problems.join("\n  ")))
        }
    }
}

/// Splits the id of a crate into name and version.
#[must_use]
pub fn split(id: &str) -> Option<(&str, &str)> {
    id.split_once(' ')
        .filter(|(name, version)| !name.is_empty() && !version.is_empty() && !version.contains(' '))
}

/// Computes the digests of the programs below `bin/` of a bundle, by name.
pub fn digests(dir: &Path) -> Result<BTreeMap<String, String>, Error> {
    let bin = dir.join("bin");
    files::walk(&bin)?
        .into_iter()
        .map(|name| Ok((name.clone(), files::digest(&bin.join(name))?.0)))
        .collect()
}
