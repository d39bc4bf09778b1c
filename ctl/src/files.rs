//! Configuration files that are written only when they differ.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use halite_durable::files;

/// Writes a file whole or not at all, unless it has this content and mode. Returns true if
/// something was written.
///
/// # Errors
/// The system's reason, with the path.
pub fn write(path: &Path, content: &[u8], mode: u32) -> anyhow::Result<bool> {
    let same_mode = |path: &Path| {
        fs::metadata(path).is_ok_and(|data| data.permissions().mode() & 0o7777 == mode)
    };
    if fs::read(path).is_ok_and(|there| there == content) && same_mode(path) {
        return Ok(false);
    }
    files::replace(path, mode, content)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c.yaml");
        assert!(write(&path, b"x", 0o600).unwrap());
        assert!(!write(&path, b"x", 0o600).unwrap());
        assert!(write(&path, b"x", 0o644).unwrap());
        assert!(write(&path, b"y", 0o644).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"y");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
