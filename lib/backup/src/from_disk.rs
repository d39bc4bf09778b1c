//! Reads a file from its disk or share. Recently written data is in the page cache, which would
//! return it whatever is on the disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{Advice, OFlags, fadvise};
use rustix::io::Errno;

/// Offsets, sizes and memory of direct reads are multiples of this, as disks with large sectors
/// require.
const ALIGNMENT: usize = 4096;
/// Bytes of one read.
const BUFFER: usize = 256 * 1024;

/// Passes on all bytes of a file. On a file system without direct reads, the page cache is first
/// asked to drop the file, which it does for everything that is already on the disk.
pub(crate) fn read(path: &Path, each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let mut options = File::options();
    options.read(true);
    let direct = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
    let file = match options.clone().custom_flags(direct).open(path) {
        Err(error) if is_unsupported(&error) => options.open(path)?,
        opened => opened?,
    };
    let mut space = vec![0; BUFFER + ALIGNMENT];
    let skipped = space.as_ptr().align_offset(ALIGNMENT);
    let buffer = space.get_mut(skipped..skipped.saturating_add(BUFFER));
    let buffer = buffer.ok_or_else(|| io::Error::other("no aligned memory"))?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    match pass_on(&file, buffer, each) {
        // The file system accepts the flag but refuses the read. Nothing was passed on yet.
        Err(error) if is_unsupported(&error) => {
            let file = options.open(path)?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
            pass_on(&file, buffer, each)
        }
        done => done,
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}

fn pass_on(file: &File, buffer: &mut [u8], each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let size = file.metadata()?.len();
    let mut offset = 0;
    while offset < size {
        let mut count = match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if offset > 0 && is_unsupported(&error) => {
                return Err(io::Error::other(error));
            }
            read => read?,
        };
        if offset + (count as u64) < size {
            // Only the end of the file may be between two multiples.
            count -= count % ALIGNMENT;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        each(&buffer[..count]);
        offset += count as u64;
    }
    Ok(())
}
