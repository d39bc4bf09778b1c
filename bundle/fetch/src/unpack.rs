//! Decompression of indexes: they are read as a stream, within bounds.

use std::fs::File;
use std::io;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::Path;

use crate::error::Error;

/// The largest window of Zstandard in bytes: the default limit of `zstd` itself.
const WINDOW: u64 = 128 << 20;

/// The compression of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    None,
    /// gzip.
    Gzip,
    /// xz.
    Xz,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// The compression according to the suffix of a name; `None` for one that is not supported
    /// (`.bz2` …).
    pub fn of(name: &str) -> Option<Self> {
        let file = name.rsplit('/').next().unwrap_or(name);
        match file.rsplit_once('.').map(|(_, end)| end) {
            Some("gz") => Some(Self::Gzip),
            Some("xz") => Some(Self::Xz),
            Some("zst") => Some(Self::Zstd),
            Some("xml") | None => Some(Self::None),
            Some(_) => None,
        }
    }
}

impl Compression {
    /// The compression according to the beginning of a file.
    pub fn sniff(path: &Path) -> Result<Self, Error> {
        let mut begin = Vec::new();
        let file = File::open(path).map_err(Error::file("read", path))?;
        file.take(6)
            .read_to_end(&mut begin)
            .map_err(Error::file("read", path))?;
        Ok(Self::begins(&begin))
    }

    /// The compression according to the first bytes: six, or fewer in a shorter file.
    pub fn begins(bytes: &[u8]) -> Self {
        match bytes {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            [first, rest @ ..] if rest.starts_with(&SKIPPED) && is_skipped(*first) => Self::Zstd,
            _ => Self::None,
        }
    }
}

/// The bytes after the first one of a skippable Zstandard frame (RFC 8878, 3.1.2).
const SKIPPED: [u8; 3] = [0x2a, 0x4d, 0x18];

fn is_skipped(first: u8) -> bool {
    (0x50..=0x5f).contains(&first)
}

/// Reads a compressed file, at most `limit` bytes of its content.
pub fn open(path: &Path, compression: Compression, limit: u64) -> Result<impl Read + use<>, Error> {
    let file = BufReader::with_capacity(
        1 << 16,
        File::open(path).map_err(Error::file("read", path))?,
    );
    Ok(Bounded {
        inner: decoded(file, compression),
        left: limit,
    })
}

/// The content of a compressed stream, without a limit.
pub fn decoded<'a>(stream: impl BufRead + 'a, compression: Compression) -> Box<dyn Read + 'a> {
    match compression {
        Compression::None => Box::new(stream),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(stream)),
        Compression::Xz => Box::new(lzma_rust2::XzReader::new(stream, true)),
        Compression::Zstd => Box::new(Zstd {
            source: Some(stream),
            frame: None,
        }),
    }
}

/// A reader that fails at the limit instead of ending: half an index would look like a complete
/// one.
struct Bounded {
    inner: Box<dyn Read>,
    left: u64,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "it unpacks to more than it should",
            )
        })?;
        Ok(count)
    }
}

/// A Zstandard reader. A file may have several frames, including skippable ones.
struct Zstd<R: Read> {
    source: Option<R>,
    frame: Option<Frame<R>>,
}

/// A frame whose first bytes were inspected.
type Frame<R> = ruzstd::decoding::StreamingDecoder<
    io::Chain<Cursor<[u8; 4]>, R>,
    ruzstd::decoding::FrameDecoder,
>;

impl<R: BufRead> Zstd<R> {
    /// Begins the next frame; `None` at the end of the file.
    fn begin(mut source: R) -> io::Result<Option<Frame<R>>> {
        while !source.fill_buf()?.is_empty() {
            let mut magic = [0; 4];
            source.read_exact(&mut magic)?;
            if !(is_skipped(magic[0]) && magic[1..] == SKIPPED) {
                let whole = Cursor::new(magic).chain(source);
                let frame =
                    ruzstd::decoding::StreamingDecoder::new_with_max_window_size(whole, WINDOW);
                let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, format!("{error}"));
                return frame.map(Some).map_err(wrong);
            }
            let mut length = [0; 4];
            source.read_exact(&mut length)?;
            let length = u64::from(u32::from_le_bytes(length));
            if io::copy(&mut Read::by_ref(&mut source).take(length), &mut io::sink())? < length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(None)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(mut frame) = self.frame.take() {
                let count = frame.read(buffer)?;
                if count > 0 || buffer.is_empty() {
                    self.frame = Some(frame);
                    return Ok(count);
                }
                self.source = Some(frame.into_inner().into_inner().1);
            }
            let Some(source) = self.source.take() else {
                return Ok(0);
            };
            match Self::begin(source)? {
                Some(frame) => self.frame = Some(frame),
                None => return Ok(0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use halite_testkit::packed;

    use super::*;

    #[test]
    fn what_real_programs_pack_is_unpacked_within_bounds() {
        let dir = tempfile::tempdir().unwrap();
        let first: Vec<u8> = (0..300_000_u32)
            .flat_map(|n| (n % 977).to_le_bytes())
            .collect();
        let parts = [first.as_slice(), b"the second stream"];
        let whole = parts.concat();
        // A skippable frame (RFC 8878, 3.1.2).
        let skipped = [&[0x5a, 0x2a, 0x4d, 0x18, 5, 0, 0, 0][..], b"notes"].concat();
        for (name, program) in [("a.gz", "gzip"), ("a.xz", "xz"), ("a.zst", "zstd")] {
            let path = dir.path().join(name);
            let mut bytes = packed(program, &parts);
            if program == "zstd" {
                bytes = [
                    &skipped[..],
                    &packed(program, &parts[..1]),
                    &skipped,
                    &packed(program, &parts[1..]),
                    &skipped,
                ]
                .concat();
            }
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(
                Some(Compression::sniff(&path).unwrap()),
                Compression::of(name)
            );
            let read = |limit: usize| {
                let mut bytes = Vec::new();
                let mut reader = open(&path, Compression::of(name).unwrap(), limit as u64).unwrap();
                reader.read_to_end(&mut bytes).map(|_| bytes)
            };
            assert!(read(whole.len()).unwrap() == whole, "{name}");
            let error = read(whole.len() - 1).unwrap_err().to_string();
            assert_eq!(error, "it unpacks to more than it should", "{name}");
        }
    }

    #[test]
    fn names_tell_how() {
        assert_eq!(
            Compression::of("main/binary-amd64/Packages"),
            Some(Compression::None)
        );
        assert_eq!(
            Compression::of("repodata/x-primary.xml"),
            Some(Compression::None)
        );
        assert_eq!(Compression::of("a.b/Packages"), Some(Compression::None));
        assert_eq!(Compression::of("Packages.bz2"), None);
    }
}
