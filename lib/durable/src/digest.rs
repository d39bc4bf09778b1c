//! SHA-256 digests, which identify all fetched content.

use std::str::FromStr;
use std::{fmt, io};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// The SHA-256 of bytes in memory.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Reads to the end and returns the number of bytes and their SHA-256.
///
/// # Errors
/// The reader fails.
pub fn sha256_of_reader(reader: &mut dyn io::Read) -> io::Result<(u64, String)> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    let mut size = 0;
    loop {
        let read = reader.read(&mut buffer)?;
        if read == 0 {
            return Ok((size, hex(&hash.finalize())));
        }
        size += read as u64;
        hash.update(buffer.get(..read).unwrap_or_default());
    }
}

/// Returns whether a text is a SHA-256 in lower-case hexadecimal digits.
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A SHA-256 digest: 64 lower-case hexadecimal digits, so that it can be used as a file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    /// The digest of bytes in memory.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha256(bytes))
    }

    /// The digest of all bytes that a hasher has received.
    #[must_use]
    pub fn finish(hash: Sha256) -> Self {
        Self(hex(&hash.finalize()))
    }

    /// The 64 digits.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.0
    }

    /// `sha256:` and the digits, as OCI writes it.
    #[must_use]
    pub fn oci(&self) -> String {
        format!("sha256:{}", self.0)
    }
}

/// A text that is not a SHA-256 digest.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a SHA-256 digest (64 digits 0-9 and a-f); other kinds are not supported")]
pub struct InvalidDigest(String);

impl FromStr for Digest {
    type Err = InvalidDigest;

    /// Parses the digits, with or without `sha256:` before them.
    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        if is_sha256(hex) {
            return Ok(Self(hex.to_owned()));
        }
        Err(InvalidDigest(text.to_owned()))
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sha256_is_a_digest() {
        let digest = Digest::of(b"");
        assert_eq!(
            digest.hex(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(digest.oci().parse::<Digest>().unwrap(), digest);
        assert_eq!(digest.hex().parse::<Digest>().unwrap(), digest);
        let upper = digest.hex().to_uppercase();
        for wrong in [
            "",
            "sha256:",
            "../../etc/passwd",
            "sha512:00",
            &digest.hex()[1..],
            &upper,
        ] {
            assert!(
                wrong
                    .parse::<Digest>()
                    .unwrap_err()
                    .to_string()
                    .contains("is not a SHA-256 digest"),
                "{wrong}"
            );
        }
    }
}
