//! The names in a directory.

use std::ffi::OsString;
use std::path::Path;

use super::refused;
use crate::host::{HostError, HostResult};

/// Names in a directory, sorted; empty if it does not exist.
///
/// # Errors
/// Any failure except absence, or a name that is not UTF-8: a state that skipped its entry would
/// claim to have seen the whole directory.
pub fn list(path: &Path) -> HostResult<Vec<String>> {
    let text = |name: OsString| {
        name.into_string().map_err(|name| {
            let reason = format!("the name {name:?} is not UTF-8; rename or remove this entry");
            refused("list", path, &reason)
        })
    };
    entries(path)?.into_iter().map(text).collect()
}

/// Like [`list`], without the names that are not UTF-8: for reports and for directories of
/// Halite's own files.
///
/// # Errors
/// Any failure except absence.
pub fn utf8_names(path: &Path) -> HostResult<Vec<String>> {
    let names = entries(path)?.into_iter();
    Ok(names.filter_map(|name| name.into_string().ok()).collect())
}

fn entries(path: &Path) -> HostResult<Vec<OsString>> {
    let failed = |e: std::io::Error| HostError::io("list", path, e);
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed(e)),
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
    let mut names: Vec<OsString> = names.collect::<Result<_, _>>().map_err(failed)?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn a_name_that_is_not_utf_8_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        for name in [&b"a\xff"[..], b"b"] {
            std::fs::write(dir.path().join(OsStr::from_bytes(name)), "").unwrap();
        }
        let refused = list(dir.path()).unwrap_err().to_string();
        let wanted = format!("cannot list {}: the name \"a\\xFF\"", dir.path().display());
        assert!(refused.starts_with(&wanted), "{refused}");
        assert_eq!(utf8_names(dir.path()).unwrap(), ["b"]);
    }
}
