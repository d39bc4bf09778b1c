//! Files as streams of pieces, which are checked while they are read.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::Stream;
use halite_core::refusal::{Refusal, RefusalKind};
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;

/// Pieces of a file.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Vec<u8>, Refusal>> + Send>>;

/// The size of a piece: well below the limit of a message.
const PIECE: usize = 256 * 1024;
/// The number of files that are read concurrently. Each blocks a thread while its file system does
/// not answer; the other threads are for the rest of the master.
static READERS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(64)));
/// The timeout for a turn and for opening the file.
const PATIENCE: Duration = Duration::from_secs(10);
/// Capacity of the queue of a slow reader.
const QUEUE: usize = 4;

/// Splits bytes in memory into pieces.
pub(super) fn of_bytes(content: Vec<u8>) -> ByteStream {
    let mut pieces: Vec<Result<Vec<u8>, Refusal>> = content
        .chunks(PIECE)
        .map(|piece| Ok(piece.to_vec()))
        .collect();
    if pieces.is_empty() {
        // An empty file needs a piece too.
        pieces.push(Ok(Vec::new()));
    }
    Box::pin(tokio_stream::iter(pieces))
}

/// Reads a file of the bundle in pieces. If the content does not have this digest, the last item
/// is an error; the minion checks the digest too, and then discards the file.
pub(super) async fn of_file(path: PathBuf, sha256: String) -> Result<ByteStream, Refusal> {
    of_file_by(Arc::clone(&READERS), PATIENCE, path, sha256).await
}

async fn of_file_by(
    readers: Arc<Semaphore>,
    patience: Duration,
    path: PathBuf,
    sha256: String,
) -> Result<ByteStream, Refusal> {
    let shown = path.display().to_string();
    let failed = |shown: &str, error: &std::io::Error| {
        Refusal::internal(format!("cannot read {shown}: {error}"))
    };
    let opening = async {
        let reader = readers.acquire_owned().await;
        let reader = reader.map_err(std::io::Error::other)?;
        // A separate task, because the thread that opens the file may hang for longer than the
        // caller waits, and counts as a reader until then.
        let opened = tokio::spawn(async move { (File::open(&path).await, reader) }).await;
        let (file, reader) = opened.map_err(std::io::Error::other)?;
        file.map(|file| (file, reader))
    };
    let opened = tokio::time::timeout(patience, opening).await;
    let opened = opened.map_err(|_| {
        let message = format!("cannot read {shown}: its file system does not answer");
        Refusal::new(RefusalKind::Unavailable, message)
    })?;
    let (mut file, reader) = opened.map_err(|error| failed(&shown, &error))?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let _reader = reader;
        let mut hash = Sha256::new();
        loop {
            let mut piece = vec![0; PIECE];
            let read = match file.read(&mut piece).await {
                Ok(read) => read,
                Err(error) => {
                    let _ = sender.send(Err(failed(&shown, &error))).await;
                    return;
                }
            };
            if read == 0 {
                break;
            }
            piece.truncate(read);
            hash.update(&piece);
            if sender.send(Ok(piece)).await.is_err() {
                return;
            }
        }
        let found: String = hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        if found != sha256 {
            let message = format!(
                "{shown} is damaged: it differs from the bundle's manifest; `ctl bundle verify` names all damaged files"
            );
            let _ = sender.send(Err(Refusal::internal(message))).await;
        }
    });
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use halite_states::tree::sha256;

    use super::*;

    #[tokio::test]
    async fn a_file_is_complete_and_a_flipped_byte_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let content = vec![7_u8; PIECE * 2 + 5];
        std::fs::write(&path, &content).unwrap();
        let pieces: Vec<_> = of_file(path.clone(), sha256(&content))
            .await
            .unwrap()
            .collect()
            .await;
        assert_eq!(
            pieces
                .into_iter()
                .flat_map(Result::unwrap)
                .collect::<Vec<u8>>(),
            content
        );

        let mut damaged = content.clone();
        damaged[9] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let pieces: Vec<_> = of_file(path, sha256(&content))
            .await
            .unwrap()
            .collect()
            .await;
        assert!(
            pieces
                .last()
                .unwrap()
                .as_ref()
                .unwrap_err()
                .message
                .contains("damaged")
        );
    }

    #[tokio::test]
    async fn an_empty_file_is_one_empty_piece() {
        let pieces: Vec<_> = of_bytes(Vec::new()).collect().await;
        assert_eq!(pieces.len(), 1);
    }

    #[tokio::test]
    async fn a_file_system_that_hangs_takes_a_bounded_number_of_threads() {
        let directory = tempfile::tempdir().unwrap();
        let (pipe, sound) = (directory.path().join("pipe"), directory.path().join("file"));
        std::fs::write(&sound, b"x").unwrap();
        // Opening it waits for a writer.
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let readers = Arc::new(Semaphore::new(1));
        let read = async |path: &PathBuf, patience| {
            let readers = Arc::clone(&readers);
            of_file_by(readers, patience, path.clone(), sha256(b"x")).await
        };
        let short = Duration::from_millis(20);
        for path in [&pipe, &sound] {
            let refused = read(path, short).await.err().unwrap();
            assert!(refused.message.contains("does not answer"), "{refused}");
        }
        drop(std::fs::File::options().write(true).open(&pipe).unwrap());
        let pieces: Vec<_> = read(&sound, PATIENCE).await.unwrap().collect().await;
        assert_eq!(pieces[0].as_ref().unwrap(), b"x");
    }
}
