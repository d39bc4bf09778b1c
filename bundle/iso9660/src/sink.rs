//! A file that is written front to back, with holes for zeros.

use std::fs::File;
use std::io;
use std::io::{Seek as _, SeekFrom, Write};

/// Size of one write in bytes.
const CHUNK: usize = 1 << 20;

/// The zeros with which a chunk is compared.
static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// A writer to a new file. It skips chunks of zeros, which leaves holes: they read the same and
/// take no space.
pub struct Sink {
    file: File,
    chunk: Vec<u8>,
    position: u64,
}

impl Sink {
    /// Wraps an empty file.
    pub fn new(file: File) -> Self {
        Self {
            file,
            chunk: Vec::with_capacity(CHUNK),
            position: 0,
        }
    }

    /// The position of the next byte.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Writes zeros up to a position.
    pub fn fill_to(&mut self, position: u64) -> io::Result<()> {
        while self.position < position {
            let left = position - self.position;
            if self.chunk.is_empty() && left > CHUNK as u64 {
                self.file.seek(SeekFrom::Current(
                    i64::try_from(left).map_err(io::Error::other)?,
                ))?;
                self.position = position;
                return Ok(());
            }
            let room = CHUNK - self.chunk.len();
            self.write_all(&ZEROS[..usize::try_from(left).unwrap_or(room).min(room)])?;
        }
        Ok(())
    }

    /// Writes the rest and syncs the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush_chunk()?;
        // Skipping makes no hole at the end of a file.
        self.file.set_len(self.position)?;
        self.file.sync_all()
    }

    fn flush_chunk(&mut self) -> io::Result<()> {
        if self.chunk == ZEROS[..self.chunk.len()] {
            self.file.seek(SeekFrom::Current(
                i64::try_from(self.chunk.len()).map_err(io::Error::other)?,
            ))?;
        } else {
            self.file.write_all(&self.chunk)?;
        }
        self.chunk.clear();
        Ok(())
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(CHUNK - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..count]);
        self.position += count as u64;
        if self.chunk.len() == CHUNK {
            self.flush_chunk()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
