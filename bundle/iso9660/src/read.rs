//! Reading an image without mounting it.

use std::fs::File;
use std::io;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use halite_durable::{Error, files};

use super::error::{ImageDamage, Unreadable};
use super::parse::ParsedRecord;
use super::volume::{
    BLOCK_SIZE, PRIMARY, ROOT, SPACE_SIZE, STANDARD, TERMINATOR, VOLUME_ID, VOLUME_ID_LENGTH,
};
use super::walk::Walk;
use super::{BLOCK, FIRST_DESCRIPTOR, FLAG_DIRECTORY, SECTOR, parse};

pub use super::walk::ImageFile;

/// An image with its directories in memory.
#[derive(Debug)]
pub struct IsoImage {
    file: File,
    path: PathBuf,
    id: String,
    size: u64,
    entries: Vec<ImageFile>,
}

impl IsoImage {
    /// Opens an image and reads its directories by their Rock Ridge names. Bytes after the image in
    /// the same file are ignored.
    ///
    /// # Errors
    /// The file cannot be read, is not an ISO 9660 image with Rock Ridge, is shorter than its
    /// descriptor says, or has an entry that [`super::write`] cannot produce: a link, an invalid
    /// name, two files with the same path, a directory within itself. The *content* of files is not
    /// checked.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (file, length) = files::open_sized(path)?;
        let failed = |damage: ImageDamage| Error::invalid(path, Unreadable::from(damage));
        let descriptor = descriptor(&file).map_err(failed)?;
        let volume = Descriptor::parse(&descriptor, length).map_err(failed)?;
        let entries = Walk::new(&file, volume.space)
            .run(&volume.root)
            .map_err(failed)?;
        let size = u64::from(volume.space) * SECTOR;
        Ok(Self {
            file,
            path: path.to_owned(),
            id: volume.id,
            size,
            entries,
        })
    }

    /// The same image, with a bundle's two modes in place of the modes in its directories.
    pub fn with_plain_modes(mut self) -> Self {
        for entry in &mut self.entries {
            entry.mode = if entry.mode & 0o100 == 0 {
                0o644
            } else {
                0o755
            };
        }
        self
    }

    /// The volume identifier.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Size of the image in bytes, without the bytes after it in the same file.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The files, in the order of their paths.
    #[must_use]
    pub fn entries(&self) -> &[ImageFile] {
        &self.entries
    }

    /// A file by its path.
    #[must_use]
    pub fn entry(&self, path: &str) -> Option<&ImageFile> {
        let found = self
            .entries
            .binary_search_by(|entry| entry.path.as_str().cmp(path))
            .ok()?;
        self.entries.get(found)
    }

    /// The content of a file. Several can be read at the same time.
    ///
    /// # Errors
    /// There is no such file.
    pub fn reader(&self, path: &str) -> Result<FileReader<'_>, Error> {
        let entry = self.entry(path).ok_or_else(|| {
            Error::content(&self.path, format!("there is no file {path} in this image"))
        })?;
        Ok(self.content(entry))
    }

    /// The whole content of a file, in memory.
    ///
    /// # Errors
    /// There is no such file, it is larger than 256 MiB, or it cannot be read.
    pub fn small(&self, path: &str) -> Result<Vec<u8>, Error> {
        const LARGEST: u64 = 256 << 20;
        let mut bytes = Vec::new();
        let mut from = self.reader(path)?.take(LARGEST + 1);
        from.read_to_end(&mut bytes)
            .map_err(Error::file("read", &self.path))?;
        if bytes.len() as u64 > LARGEST {
            return Err(Error::content(
                &self.path,
                format!("{path} is too large for a file of this name"),
            ));
        }
        Ok(bytes)
    }

    /// The content of an entry.
    pub(super) fn content(&self, entry: &ImageFile) -> FileReader<'_> {
        FileReader {
            file: &self.file,
            offset: entry.offset,
            size: entry.size,
            at: 0,
        }
    }

    /// The path of the image.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// The content of a file in an image.
#[derive(Debug, Clone)]
pub struct FileReader<'a> {
    file: &'a File,
    offset: u64,
    size: u64,
    at: u64,
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.size.saturating_sub(self.at);
        let wanted = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        if wanted == 0 {
            return Ok(0);
        }
        let count = self
            .file
            .read_at(&mut buffer[..wanted], self.offset + self.at)?;
        if count == 0 {
            // The file has become shorter since it was opened.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for FileReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.size.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// The largest number of descriptors before the primary one.
const MOST_DESCRIPTORS: u64 = 16;

/// The primary volume descriptor.
fn descriptor(file: &File) -> Result<[u8; BLOCK], ImageDamage> {
    let mut bytes = [0; BLOCK];
    for sector in (FIRST_DESCRIPTOR..).take(usize::try_from(MOST_DESCRIPTORS).unwrap_or(1)) {
        file.read_exact_at(&mut bytes, sector * SECTOR)
            .map_err(ImageDamage::TooShort)?;
        if bytes[1..6] != *STANDARD {
            return Err(ImageDamage::OtherFormat);
        }
        match bytes[0] {
            PRIMARY => return Ok(bytes),
            TERMINATOR => break,
            _ => {}
        }
    }
    Err(ImageDamage::NoDescriptor)
}

struct Descriptor<'a> {
    id: String,
    space: u32,
    root: ParsedRecord<'a>,
}

impl<'a> Descriptor<'a> {
    /// Parses the descriptor of an image in a file of this length.
    fn parse(bytes: &'a [u8; BLOCK], length: u64) -> Result<Self, ImageDamage> {
        if usize::from(parse::both16(bytes, BLOCK_SIZE)?) != BLOCK {
            return Err(ImageDamage::BlockSize);
        }
        let space = parse::both32(bytes, SPACE_SIZE)?;
        let size = u64::from(space) * SECTOR;
        if size > length {
            return Err(ImageDamage::CutOff { size, length });
        }
        let (root, _) = ParsedRecord::split(&bytes[ROOT..ROOT + 34])?;
        if root.flags & FLAG_DIRECTORY == 0 {
            return Err(ImageDamage::RootIsFile);
        }
        let id = &bytes[VOLUME_ID..VOLUME_ID + VOLUME_ID_LENGTH];
        let id = String::from_utf8_lossy(id).trim_end().to_owned();
        Ok(Self { id, space, root })
    }
}
