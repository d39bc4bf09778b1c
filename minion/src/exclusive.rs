//! One state run at a time on a host: the daemon's jobs and `halite-minion apply` take one lock.

use std::fs::File;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

const PATH: &str = "/run/halite-minion.lock";
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// The lock, held while states run. The kernel releases it when the process ends.
#[derive(Debug)]
pub struct Exclusive {
    _file: Option<File>,
}

/// Takes the lock, waiting for the run that holds it; `waiting` is called once when there is one.
///
/// # Errors
/// The lock file cannot be used, for example because the caller is not root.
pub async fn take(waiting: impl FnOnce()) -> std::io::Result<Exclusive> {
    let file = match File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(PATH)
    {
        Ok(file) => file,
        // A root without /run: there is no other minion in it.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Exclusive { _file: None }),
        Err(e) => return Err(std::io::Error::new(e.kind(), format!("{PATH}: {e}"))),
    };
    let mut waiting = Some(waiting);
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Exclusive { _file: Some(file) }),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                if let Some(waiting) = waiting.take() {
                    waiting();
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
            Err(e) => return Err(e.into()),
        }
    }
}
