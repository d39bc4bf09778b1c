//! One build at a time of one recipe, and in one cache.

use std::{
    fs::{self, File, TryLockError},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use crate::error::Error;

/// Holds a file or directory that is there, for as long as this lives. The kernel takes it back when the process dies.
#[derive(Debug)]
pub struct Busy {
    file: File,
}

impl Busy {
    /// Takes it, and waits for whoever has it; `what` names it to people.
    pub fn wait(path: &Path, what: &str, progress: &mut dyn FnMut(&str)) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::file("read", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                progress(&format!("waiting for another build that uses the {what} {}", path.display()));
                file.lock().map_err(Error::file("lock", path))?;
            }
            Err(TryLockError::Error(error)) => return Err(Error::file("lock", path)(error)),
        }
        Ok(Self { file })
    }

    /// Whether a path still is what is held.
    pub fn is(&self, path: &Path) -> bool {
        let held = self.file.metadata();
        let there = fs::symlink_metadata(path);
        held.is_ok_and(|held| there.is_ok_and(|now| (now.dev(), now.ino()) == (held.dev(), held.ino())))
    }

    /// Takes it, unless somebody has it.
    pub fn take(path: &Path) -> Result<Option<Self>, Error> {
        let file = File::open(path).map_err(Error::file("read", path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(Error::file("lock", path)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_second_waits_until_the_first_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let first = Busy::wait(&path, "cache", &mut |text| panic!("{text}")).unwrap();
        assert!(Busy::take(&path).unwrap().is_none());
        let (tell, told) = mpsc::channel();
        let second = std::thread::spawn(move || {
            Busy::wait(&path, "cache", &mut |text| tell.send(text.to_owned()).unwrap()).unwrap()
        });
        let text = told.recv().unwrap();
        assert!(text.starts_with("waiting for another build that uses the cache "), "{text}");
        assert!(!second.is_finished());
        drop(first);
        drop(second.join().unwrap());
        assert!(Busy::take(dir.path()).unwrap().is_some());
    }
}
