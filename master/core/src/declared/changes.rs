//! Notices changes of the operator's documents without a look at each of them.
//!
//! The kernel lists each change in a watched directory (inotify). The list is read when it is
//! needed, not by a thread that may be late: what was changed before the question is in it.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init, remove_watch};
use rustix::io::{Errno, read};

/// Every change of a file's content, time, mode or name, and of the directory itself. Reading is
/// none.
const EVENTS: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Room for many events at once.
const BUFFER: usize = 4096;

/// The number of times that watched directories have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(u64);

/// The changes in a set of directories.
pub struct Changes {
    /// None when the kernel refused one: it limits them for each user.
    inotify: Option<OwnedFd>,
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    generation: u64,
    directories: BTreeSet<i32>,
    /// True when nothing that matters can change without an event.
    complete: bool,
}

impl Changes {
    /// A watch over no directory yet. Without inotify nothing is ever known to be unchanged.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it opens a file descriptor")]
    pub fn new() -> Self {
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        if let Err(error) = &inotify {
            tracing::warn!(%error, "cannot watch the documents: they are read each time that they matter; fs.inotify.max_user_instances may be too low");
        }
        Self {
            inotify: inotify.ok(),
            watched: Mutex::default(),
        }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        // Nothing panics while holding the lock.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The generation of the directories now; none when a change might be missed, so that the files
    /// themselves have to be looked at.
    pub fn generation(&self) -> Option<Generation> {
        let inotify = self.inotify.as_ref()?;
        let mut watched = self.watched();
        if has_events(inotify) {
            watched.generation += 1;
        }
        watched.complete.then_some(Generation(watched.generation))
    }

    /// Watches directories from now on, and no others. One that is not there is noticed when it
    /// appears in another one. May hang with the file system.
    pub fn watch(&self, directories: &[PathBuf]) {
        let Some(inotify) = &self.inotify else { return };
        let mut complete = true;
        let mut now = BTreeSet::new();
        for (at, directory) in directories.iter().enumerate() {
            match add_watch(inotify, directory, EVENTS) {
                Ok(number) => {
                    now.insert(number);
                }
                Err(Errno::NOENT) if at > 0 => {}
                Err(_) => complete = false,
            }
            // A link leads to files that change without an event here.
            complete &= !is_reached_by_links(directory);
        }
        let mut watched = self.watched();
        for gone in watched.directories.difference(&now) {
            // The kernel has removed that of a directory which is gone.
            let _ = remove_watch(inotify, *gone);
        }
        watched.directories = now;
        watched.complete = complete;
    }

    /// Notes files that were found: one with several names may change without an event.
    pub fn found<'a>(&self, mut files: impl Iterator<Item = &'a Path>) {
        if files.any(has_other_names) {
            self.watched().complete = false;
        }
    }
}

fn has_other_names(file: &Path) -> bool {
    let found = std::fs::symlink_metadata(file);
    found.is_ok_and(|found| found.is_symlink() || found.nlink() > 1)
}

fn is_reached_by_links(directory: &Path) -> bool {
    let absolute = std::path::absolute(directory);
    let real = std::fs::canonicalize(directory);
    matches!((absolute, real), (Ok(absolute), Ok(real)) if absolute != real)
}

