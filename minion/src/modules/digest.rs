//! Digests of files, of which some are large.

use halite_durable::digest::sha256;

use super::Failure;
use crate::host::HostError;

/// More bytes are hashed on a thread of their own, so that the link to the master still answers.
const LARGE: usize = 1 << 20;

/// Returns the content again, and whether it has this SHA-256.
pub(super) async fn has_digest(content: Vec<u8>, wanted: &str) -> Result<(Vec<u8>, bool), Failure> {
    if content.len() < LARGE {
        let is_same = sha256(&content) == wanted;
        return Ok((content, is_same));
    }
    let wanted = wanted.to_owned();
    let work = move || {
        let is_same = sha256(&content) == wanted;
        (content, is_same)
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| HostError::failed("cannot compute a digest".to_owned(), e).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn small_and_large_contents_are_compared() {
        for length in [3, LARGE] {
            let content = vec![b'x'; length];
            let wanted = sha256(&content);
            let (content, is_same) = has_digest(content, &wanted).await.unwrap();
            assert!(is_same && content.len() == length);
            assert!(!has_digest(content, "0").await.unwrap().1);
        }
    }
}
