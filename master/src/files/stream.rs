//! Files as streams of pieces, checked while they are read.

use std::path::PathBuf;
use std::pin::Pin;

use futures_util::Stream;
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::refusal::Refusal;

/// Pieces of a file.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Vec<u8>, Refusal>> + Send>>;

/// Bytes in one piece: well below the limit of a message.
const PIECE: usize = 256 * 1024;
/// Pieces that may wait for a slow reader.
const QUEUE: usize = 4;

/// The pieces of bytes in memory.
pub(super) fn of_bytes(content: Vec<u8>) -> ByteStream {
    let mut pieces: Vec<Result<Vec<u8>, Refusal>> = content
        .chunks(PIECE)
        .map(|piece| Ok(piece.to_vec()))
        .collect();
    if pieces.is_empty() {
        // An empty file is a file.
        pieces.push(Ok(Vec::new()));
    }
    Box::pin(tokio_stream::iter(pieces))
}

/// The pieces of a file of the bundle. The last item is a refusal when the content does not have
/// this digest; the minion checks it too, and then discards the file.
pub(super) async fn of_file(path: PathBuf, sha256: String) -> Result<ByteStream, Refusal> {
    let shown = path.display().to_string();
    let failed = |shown: &str, error: &std::io::Error| {
        Refusal::internal(format!("cannot read {shown}: {error}"))
    };
    let mut file = tokio::fs::File::open(&path)
        .await
        .map_err(|error| failed(&shown, &error))?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
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
}
