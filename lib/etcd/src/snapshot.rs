//! A snapshot of a member's database, as a stream.

use std::pin::Pin;

use futures_util::{Stream, StreamExt as _};
use tonic::{Status, Streaming};

use crate::error::EtcdError;
use crate::wire::SnapshotResponse;

/// Verb and object of its errors.
pub(crate) const SNAPSHOT: &str = "take a snapshot of etcd";
/// Bytes of the hash that the member sends after its database.
const HASH: u64 = 32;

/// The size of the snapshot that begins with this part; `None` if it is impossible.
fn announced(first: &SnapshotResponse) -> Option<u64> {
    let here = u64::try_from(first.blob.len()).ok()?;
    here.checked_add(first.remaining_bytes)?.checked_add(HASH)
}

type Parts = Pin<Box<dyn Stream<Item = Result<Vec<u8>, EtcdError>> + Send>>;

/// The bytes of a snapshot, as they arrive. The last 32 are the SHA-256 of all bytes before them;
/// the receiver checks it, because the transport may damage the data, too.
pub struct Snapshot {
    size: u64,
    parts: Parts,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Snapshot {
    /// A snapshot of these parts.
    #[must_use]
    pub fn of_parts(parts: Vec<Vec<u8>>) -> Self {
        let size = parts.iter().map(|part| part.len() as u64).sum();
        let parts = futures_util::stream::iter(parts.into_iter().map(Ok));
        Self {
            size,
            parts: Box::pin(parts),
        }
    }

    /// Waits for the first part, which announces the size.
    pub(crate) async fn begin(
        mut stream: Streaming<SnapshotResponse>,
        broken: impl Fn(Status) -> EtcdError + Send + 'static,
    ) -> Result<Self, EtcdError> {
        let first = stream.message().await.map_err(&broken)?;
        let first = first.unwrap_or_default();
        let Some(size) = announced(&first) else {
            let left = first.remaining_bytes;
            return Err(broken(Status::out_of_range(format!(
                "the member announces {left} more bytes, which is an impossible size"
            ))));
        };
        let rest = stream.map(move |part| part.map(|part| part.blob).map_err(&broken));
        let parts = futures_util::stream::once(async { Ok(first.blob) }).chain(rest);
        Ok(Self {
            size,
            parts: Box::pin(parts),
        })
    }

    /// The number of bytes, as the member announced it.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// The stream broke: the received bytes are not a snapshot.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, EtcdError> {
        self.parts.next().await.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announced_size_that_is_impossible_is_refused() {
        let first = |remaining_bytes| SnapshotResponse {
            remaining_bytes,
            blob: vec![0; 10],
            ..SnapshotResponse::default()
        };
        assert_eq!(announced(&first(100)), Some(100 + 10 + HASH));
        let most = u64::MAX - HASH - 10;
        assert_eq!(announced(&first(most)), Some(u64::MAX));
        for size in [most + 1, u64::MAX - 10, u64::MAX] {
            assert_eq!(announced(&first(size)), None, "{size}");
        }
    }
}
