//! One state run at a time on a host: the daemon's jobs and `halite-minion apply` take one lock.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use halite_durable::private_lock::{Attempt, PrivateLock, name_of, private_dir};
use tokio::time::Instant;

/// The directory of the lock. Only root can open files in it.
const DIRECTORY: &str = "/run/halite";
const NAME: &str = "minion.lock";
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// The longest wait for another run. A job of the master has ended by then.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// The lock, held while states run. The kernel releases it when the process ends.
#[derive(Debug)]
pub struct Exclusive {
    _lock: Option<PrivateLock>,
}

/// The lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The lock file cannot be used, for example because the caller is not root.
    #[error("cannot use {}", path.display())]
    File {
        /// The file or its directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Another run has taken too long.
    #[error(
        "cannot start: {holder} has been applying states on this host for {minutes} minutes; wait for it, or end it"
    )]
    Held {
        /// The process.
        holder: String,
        /// The waiting time.
        minutes: u64,
    },
}

/// Takes the lock, waiting for the run that holds it; in that case `waiting` is called once with
/// the name of its process.
///
/// # Errors
/// The lock file cannot be used, or the other run does not end within an hour.
pub async fn take(waiting: impl FnOnce(&str)) -> Result<Exclusive, LockError> {
    take_in(Path::new(DIRECTORY), PATIENCE, waiting).await
}

async fn take_in(
    directory: &Path,
    patience: Duration,
    waiting: impl FnOnce(&str),
) -> Result<Exclusive, LockError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| LockError::File { path, source }
    };
    match private_dir(directory) {
        Ok(()) => {}
        // A root without /run: no other minion runs in it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Exclusive { _lock: None });
        }
        Err(error) => return Err(failed(directory)(error)),
    }
    let path = directory.join(NAME);
    let since = Instant::now();
    let mut waiting = Some(waiting);
    loop {
        let holder = match PrivateLock::attempt(&path).map_err(failed(&path))? {
            Attempt::Taken(lock) => return Ok(Exclusive { _lock: Some(lock) }),
            Attempt::Held(holder) => name_of(holder),
        };
        if let Some(waiting) = waiting.take() {
            waiting(&holder);
        }
        if since.elapsed() >= patience {
            let minutes = patience.as_secs() / 60;
            return Err(LockError::Held { holder, minutes });
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests look at the files of the lock"
)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[tokio::test]
    async fn a_run_waits_and_then_says_for_which_process() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("halite");
        let take = |patience| take_in(&directory, patience, |_| {});
        let held = take(Duration::ZERO).await.unwrap();
        let mut seen = String::new();
        let error = take_in(&directory, Duration::ZERO, |holder| {
            seen = holder.to_owned()
        })
        .await
        .unwrap_err();
        let me = format!("process {}", std::process::id());
        assert_eq!(seen, me);
        assert!(error.to_string().contains(&me), "{error}");
        let (after, ()) = tokio::join!(take(PATIENCE), async {
            tokio::time::sleep(ASK_AGAIN).await;
            drop(held);
        });
        after.unwrap();
    }

    #[tokio::test]
    async fn only_its_owner_reaches_the_lock() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("halite");
        std::fs::create_dir(&directory).unwrap();
        std::fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
        std::fs::write(directory.join(NAME), "").unwrap();
        let _held = take_in(&directory, Duration::ZERO, |_| {}).await.unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o7777;
        assert_eq!(mode(&directory), 0o700);
        assert_eq!(mode(&directory.join(NAME)), 0o600);
    }

    #[tokio::test]
    async fn a_root_without_a_place_for_locks_has_no_other_minion() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("run/halite");
        let lock = take_in(&directory, Duration::ZERO, |_| {}).await.unwrap();
        assert!(lock._lock.is_none());
    }
}
