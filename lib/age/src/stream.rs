//! The content: chunks of 64 KiB, each with a tag, the last one marked (STREAM).

use std::io;
use std::io::{Read, Write};

use halite_names::AgeRecipient;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use super::error::AgeError;
use super::kdf::{derive, random};
use super::keys::Identity;
use super::{FILE_KEY, header};

const CHUNK: usize = 64 * 1024;
const TAG: usize = 16;
const NONCE: usize = 16;

/// The cipher of a file's content, with the number of the next chunk.
struct Chunks {
    cipher: LessSafeKey,
    counter: u64,
}

impl Chunks {
    fn new(file_key: &[u8; FILE_KEY], nonce: &[u8]) -> Result<Self, AgeError> {
        let key = derive(file_key, nonce, "payload");
        let key = UnboundKey::new(&CHACHA20_POLY1305, &*key);
        let key = key.map_err(|_| AgeError::Format("its key cannot be used"))?;
        Ok(Self {
            cipher: LessSafeKey::new(key),
            counter: 0,
        })
    }

    /// The nonce of the next chunk: eleven bytes of its number, and the mark of the last one.
    fn nonce(&mut self, is_last: bool) -> Nonce {
        let mut nonce = [0; 12];
        nonce[3..11].copy_from_slice(&self.counter.to_be_bytes());
        nonce[11] = u8::from(is_last);
        self.counter += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Encrypts the bytes written to it. Without [`Encryptor::finish`], the output cannot be decrypted.
pub struct Encryptor<W: Write> {
    to: W,
    chunks: Chunks,
    /// Content that is not encrypted yet. It has room for a chunk, so it is never reallocated.
    waiting: Zeroizing<Vec<u8>>,
}

impl<W: Write> Encryptor<W> {
    /// Writes the header for these recipients.
    ///
    /// # Errors
    /// A recipient cannot be used, or writing fails.
    pub fn new(mut to: W, recipients: &[AgeRecipient]) -> Result<Self, AgeError> {
        let file_key: Zeroizing<[u8; FILE_KEY]> = random()?;
        to.write_all(header::write(recipients, &file_key)?.as_bytes())?;
        let nonce: Zeroizing<[u8; NONCE]> = random()?;
        to.write_all(&*nonce)?;
        Ok(Self {
            to,
            chunks: Chunks::new(&file_key, &*nonce)?,
            waiting: Zeroizing::new(Vec::with_capacity(CHUNK + TAG)),
        })
    }

    fn seal(&mut self, is_last: bool) -> io::Result<()> {
        let nonce = self.chunks.nonce(is_last);
        let cipher = &self.chunks.cipher;
        let sealed = cipher.seal_in_place_append_tag(nonce, Aad::empty(), &mut *self.waiting);
        sealed.map_err(|_| AgeError::Content)?;
        self.to.write_all(&self.waiting)?;
        self.waiting.clear();
        Ok(())
    }

    /// Writes the last chunk.
    ///
    /// # Errors
    /// Writing fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.seal(true)?;
        Ok(self.to)
    }
}

impl<W: Write> Write for Encryptor<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full chunk waits until more bytes show that it is not the last one.
        if self.waiting.len() == CHUNK && !bytes.is_empty() {
            self.seal(false)?;
        }
        let taken = bytes.len().min(CHUNK - self.waiting.len());
        self.waiting.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Decrypts while it is read. Truncated content is an error at its end.
pub struct Decryptor<R: Read> {
    from: R,
    chunks: Chunks,
    /// The decrypted chunk, and the number of its bytes that were read.
    plain: Zeroizing<Vec<u8>>,
    read: usize,
    /// Bytes that follow the chunk, already read to find its end.
    ahead: Vec<u8>,
    ended: bool,
    /// An error is final: otherwise the next read could look like the end of the content.
    failed: bool,
}

impl<R: Read> Decryptor<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// No identity fits, or it is not an age file.
    pub fn new(mut from: R, identities: &[Identity]) -> Result<Self, AgeError> {
        let file_key = header::read(&mut from, identities)?;
        let mut nonce = [0; NONCE];
        let read = from.read_exact(&mut nonce);
        read.map_err(|_| AgeError::Format("its header is cut short"))?;
        Ok(Self {
            from,
            chunks: Chunks::new(&file_key, &nonce)?,
            plain: Zeroizing::default(),
            read: 0,
            ahead: Vec::new(),
            ended: false,
            failed: false,
        })
    }

    /// Opens the next chunk.
    fn open(&mut self) -> io::Result<()> {
        if self.ended {
            return Err(AgeError::Content.into());
        }
        let mut chunk = std::mem::take(&mut self.ahead);
        // One more byte shows that the chunk is not the last one.
        let missing = CHUNK + TAG + 1 - chunk.len();
        (&mut self.from)
            .take(missing as u64)
            .read_to_end(&mut chunk)?;
        let follows = chunk.len() > CHUNK + TAG;
        if follows {
            self.ahead = chunk.split_off(CHUNK + TAG);
        }
        // A full chunk may have the wrong mark: it is still content, and the error comes after it.
        let marks = [!follows, follows];
        let marks = &marks[..if chunk.len() == CHUNK + TAG { 2 } else { 1 }];
        let number = self.chunks.counter;
        let mut opened = None;
        for is_last in marks {
            self.chunks.counter = number;
            let nonce = self.chunks.nonce(*is_last);
            let mut plain = Zeroizing::new(chunk.clone());
            let cipher = &self.chunks.cipher;
            let length = cipher.open_in_place(nonce, Aad::empty(), &mut plain);
            if let Ok(length) = length.map(|plain| plain.len()) {
                plain.truncate(length);
                opened = Some((plain, *is_last));
                break;
            }
        }
        let (plain, is_last) = opened.ok_or(AgeError::Content)?;
        if plain.is_empty() && number > 0 {
            return Err(AgeError::Content.into());
        }
        self.plain = plain;
        (self.read, self.ended) = (0, is_last);
        Ok(())
    }
}

impl<R: Read> Read for Decryptor<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Nothing may follow the last chunk.
        let is_done = |own: &Self| own.ended && own.ahead.is_empty();
        while self.read == self.plain.len() && !is_done(self) {
            if self.failed {
                return Err(AgeError::Content.into());
            }
            self.failed = true;
            self.open()?;
            self.failed = false;
        }
        let left = &self.plain[self.read..];
        let count = left.len().min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        self.read += count;
        Ok(count)
    }
}
