//! The file systems of the directories that a host of a cluster fills.

use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};

/// The directories below `/var/lib` that a first host fills.
const PLACES: [&str; 4] = [
    "/var/lib/containerd",
    "/var/lib/etcd",
    "/var/lib/halite",
    "/var/lib/kubelet",
];

/// A directory that is filled, with the free space of its file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilledPlace {
    /// Its path.
    pub path: String,
    /// The number of its file system; equal for directories on one.
    pub device: u64,
    /// The free space in MiB.
    pub free: u64,
}

impl FilledPlace {
    /// The directories of this host. One that does not exist yet is on the file system of its
    /// parent.
    pub(crate) fn collect() -> Vec<Self> {
        PLACES.into_iter().filter_map(Self::read).collect()
    }

    fn read(path: &str) -> Option<Self> {
        let existing = existing(Path::new(path))?;
        let stat = rustix::fs::statvfs(&existing).ok()?;
        Some(Self {
            path: path.to_owned(),
            device: rustix::fs::stat(&existing).ok()?.st_dev,
            free: stat.f_bavail.saturating_mul(stat.f_frsize) / (1024 * 1024),
        })
    }
}

/// The real path of a directory, or of the nearest one above it that exists.
pub(crate) fn existing(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|place| place.canonicalize().ok())
}

/// Returns whether entries of a directory have no type. overlayfs cannot use such a file system,
/// for example XFS without `ftype=1`. `false` if the directory cannot be read.
pub(crate) fn has_no_types(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let untyped = || {
        let directory = existing(path)?;
        let open = rustix::fs::open(directory, flags, Mode::empty()).ok()?;
        let entry = Dir::new(open).ok()?.next()?.ok()?;
        // Each directory has at least `.`, and `..`.
        Some(entry.file_type() == FileType::Unknown)
    };
    untyped().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_does_not_exist_is_on_the_file_system_above_it() {
        let scratch = tempfile::tempdir().unwrap();
        let real = scratch.path().join("real");
        std::fs::create_dir(&real).unwrap();
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let found = existing(&link.join("a/b")).unwrap();
        assert_eq!(found, real.canonicalize().unwrap());
        let place = FilledPlace::read(&link.join("a").display().to_string()).unwrap();
        let same = FilledPlace::read(&real.display().to_string()).unwrap();
        assert_eq!(place.device, same.device);
    }

    #[test]
    fn entries_of_an_ordinary_file_system_have_types() {
        let scratch = tempfile::tempdir().unwrap();
        assert!(!has_no_types(scratch.path()));
        assert!(!has_no_types(&scratch.path().join("missing")));
    }
}
