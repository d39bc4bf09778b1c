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
        let size = first.blob.len() as u64 + first.remaining_bytes + HASH;
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
