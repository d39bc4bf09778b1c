//! The write-ahead log of SQLite in its published format (<https://www.sqlite.org/walformat.html>):
//! its end, its bytes up to there, and the proof that bytes continue the previous ones.
//!
//! The end is in the index beside the log (`-shm`): anything behind it in the file belongs to an
//! earlier log, or to a transaction that was not committed.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::{io, thread};

/// Bytes of the log's header.
pub const HEADER: usize = 32;
/// Bytes of the header of a frame; its page follows.
pub const FRAME_HEADER: usize = 24;
/// Bytes of one copy of the index's header.
const INDEX: usize = 48;
/// Number of attempts to read the index while no commit is changing it.
const ATTEMPTS: usize = 10_000;
/// The two magic numbers for the byte order of the checksums.
const LITTLE: u32 = 0x377f_0682;
const BIG: u32 = 0x377f_0683;
/// The version of the format.
const VERSION: u32 = 3_007_000;

/// A log that cannot be read or continued.
#[derive(Debug, thiserror::Error)]
pub enum WalError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The index keeps changing.
    #[error("the index of the store's log kept changing while it was read")]
    Busy,
    /// The bytes are not a log of this format.
    #[error("the store's log has an unknown format: {0}")]
    Format(&'static str),
    /// The bytes do not follow the previous ones.
    #[error("frame {0} of the store's log does not follow the previous one")]
    Chain(u32),
}

fn cannot_read(path: &Path) -> impl FnOnce(io::Error) -> WalError + use<> {
    let path = path.to_owned();
    move |source| WalError::File { path, source }
}

/// A position in a log, after this number of frames and with the checksum of all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The id of the log in its header.
    pub salt: [u8; 8],
    /// The number of frames up to here.
    pub frames: u32,
    /// The checksum of the last frame.
    pub checksum: [u8; 8],
}

/// The end of a log, that is, its last commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The position.
    pub position: Position,
    /// Bytes of a page.
    pub page: usize,
}

/// Whole frames of a log; at the offset 0 they include the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The position of the first byte in the log.
    pub offset: u64,
    /// The bytes.
    pub data: Vec<u8>,
    /// The number of the log's frames up to the end of the bytes.
    pub frames: u32,
}

/// The position of the first byte after this number of frames.
#[must_use]
pub fn offset(frames: u32, page: usize) -> u64 {
    HEADER as u64 + u64::from(frames) * (FRAME_HEADER + page) as u64
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sum(u32, u32);

impl Sum {
    fn add(self, bytes: &[u8], word: fn([u8; 4]) -> u32) -> Self {
        let mut sum = self;
        for pair in bytes.chunks_exact(8) {
            let (first, second) = (array(&pair[..4]), array(&pair[4..]));
            sum.0 = sum.0.wrapping_add(word(first)).wrapping_add(sum.1);
            sum.1 = sum.1.wrapping_add(word(second)).wrapping_add(sum.0);
        }
        sum
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        Self(
            u32::from_be_bytes(array(&bytes[..4])),
            u32::from_be_bytes(array(&bytes[4..8])),
        )
    }

    fn bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.0.to_be_bytes());
        bytes[4..].copy_from_slice(&self.1.to_be_bytes());
        bytes
    }
}

/// Copies the first bytes of a slice; pads a shorter slice with zeros.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(bytes) {
        *to = *from;
    }
    array
}

/// Fills a buffer; returns `false` if the file ends first.
fn read_whole(file: &mut impl io::Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The end of the log according to its index; `None` while the log has no frames.
///
/// # Errors
/// The index cannot be read, or has another format.
pub fn end(index: &Path) -> Result<Option<End>, WalError> {
    let file = match File::open(index) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot_read(index)(error)),
    };
    for _ in 0..ATTEMPTS {
        let mut both = [0; 2 * INDEX];
        file.read_exact_at(&mut both, 0)
            .map_err(cannot_read(index))?;
        let (first, second) = both.split_at(INDEX);
        let sum = Sum(0, 0).add(&first[..40], u32::from_ne_bytes);
        let noted = Sum(
            u32::from_ne_bytes(array(&first[40..])),
            u32::from_ne_bytes(array(&first[44..])),
        );
        if first == second && sum == noted {
            return parse_index(first);
        }
        thread::yield_now();
    }
    Err(WalError::Busy)
}

fn parse_index(header: &[u8]) -> Result<Option<End>, WalError> {
    let number = |at: usize| u32::from_ne_bytes(array(&header[at..]));
    if number(0) != VERSION || header[12] != 1 {
        return Err(WalError::Format("its index"));
    }
    let size = usize::from(u16::from_ne_bytes(array(&header[14..])));
    let frames = number(16);
    if frames == 0 {
        return Ok(None);
    }
    let position = Position {
        salt: array(&header[32..]),
        frames,
        checksum: Sum(number(24), number(28)).bytes(),
    };
    let page = (size & 0xfe00) | ((size & 1) << 16);
    Ok(Some(End { position, page }))
}

/// Returns whether a log has this position, at the end of a commit.
///
/// # Errors
/// The log cannot be read.
pub fn has(log: &Path, end: &End, place: &Position) -> Result<bool, WalError> {
    if place.salt != end.position.salt || !(1..=end.position.frames).contains(&place.frames) {
        return Ok(false);
    }
    let file = File::open(log).map_err(cannot_read(log))?;
    let mut header = [0; FRAME_HEADER];
    file.read_exact_at(&mut header, offset(place.frames - 1, end.page))
        .map_err(cannot_read(log))?;
    let commit = u32::from_be_bytes(array(&header[4..])) != 0;
    Ok(commit && header[8..16] == place.salt && header[16..] == place.checksum)
}

