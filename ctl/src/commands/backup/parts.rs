//! The files of a backup, as the master sends them, for code that reads and blocks.

use std::io;
use std::io::Read;

use halite_proto::v1::BackupFile;
use halite_proto::v1::backup_part::Part;
use tokio::sync::mpsc::Receiver;

/// The stream after its head.
pub struct BackupStream {
    receiver: Receiver<Part>,
    /// Bytes of the current file that are not read yet.
    piece: io::Cursor<Vec<u8>>,
    /// The part after the current file.
    next: Option<Part>,
}

impl BackupStream {
    /// The parts that a task receives.
    pub fn new(receiver: Receiver<Part>) -> Self {
        Self {
            receiver,
            piece: io::Cursor::default(),
            next: None,
        }
    }

    /// The next file, whose content is then read from this value; `None` at the end.
    ///
    /// # Errors
    /// The stream ended before its end, or is malformed.
    pub fn next_file(&mut self) -> io::Result<Option<BackupFile>> {
        let part = self.next.take().or_else(|| self.receiver.blocking_recv());
        match part {
            Some(Part::File(file)) => Ok(Some(file)),
            Some(Part::End(true)) => Ok(None),
            Some(_) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the master sent something other than a file",
            )),
            None => Err(early()),
        }
    }
}

fn early() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the master's answer ended early",
    )
}

impl Read for BackupStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.piece.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            if self.next.is_some() {
                return Ok(0);
            }
            match self.receiver.blocking_recv() {
                Some(Part::Data(piece)) => self.piece = io::Cursor::new(piece),
                Some(other) => self.next = Some(other),
                None => return Err(early()),
            }
        }
    }
}