/// Empties the kernel's list; true when something was in it. An overflow is an event, too.
fn has_events(inotify: &OwnedFd) -> bool {
    let mut buffer = [MaybeUninit::<u8>::uninit(); BUFFER];
    let mut found = false;
    loop {
        match read(inotify.as_fd(), &mut buffer[..]) {
            Ok(_) => found = true,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return found,
            // Unknown is changed.
            Err(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use tempfile::TempDir;

    use super::*;

    struct Site {
        directory: TempDir,
        changes: Changes,
    }

    impl Site {
        fn new() -> Self {
            let directory = TempDir::new().unwrap();
            let site = Self {
                changes: Changes::new(),
                directory,
            };
            fs::write(site.path("cluster.yaml"), "a").unwrap();
            site.watch();
            site
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn watch(&self) {
            let directory = self.directory.path().to_owned();
            self.changes.watch(&[directory, self.path("nodes")]);
        }

        /// Whether this work changes the generation, once.
        fn notices(&self, work: impl FnOnce(&Self)) -> bool {
            let before = self.changes.generation().unwrap();
            work(self);
            let after = self.changes.generation().unwrap();
            assert_eq!(self.changes.generation(), Some(after));
            before != after
        }
    }

    #[test]
    fn each_kind_of_change_is_noticed_at_once_and_reading_is_none() {
        let site = Site::new();
        assert!(!site.notices(|_| {}));
        assert!(!site.notices(|site| {
            fs::read(site.path("cluster.yaml")).unwrap();
        }));
        assert!(site.notices(|site| fs::write(site.path("cluster.yaml"), "b").unwrap()));
        assert!(site.notices(|site| {
            let file = fs::OpenOptions::new()
                .append(true)
                .open(site.path("cluster.yaml"));
            // Still open: an editor may leave it so.
            let mut file = file.unwrap();
            file.write_all(b"c").unwrap();
            assert!(site.notices(|_| file.write_all(b"d").unwrap()));
        }));
        assert!(site.notices(|site| {
            fs::write(site.path("new"), "e").unwrap();
        }));
        assert!(site.notices(|site| {
            fs::rename(site.path("new"), site.path("cluster.yaml")).unwrap();
        }));
        assert!(site.notices(|site| fs::remove_file(site.path("cluster.yaml")).unwrap()));
    }

    #[test]
    fn a_directory_that_appears_later_is_noticed_and_then_watched() {
        let site = Site::new();
        assert!(site.notices(|site| fs::create_dir(site.path("nodes")).unwrap()));
        site.watch();
        assert!(site.notices(|site| fs::write(site.path("nodes/a.yaml"), "a").unwrap()));
        assert!(site.notices(|site| {
            fs::rename(site.path("nodes"), site.path("before")).unwrap();
            fs::create_dir(site.path("nodes")).unwrap();
        }));
        site.watch();
        assert!(site.notices(|site| fs::write(site.path("nodes/a.yaml"), "b").unwrap()));
        assert!(
            !site.notices(|site| fs::write(site.path("before/a.yaml"), "c").unwrap()),
            "what was moved away counts no more"
        );
    }

    #[test]
    fn more_changes_than_the_kernel_lists_are_a_change() {
        let site = Site::new();
        let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let limit: u32 = limit.trim().parse().unwrap();
        assert!(site.notices(|site| {
            for number in 0..=limit / 2 {
                let _ = fs::remove_file(site.path(&format!("{}", number % 2)));
                fs::write(site.path(&format!("{}", (number + 1) % 2)), "").unwrap();
            }
        }));
    }

    #[test]
    fn links_are_not_trusted() {
        let site = Site::new();
        let other = TempDir::new().unwrap();
        std::os::unix::fs::symlink(other.path(), site.path("nodes")).unwrap();
        site.watch();
        assert_eq!(site.changes.generation(), None);
        fs::remove_file(site.path("nodes")).unwrap();
        site.watch();
        assert!(site.changes.generation().is_some());
        std::os::unix::fs::symlink(other.path().join("a"), site.path("b.yaml")).unwrap();
        let files = [site.path("cluster.yaml"), site.path("b.yaml")];
        let [cluster, link] = files.each_ref().map(PathBuf::as_path);
        site.changes.found([cluster, link].into_iter());
        assert_eq!(site.changes.generation(), None);
        site.watch();
        site.changes.found([cluster].into_iter());
        assert!(site.changes.generation().is_some());
        fs::hard_link(cluster, other.path().join("cluster.yaml")).unwrap();
        site.changes.found([cluster].into_iter());
        assert_eq!(site.changes.generation(), None);
    }

    #[test]
    fn a_directory_that_is_not_there_is_not_trusted() {
        let changes = Changes::new();
        assert_eq!(changes.generation(), None, "nothing is watched");
        changes.watch(&[PathBuf::from("/nonexistent/halite")]);
        assert_eq!(changes.generation(), None);
    }
}
