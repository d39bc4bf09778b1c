//! Digests as the registry writes them, with every algorithm that it accepts.

use std::io::{Read, Write};
use std::str::FromStr;
use std::{fmt, io};

use halite_durable::files;
use sha2::{Sha256, Sha384, Sha512};

/// The algorithms that `distribution` accepts, with the number of hexadecimal digits.
const ALGORITHMS: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// The directory of all blobs, in the layout.
pub const BLOBS: &str = "blobs";

/// A difference between a blob and its digest.
#[derive(Debug, thiserror::Error)]
pub enum BlobDamage {
    /// The content has another digest.
    #[error("its {size} bytes have the digest {digest}")]
    Content {
        /// The size in bytes.
        size: u64,
        /// The digest of the content.
        digest: Digest,
    },
    /// Reading failed.
    #[error("it cannot be read")]
    Unreadable(#[source] io::Error),
    /// The file does not exist.
    #[error("it is missing")]
    Missing,
    /// The path is not a regular file, or cannot be opened.
    #[error("its file {0}")]
    Unexpected(String),
}

/// A text that is not a digest.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a digest")]
pub struct InvalidDigest(String);

/// A digest: `ALGORITHM:HEX`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest {
    algorithm: &'static str,
    hex: String,
}

impl Digest {
    /// Makes a digest from the names of a blob's directories.
    pub fn from_names(algorithm: &str, hex: &str) -> Option<Self> {
        let (algorithm, length) = ALGORITHMS
            .into_iter()
            .find(|(name, _)| *name == algorithm)?;
        let digits = hex
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        (digits && hex.len() == length).then(|| Self {
            algorithm,
            hex: hex.to_owned(),
        })
    }

    /// The blob's directory, relative to the layout: `blobs/ALGORITHM/HE/HEX`.
    pub fn folder(&self) -> String {
        format!(
            "{}/{}/{}/{}",
            BLOBS,
            self.algorithm,
            &self.hex[..2],
            self.hex
        )
    }

    /// The digest as a file name.
    pub fn file_name(&self) -> String {
        format!("{}-{}", self.algorithm, self.hex)
    }

    /// Copies a blob and compares it with this digest. Returns its size, or its damage; a blob that
    /// cannot be read is damaged, too.
    ///
    /// # Errors
    /// The copy cannot be written.
    pub fn copy(
        &self,
        from: &mut impl Read,
        to: &mut impl Write,
    ) -> io::Result<Result<u64, BlobDamage>> {
        let mut source = Source {
            from,
            failed: false,
        };
        let copied = match self.algorithm {
            "sha512" => files::stream_as::<Sha512>(&mut source, to),
            "sha384" => files::stream_as::<Sha384>(&mut source, to),
            _ => files::stream_as::<Sha256>(&mut source, to),
        };
        match copied {
            Ok((hex, size)) if hex == self.hex => Ok(Ok(size)),
            Ok((hex, size)) => Ok(Err(BlobDamage::Content {
                size,
                digest: Self {
                    algorithm: self.algorithm,
                    hex,
                },
            })),
            Err(error) if source.failed => Ok(Err(BlobDamage::Unreadable(error))),
            Err(error) => Err(error),
        }
    }

    /// Reads a blob and compares it with this digest. Returns its size.
    ///
    /// # Errors
    /// The blob is damaged.
    pub fn check(&self, from: &mut impl Read) -> Result<u64, BlobDamage> {
        // Writing to a sink does not fail, so an error can only be one of reading.
        self.copy(from, &mut io::sink())
            .unwrap_or_else(|error| Err(BlobDamage::Unreadable(error)))
    }
}

/// The source of a copy. Records that reading failed, to distinguish it from a failure to write.
struct Source<'a, R> {
    from: &'a mut R,
    failed: bool,
}

impl<R: Read> Read for Source<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.from.read(buffer).inspect_err(|_| self.failed = true)
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let parts = text
            .split_once(':')
            .and_then(|(algorithm, hex)| Self::from_names(algorithm, hex));
        parts.ok_or_else(|| InvalidDigest(text.to_owned()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm, self.hex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn every_algorithm_that_the_registry_accepts_is_checked() {
        for (text, content) in [
            (format!("sha256:{EMPTY}"), &b""[..]),
            (
                format!(
                    "sha512:{}",
                    "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
                ),
                b"abc",
            ),
            (
                format!(
                    "sha384:{}",
                    "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7"
                ),
                b"abc",
            ),
        ] {
            let digest: Digest = text.parse().unwrap();
            assert_eq!(digest.to_string(), text);
            assert_eq!(
                digest.check(&mut &content[..]).unwrap(),
                content.len() as u64,
                "{text}"
            );
            assert!(
                digest
                    .check(&mut &b"other"[..])
                    .unwrap_err()
                    .to_string()
                    .starts_with("its 5 bytes have the digest sha")
            );
        }
    }

    #[test]
    fn other_texts_are_not_digests() {
        let folder = format!("sha256:{EMPTY}")
            .parse::<Digest>()
            .unwrap()
            .folder();
        assert_eq!(folder, format!("blobs/sha256/e3/{EMPTY}"));
        let upper = EMPTY.to_uppercase();
        for wrong in [
            "",
            "sha256",
            "sha256:",
            "sha256:e3",
            "md5:d41d8cd98f00b204e9800998ecf8427e",
        ] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
        for wrong in [
            format!("sha256:{upper}"),
            format!("sha512:{EMPTY}"),
            format!("sha256:{EMPTY}\n"),
        ] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
        assert!(Digest::from_names("sha256", &format!("../{}", &EMPTY[3..])).is_none());
    }

    #[test]
    fn an_unreadable_file_is_damage_and_a_full_disk_is_not() {
        struct Bad;
        impl Read for Bad {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::InvalidData.into())
            }
        }
        impl Write for Bad {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let digest: Digest = format!("sha256:{EMPTY}").parse().unwrap();
        assert!(
            digest
                .copy(&mut Bad, &mut Vec::new())
                .unwrap()
                .unwrap_err()
                .to_string()
                .contains("cannot be read")
        );
        let error = digest.copy(&mut &b"x"[..], &mut Bad).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
