//! The write-ahead log of SQLite, by its published format (<https://www.sqlite.org/walformat.html>):
//! where it ends, its bytes up to there, and the proof that bytes follow what was before.
//!
//! The end is in the index beside the log (`-shm`): what is behind it in the file is of an earlier
//! log, or of a transaction that was not committed.

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
/// Reads of the index, of which one must not meet a commit that is being noted.
const ATTEMPTS: usize = 10_000;
/// The two magic numbers: the checksums take words with the first or the last byte first.
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
    /// The index does not hold still.
    #[error("the index of the store's log does not hold still")]
    Busy,
    /// The bytes are no log of this format.
    #[error("the store's log has an unknown form: {0}")]
    Format(&'static str),
    /// The bytes do not follow those before.
    #[error("frame {0} of the store's log does not follow the one before")]
    Chain(u32),
}

fn cannot_read(path: &Path) -> impl FnOnce(io::Error) -> WalError + use<> {
    let path = path.to_owned();
    move |source| WalError::File { path, source }
}

/// A place in a log: after so many frames, of which the checksum is that of all up to there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The log, as its header names it.
    pub salt: [u8; 8],
    /// Frames up to here.
    pub frames: u32,
    /// The checksum of the last of them.
    pub checksum: [u8; 8],
}

/// The end of a log: the last commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The place.
    pub position: Position,
    /// Bytes of a page.
    pub page: usize,
}

/// Bytes of a log that begin and end with a frame; at the offset 0 they begin with the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The first byte's place in the log.
    pub offset: u64,
    /// The bytes.
    pub data: Vec<u8>,
    /// Frames of the log up to the end of the bytes.
    pub frames: u32,
}

/// The place of the first byte behind so many frames.
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

/// The first bytes of a slice; zeros where it is shorter.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(bytes) {
        *to = *from;
    }
    array
}

/// Fills a buffer; false when the file ends before.
fn read_whole(file: &mut impl io::Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The end of the log, by its index; none while it has no frames.
///
/// # Errors
/// The index cannot be read, or has another form.
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

/// Says whether a log has this place, after a commit.
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

/// The next bytes of the log behind so many frames and up to its end, at most about `most`; none
/// when there are none.
///
/// # Errors
/// The log cannot be read, or it is another one by now.
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
    // The next log is written over this one from the begin: its last frames are the last to go.
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

/// A log that is read from its begin: each frame must follow the one before.
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
    /// Begins a log with its header.
    ///
    /// # Errors
    /// It is no header of a log.
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
            return Err(WalError::Format("its size of a page"));
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

    /// Reads a log up to its last commit; none when there is no log with a commit. A damaged frame
    /// looks like the end: the caller knows up to where the log must reach.
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
        // What does not follow is of no commit.
        while read_whole(&mut file, &mut frame).map_err(cannot_read(log))?
            && chain.add(&frame).is_ok()
        {}
        chain.rewind();
        Ok((chain.frames > 0).then_some(chain))
    }

    /// Adds frames. None of them counts when one does not follow.
    ///
    /// # Errors
    /// They are no whole frames, or one does not follow the one before.
    pub fn add(&mut self, frames: &[u8]) -> Result<(), WalError> {
        let mut next = self.clone();
        let frame = FRAME_HEADER + self.page;
        if !frames.len().is_multiple_of(frame) {
            return Err(WalError::Format("a part of a frame"));
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

    /// The log, as its header names it.
    #[must_use]
    pub fn salt(&self) -> [u8; 8] {
        self.salt
    }

    /// The place of the next byte.
    #[must_use]
    pub fn offset(&self) -> u64 {
        offset(self.frames, self.page)
    }

    /// The last commit; none before the first.
    #[must_use]
    pub fn committed(&self) -> Option<Position> {
        let (frames, sum) = self.committed;
        (frames > 0).then(|| Position {
            salt: self.salt,
            frames,
            checksum: sum.bytes(),
        })
    }

    /// True when the last frame ends a commit.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.frames > 0 && self.committed.0 == self.frames
    }
}

#[cfg(test)]
#[path = "wal_tests.rs"]
mod tests;
