//! The check that a bundle fits on the disk, before any of it is written.

use std::path::Path;

use crate::error::Error;

/// The least space that a file or directory takes, in bytes: the block of the common file systems.
const BLOCK: u64 = 4096;

/// The space that files need on a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Need {
    /// Bytes, in whole blocks.
    pub bytes: u64,
    /// Number of files and directories.
    pub files: u64,
}

impl Need {
    /// Adds one file of this size.
    pub fn add(&mut self, size: u64) {
        // One more block for its directory entry or index: more than most files need.
        self.bytes += size.next_multiple_of(BLOCK) + BLOCK;
        self.files += 1;
    }

    /// The space that files of these sizes need.
    #[must_use]
    pub fn for_sizes(sizes: impl IntoIterator<Item = u64>) -> Self {
        let mut need = Self::default();
        sizes.into_iter().for_each(|size| need.add(size));
        need
    }
}

/// The free space of a file system for users other than root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes.
    pub bytes: u64,
    /// Number of files; `None` if the file system has no such limit.
    pub files: Option<u64>,
}

impl Room {
    /// The free space of the file system that contains a directory.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn at(dir: &Path) -> Result<Self, Error> {
        let found = rustix::fs::statvfs(dir)
            .map_err(|error| Error::file("determine the free space of", dir)(error.into()))?;
        Ok(Self {
            bytes: found.f_bavail.saturating_mul(found.f_frsize),
            files: (found.f_files > 0).then_some(found.f_favail),
        })
    }

    /// Checks that the free space is enough for a bundle.
    ///
    /// # Errors
    /// The space that is missing and its file system.
    pub fn holds(&self, need: Need, dir: &Path) -> Result<(), Error> {
        self.short(need, "the bundle").map_or(Ok(()), |what| {
            let message = format!(
                "{what}; nothing was written: free some space, or add the bundle from the directory where it is mounted or extracted"
            );
            Err(Error::content(dir, message))
        })
    }

    /// A message about the space that `what` lacks; `None` if there is enough.
    #[must_use]
    pub fn short(&self, need: Need, what: &str) -> Option<String> {
        if need.bytes > self.bytes {
            return Some(format!(
                "{what} needs {} MiB and only {} MiB are free on this file system",
                need.bytes.div_ceil(1 << 20),
                self.bytes >> 20
            ));
        }
        let free = self.files.filter(|free| need.files > *free)?;
        let needed = need.files;
        Some(format!(
            "{what} needs {needed} files and this file system has room for {free} more"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_beforehand() {
        let mut need = Need::default();
        need.add(1 << 20);
        need.add(1);
        assert_eq!(
            need,
            Need {
                bytes: (1 << 20) + 3 * 4096,
                files: 2
            }
        );
        let dir = Path::new("/var/lib/halite/bundles");
        let room = |bytes, files| Room { bytes, files };
        assert!(room(need.bytes, None).holds(need, dir).is_ok());
        assert!(room(need.bytes, Some(2)).holds(need, dir).is_ok());
        let text = room(need.bytes - 1, None)
            .holds(need, dir)
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("needs 2 MiB") && text.contains("1 MiB are free"),
            "{text}"
        );
        assert!(
            text.contains("/var/lib/halite/bundles") && text.contains("nothing was written"),
            "{text}"
        );
        let text = room(need.bytes, Some(1))
            .holds(need, dir)
            .unwrap_err()
            .to_string();
        assert!(text.contains("needs 2 files"), "{text}");
        assert!(Room::at(&std::env::temp_dir()).unwrap().bytes > 0);
        assert!(Room::at(Path::new("/no/such/place")).is_err());
    }
}