/// The next bytes of the log after `behind` frames and up to its end, at most about `most`; `None`
/// if there are none.
///
/// # Errors
/// The log cannot be read, or another log has replaced it.
pub fn piece(log: &Path, behind: u32, end: &End, most: usize) -> Result<Option<Piece>, WalError> {
    let left = end.position.frames.saturating_sub(behind);
    if left == 0 {
        return Ok(None);
    }
    let frame = FRAME_HEADER + end.page;
    let count = left.min(u32::try_from((most / frame).max(1)).unwrap_or(u32::MAX));
    let frames = behind + count;
    let begin = if behind == 0 {
        0
    } else {
        offset(behind, end.page)
    };
    let length = usize::try_from(offset(frames, end.page) - begin).unwrap_or(usize::MAX);
    let mut data = vec![0; length];
    let file = File::open(log).map_err(cannot_read(log))?;
    file.read_exact_at(&mut data, begin)
        .map_err(cannot_read(log))?;
    let last = &data[length - frame..];
    let ends = frames != end.position.frames || last[16..FRAME_HEADER] == end.position.checksum;
    // The next log overwrites this one from the start: its last frames are overwritten last.
    let first = if behind == 0 { HEADER } else { 0 };
    let is_same = |salt: &[u8]| *salt == end.position.salt;
    let is_begin = behind > 0 || is_same(&data[16..24]);
    if !is_begin || !is_same(&data[first + 8..first + 16]) || !is_same(&last[8..16]) || !ends {
        return Err(WalError::Chain(frames));
    }
    Ok(Some(Piece {
        offset: begin,
        data,
        frames,
    }))
}

/// A log that is read from its start: each frame must follow the previous one.
#[derive(Debug, Clone)]
pub struct Chain {
    salt: [u8; 8],
    page: usize,
    word: fn([u8; 4]) -> u32,
    frames: u32,
    sum: Sum,
    /// The last commit.
    committed: (u32, Sum),
}

impl Chain {
    /// Starts a log with its header.
    ///
    /// # Errors
    /// The bytes are not a log's header.
    pub fn begin(header: &[u8]) -> Result<Self, WalError> {
        if header.len() < HEADER {
            return Err(WalError::Format("a short header"));
        }
        let number = |at: usize| u32::from_be_bytes(array(&header[at..]));
        let word = match number(0) {
            LITTLE => u32::from_le_bytes,
            BIG => u32::from_be_bytes,
            _ => return Err(WalError::Format("its magic number")),
        };
        let sum = Sum(0, 0).add(&header[..24], word);
        if number(4) != VERSION || sum != Sum::from_bytes(&header[24..]) {
            return Err(WalError::Format("its header"));
        }
        let page = usize::try_from(number(8)).unwrap_or_default();
        if !(512..=65536).contains(&page) || !page.is_power_of_two() {
            return Err(WalError::Format("its page size"));
        }
        Ok(Self {
            salt: array(&header[16..]),
            page,
            word,
            frames: 0,
            sum,
            committed: (0, sum),
        })
    }

    /// Reads a log up to its last commit; `None` if there is no log with a commit. A damaged frame
    /// looks like the end: the caller knows how far the log must reach.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(log: &Path) -> Result<Option<Self>, WalError> {
        let file = match File::open(log) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot_read(log)(error)),
        };
        let mut file = io::BufReader::with_capacity(1 << 20, file);
        let mut header = [0; HEADER];
        if !read_whole(&mut file, &mut header).map_err(cannot_read(log))? {
            return Ok(None);
        }
        let Ok(mut chain) = Self::begin(&header) else {
            return Ok(None);
        };
        let mut frame = vec![0; FRAME_HEADER + chain.page];
        // Frames that do not follow belong to no commit.
        while read_whole(&mut file, &mut frame).map_err(cannot_read(log))?
            && chain.add(&frame).is_ok()
        {}
        chain.rewind();
        Ok((chain.frames > 0).then_some(chain))
    }

    /// Adds frames, or none of them if one does not follow.
    ///
    /// # Errors
    /// The bytes are not whole frames, or a frame does not follow the previous one.
    pub fn add(&mut self, frames: &[u8]) -> Result<(), WalError> {
        let mut next = self.clone();
        let frame = FRAME_HEADER + self.page;
        if !frames.len().is_multiple_of(frame) {
            return Err(WalError::Format("an incomplete frame"));
        }
        for frame in frames.chunks_exact(frame) {
            let (header, page) = frame.split_at(FRAME_HEADER);
            let sum = next.sum.add(&header[..8], next.word).add(page, next.word);
            next.frames += 1;
            if header[8..16] != next.salt || sum != Sum::from_bytes(&header[16..]) {
                return Err(WalError::Chain(next.frames));
            }
            next.sum = sum;
            if u32::from_be_bytes(array(&header[4..])) != 0 {
                next.committed = (next.frames, sum);
            }
        }
        *self = next;
        Ok(())
    }

    /// Goes back to the last commit.
    pub fn rewind(&mut self) {
        (self.frames, self.sum) = self.committed;
    }

    /// The id of the log in its header.
    #[must_use]
    pub fn salt(&self) -> [u8; 8] {
        self.salt
    }

    /// The position of the next byte.
    #[must_use]
    pub fn offset(&self) -> u64 {
        offset(self.frames, self.page)
    }

    /// The last commit; `None` before the first.
    #[must_use]
    pub fn committed(&self) -> Option<Position> {
        let (frames, sum) = self.committed;
        (frames > 0).then(|| Position {
            salt: self.salt,
            frames,
            checksum: sum.bytes(),
        })
    }

    /// Returns whether the last frame ends a commit.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.frames > 0 && self.committed.0 == self.frames
    }
}

#[cfg(test)]
#[path = "wal_tests.rs"]
mod tests;
