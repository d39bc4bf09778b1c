//! File work on separate threads, so that a large file or a slow disk does not block the minion's
//! only thread, which serves its link.

use std::io;
use std::io::Read;
use std::path::Path;

use tokio::sync::mpsc;
use tokio::task::{JoinError, spawn_blocking};

use super::files;
use super::files::Owner;
use crate::host::{HostError, HostResult};

/// Files with fewer bytes are read at once.
const LARGE: u64 = 1 << 20;
/// Bytes that are passed to the writing thread at a time, so that it needs no copy of the content.
const PIECE: usize = 1 << 20;
/// Pieces that may wait for the writing thread.
const WAITING: usize = 4;

fn broken(action: &str, path: &Path, error: JoinError) -> HostError {
    HostError::failed(format!("cannot {action} {}", path.display()), error)
}

/// Does work on a path; `action` is a verb for the error.
///
/// # Errors
/// The work panics.
pub(super) async fn in_background<T: Send + 'static>(
    action: &str,
    path: &Path,
    work: impl FnOnce(&Path) -> T + Send + 'static,
) -> HostResult<T> {
    let own = path.to_owned();
    let done = spawn_blocking(move || work(&own)).await;
    done.map_err(|error| broken(action, path, error))
}

/// Like [`files::write`].
///
/// # Errors
/// Like [`files::write`].
pub(super) async fn write(path: &Path, content: &[u8], owner: Owner) -> HostResult<()> {
    let Err(error) = write_once(path, content, owner).await else {
        return Ok(());
    };
    let release = move |path: &Path| {
        let released = files::released(path, &error);
        (error, released)
    };
    let (error, released) = in_background("write", path, release).await?;
    if released? {
        write_once(path, content, owner).await
    } else {
        Err(error)
    }
}

async fn write_once(path: &Path, content: &[u8], owner: Owner) -> HostResult<()> {
    let (pieces, received) = mpsc::channel(WAITING);
    let mut reader = Pieces {
        received,
        missing: content.len(),
        piece: io::Cursor::default(),
    };
    let own = path.to_owned();
    let written = spawn_blocking(move || files::write_from(&own, &mut reader, owner));
    for piece in content.chunks(PIECE) {
        // A writer that has failed reads no more; its error is the result.
        if pieces.send(piece.to_vec()).await.is_err() {
            break;
        }
    }
    drop(pieces);
    written
        .await
        .map_err(|error| broken("write", path, error))?
}

/// The content of a file, in pieces.
struct Pieces {
    received: mpsc::Receiver<Vec<u8>>,
    /// Bytes that are not received yet.
    missing: usize,
    piece: io::Cursor<Vec<u8>>,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.piece.read(buffer)?;
        if count > 0 || self.missing == 0 || buffer.is_empty() {
            return Ok(count);
        }
        // A cancelled write has no more pieces: half a file must not take the place of the old one.
        let piece = self.received.blocking_recv();
        let piece = piece.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.missing = self.missing.saturating_sub(piece.len());
        self.piece = io::Cursor::new(piece);
        self.piece.read(buffer)
    }
}

/// Like [`files::head`].
///
/// # Errors
/// Like [`files::head`].
pub(super) async fn read(path: &Path, bytes: u64) -> HostResult<Option<Vec<u8>>> {
    let size = std::fs::metadata(path).map_or(0, |found| found.len());
    if size.min(bytes) < LARGE {
        return files::head(path, bytes);
    }
    in_background("read", path, move |path| files::head(path, bytes)).await?
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn other_tasks_run_while_a_large_file_is_written_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        let content: Vec<u8> = (0..3 * PIECE + 7).map(|at| (at % 251) as u8).collect();
        let turns = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&turns);
        let other = tokio::spawn(async move {
            loop {
                counter.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        });
        let before = turns.load(Ordering::SeqCst);
        write(&path, &content, Owner::default()).await.unwrap();
        let written = turns.load(Ordering::SeqCst);
        // On a busy machine a read can end before anything waits for it.
        let mut after = written;
        for _ in 0..100 {
            let found = read(&path, u64::MAX).await.unwrap().unwrap();
            assert!(found == content, "another content");
            after = turns.load(Ordering::SeqCst);
            if after > written {
                break;
            }
        }
        other.abort();
        assert!(
            before < written && written < after,
            "{before} {written} {after}"
        );
    }

    #[tokio::test]
    async fn a_cancelled_write_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write(&path, b"old", Owner::default()).await.unwrap();
        let content = vec![b'x'; 64 * PIECE];
        {
            let mut writing = pin!(write(&path, &content, Owner::default()));
            tokio::select! {
                biased;
                _ = &mut writing => panic!("it is not cancelled"),
                () = tokio::task::yield_now() => {}
            }
        }
        // Only a failure waits so long.
        let _ = tokio::time::timeout(Duration::from_secs(60), async {
            while files::list(dir.path()).unwrap() != ["a"] {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        assert_eq!(files::list(dir.path()).unwrap(), ["a"]);
        assert_eq!(files::read(&path).unwrap().unwrap(), b"old");
    }

    #[tokio::test]
    async fn an_error_of_the_writing_thread_is_the_result() {
        let dir = tempfile::tempdir().unwrap();
        let content = vec![b'x'; 9 * PIECE];
        let error = write(dir.path(), &content, Owner::default())
            .await
            .unwrap_err();
        assert!(error.to_string().contains("it is a directory"), "{error}");
        assert_eq!(read(&dir.path().join("no"), u64::MAX).await.unwrap(), None);
    }
}
