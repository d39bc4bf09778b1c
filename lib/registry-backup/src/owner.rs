//! The user of a registry, with whose rights its files are written.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use halite_durable::Error;
use rustix::fs::{Gid, Uid};
use rustix::process::{getegid, geteuid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

/// A user and a group.
#[derive(Debug, Clone, Copy)]
pub struct Owner(Uid, Gid);

impl Owner {
    /// The user and group whose rights this thread currently has.
    pub fn current() -> Self {
        Self(geteuid(), getegid())
    }

    /// The owner of a directory.
    pub fn from_dir(dir: &Path) -> Result<Self, Error> {
        let status = dir.metadata().map_err(Error::file("inspect", dir))?;
        Ok(Self(
            Uid::from_raw(status.uid()),
            Gid::from_raw(status.gid()),
        ))
    }

    /// Gives this thread the owner's rights instead of its own until the result is dropped; its
    /// supplementary groups remain. In `dir`, which the registry's user can change, a symbolic link
    /// could lead root elsewhere; it cannot lead that user to root's files. New files also get the
    /// right owner.
    ///
    /// # Errors
    /// A system call fails: only root may act as another user.
    pub fn act(self, dir: &Path) -> Result<PreviousRights, Error> {
        let acting = PreviousRights(Self::current());
        set_thread_res_gid(None::<Gid>, self.1, None::<Gid>)
            .and_then(|()| set_thread_res_uid(None::<Uid>, self.0, None::<Uid>))
            .map_err(io::Error::from)
            .map_err(Error::file("act as the registry's user in", dir))?;
        Ok(acting)
    }
}

/// The previous rights of a thread that acts as an owner.
pub struct PreviousRights(Owner);

impl Drop for PreviousRights {
    fn drop(&mut self) {
        let Owner(user, group) = self.0;
        // The user comes first, because only root may change the group. The kernel kept both as
        // saved ids, so this does not fail.
        let _ = set_thread_res_uid(None::<Uid>, user, None::<Uid>);
        let _ = set_thread_res_gid(None::<Gid>, group, None::<Gid>);
    }
}
