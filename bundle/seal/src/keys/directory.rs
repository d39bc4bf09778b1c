//! The files of a trust directory.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::KeyId;
use crate::error::Error;

/// The file in a trust directory that lists the revoked keys.
pub(super) const REVOKED: &str = "revoked";

/// Parses lines of a key id and a reason; lines that begin with `#` are comments.
pub(super) fn parse_revoked(text: &str) -> Result<BTreeMap<KeyId, String>, Vec<String>> {
    let (mut revoked, mut wrong) = (BTreeMap::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (id, why) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match KeyId::parse(id) {
            Some(id) => drop(revoked.insert(id, why.trim().to_owned())),
            None => wrong.push(format!(
                "line {number}: `{id}` is not a key id of 16 hexadecimal digits"
            )),
        }
    }
    if wrong.is_empty() {
        Ok(revoked)
    } else {
        Err(wrong)
    }
}

/// The text of a list of revoked keys, empty if the file does not exist.
pub(super) fn list(path: &Path) -> Result<String, Error> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(Error::file("read", path)),
    }
}

/// The `.pub` files of a directory, which need not exist.
pub(super) fn public(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let listed = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(Error::file("list", dir))?,
    };
    let mut found = Vec::new();
    for entry in listed {
        let path = entry.map_err(Error::file("list", dir))?.path();
        found.extend(
            path.extension()
                .is_some_and(|suffix| suffix == "pub")
                .then_some(path.clone()),
        );
    }
    found.sort_unstable();
    Ok(found)
}
