//! The directory that gets the documents.

use std::path::Path;

use anyhow::bail;
use rustix::fs::{Access, access};

/// Checks that the documents can be written into a directory, so that a mistake is found before the
/// first question.
///
/// # Errors
/// The directory, or the one in which it would be made, is not writable.
pub fn check(out: &Path) -> anyhow::Result<()> {
    let nodes = out.join("nodes");
    for directory in [out, nodes.as_path()] {
        let existing = directory.ancestors().find(|path| path.exists());
        let existing = existing.unwrap_or(Path::new("."));
        let shown = existing.display();
        let cause = if existing.is_dir() {
            match access(existing, Access::WRITE_OK | Access::EXEC_OK) {
                Ok(()) => continue,
                Err(error) => std::io::Error::from(error).to_string(),
            }
        } else {
            "it is not a directory".to_owned()
        };
        bail!(
            "cannot write documents in {}: {shown}: {cause}; name a directory that you can write to with --out",
            out.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_written_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        check(Path::new("some-directory-to-make")).unwrap();
        check(&dir.path().join("a/b")).unwrap();
        let refused = |out: &Path| check(out).unwrap_err().to_string();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = refused(&file.join("a"));
        assert!(
            error.contains("file: it is not a directory") && error.contains("--out"),
            "{error}"
        );
        std::fs::write(dir.path().join("nodes"), "").unwrap();
        let error = refused(dir.path());
        assert!(error.contains("nodes: it is not a directory"), "{error}");
        // The kernel lets no user write there, not even root.
        if let Some(place) = ["/sys/fs/cgroup", "/sys", "/proc/sys"]
            .map(Path::new)
            .into_iter()
            .find(|place| access(*place, Access::WRITE_OK).is_err())
        {
            assert!(refused(&place.join("a")).contains("--out"));
        }
    }
}
