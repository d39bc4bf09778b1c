//! Digests as the registry writes them, of every kind that it takes.

use std::io::{Read, Write};
use std::str::FromStr;
use std::{fmt, io};

use halite_durable::files;
use sha2::{Sha256, Sha384, Sha512};

/// The kinds that `distribution` takes, and how many digits they have.
const KINDS: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// `ALGORITHM:HEX`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest {
    algorithm: &'static str,
    hex: String,
}

impl Digest {
    /// From the names of the directories that a blob is in.
    pub fn of_names(algorithm: &str, hex: &str) -> Option<Self> {
        let (algorithm, length) = KINDS.into_iter().find(|(name, _)| *name == algorithm)?;
        let digits = hex
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        (digits && hex.len() == length).then(|| Self {
            algorithm,
            hex: hex.to_owned(),
        })
    }

    /// The directory of the blob, relative to that of the registry: `blobs/ALGORITHM/HE/HEX`.
    pub fn folder(&self) -> String {
        format!(
            "{}/{}/{}/{}",
            super::BLOBS,
            self.algorithm,
            &self.hex[..2],
            self.hex
        )
    }

    /// One name for it that can be that of a file.
    pub fn file_name(&self) -> String {
        format!("{}-{}", self.algorithm, self.hex)
    }

    /// Copies what should have this digest. Its size; or why it is not what it should be.
    ///
    /// # Errors
    /// It cannot be written. That it cannot be read is damage.
    pub fn copy(
        &self,
        from: &mut impl Read,
        to: &mut impl Write,
    ) -> io::Result<Result<u64, String>> {
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
            Ok((hex, size)) => Ok(Err(format!(
                "its {size} bytes are those of {}:{hex}",
                self.algorithm
            ))),
            Err(error) if source.failed => Ok(Err(format!("it cannot be read: {error}"))),
            Err(error) => Err(error),
        }
    }

    /// Reads what should have this digest: its size, or why it is not that.
    pub fn check(&self, from: &mut impl Read) -> Result<u64, String> {
        // Nothing can go wrong with writing to nowhere.
        self.copy(from, &mut io::sink())
            .unwrap_or_else(|error| Err(error.to_string()))
    }
}

/// Remembers which end of a copy failed.
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
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text
            .split_once(':')
            .and_then(|(algorithm, hex)| Self::of_names(algorithm, hex));
        parts.ok_or_else(|| format!("{text:?} is no digest"))
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
    fn every_kind_that_the_registry_takes_is_checked() {
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
                digest.check(&mut &content[..]),
                Ok(content.len() as u64),
                "{text}"
            );
            assert!(
                digest
                    .check(&mut &b"other"[..])
                    .unwrap_err()
                    .starts_with("its 5 bytes are those of sha")
            );
        }
    }

    #[test]
    fn a_digest_is_nothing_else() {
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
        assert!(Digest::of_names("sha256", &format!("../{}", &EMPTY[3..])).is_none());
    }

    #[test]
    fn a_full_disk_is_no_damage_and_an_unreadable_file_is() {
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
                .contains("cannot be read")
        );
        let error = digest.copy(&mut &b"x"[..], &mut Bad).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
