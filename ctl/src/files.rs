//! Atomic writing of configuration files: after a power failure, a file has its old or its new
//! content.

use std::fs;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::Context as _;

/// Writes a file: temporary file, fsync, rename, fsync of the directory. Creates missing
/// directories with mode 0755. A file that already has this content and mode is not written.
/// Returns true if something was written.
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
    put(path, content, mode).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(true)
}

fn put(path: &Path, content: &[u8], mode: u32) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = directory.join(format!(".{name}.new"));
    // A leftover of an interrupted run may have another mode.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(directory)?.sync_all()
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
