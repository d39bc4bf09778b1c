//! Reads tar archives, plain or gzipped, one entry at a time and without holding any content: a
//! small archive may unpack to more than the host can store.

use std::io;
use std::io::{BufRead, Read};

use halite_states::archive::unsupported;

use super::{HostError, HostResult};

/// The limits of an archive's content.
#[derive(Debug, Clone, Copy)]
pub struct ArchiveLimits {
    /// Bytes of one file.
    pub file: u64,
    /// Bytes of the whole archive, unpacked.
    pub total: u64,
    /// Number of entries.
    pub entries: u64,
}

/// The limits of an archive that a state unpacks.
pub const LIMITS: ArchiveLimits = ArchiveLimits {
    file: 4 << 30,
    total: 16 << 30,
    entries: 500_000,
};

/// An entry to create below the target directory.
pub enum ArchiveEntry<'a> {
    /// A directory.
    Directory,
    /// A file with its content.
    File(&'a mut dyn Read),
    /// A symbolic link's target.
    Symlink(String),
    /// A hard link to another entry, by its path below the target.
    Hardlink(String),
}

/// Calls `make(path below the target, permission bits, entry)` for each entry, leading components
/// stripped as by `tar --strip-components`.
///
/// # Errors
/// A broken archive, an entry outside of the target, an entry that is neither file, directory nor
/// link, more than [`LIMITS`], or an error of `make`.
pub fn unpack(
    name: &str,
    reader: impl BufRead,
    strip: u32,
    make: impl FnMut(&str, u32, ArchiveEntry<'_>) -> HostResult<()>,
) -> HostResult<()> {
    unpack_within(&LIMITS, name, reader, strip, make)
}

fn unpack_within(
    limits: &ArchiveLimits,
    name: &str,
    mut reader: impl BufRead,
    strip: u32,
    mut make: impl FnMut(&str, u32, ArchiveEntry<'_>) -> HostResult<()>,
) -> HostResult<()> {
    let broken = |e: std::io::Error| HostError::failed(format!("{name}: broken archive"), e);
    let start = reader.fill_buf().map_err(broken)?;
    if let Some(format) = unsupported(name, start) {
        return Err(HostError::refused(format!(
            "{name} is {format}; only tar and gzipped tar archives are unpacked"
        )));
    }
    let gzipped = start.starts_with(&[0x1f, 0x8b]);
    let inner: Box<dyn Read> = if gzipped {
        Box::new(flate2::bufread::MultiGzDecoder::new(reader))
    } else {
        Box::new(reader)
    };
    let mut archive = tar::Archive::new(Limited {
        inner,
        left: limits.total,
    });
    for (number, entry) in (0_u64..).zip(archive.entries().map_err(broken)?) {
        let mut entry = entry.map_err(broken)?;
        if number >= limits.entries {
            return Err(HostError::refused(format!(
                "{name}: the archive has more than {} entries",
                limits.entries
            )));
        }
        let raw = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let Some(path) = stripped(name, &raw, strip)? else {
            continue;
        };
        let mode = entry.header().mode().map_err(broken)? & 0o7777;
        let link = entry
            .link_name_bytes()
            .map(|b| String::from_utf8_lossy(&b).into_owned())
            .unwrap_or_default();
        let made = match entry.header().entry_type() {
            tar::EntryType::Directory => ArchiveEntry::Directory,
            tar::EntryType::Symlink => ArchiveEntry::Symlink(link),
            tar::EntryType::Link => match stripped(name, &link, strip)? {
                Some(target) => ArchiveEntry::Hardlink(target),
                None => continue,
            },
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                if entry.size() > limits.file {
                    return Err(HostError::refused(format!(
                        "{name}: {raw} has {} bytes, and a file may have {}",
                        entry.size(),
                        limits.file
                    )));
                }
                ArchiveEntry::File(&mut entry)
            }
            tar::EntryType::XGlobalHeader => continue,
            other => {
                return Err(HostError::refused(format!(
                    "{name}: {raw}: entries of type {other:?} are not unpacked"
                )));
            }
        };
        make(&path, mode, made)?;
    }
    Ok(())
}

/// A reader that fails after this many bytes; `Read::take` would end like a short archive.
struct Limited<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self
            .left
            .checked_sub(read as u64)
            .ok_or_else(|| io::Error::other("it unpacks to more than is allowed"))?;
        Ok(read)
    }
}

/// The entry's path below the target; `None` if stripping leaves nothing of it.
fn stripped(name: &str, raw: &str, strip: u32) -> HostResult<Option<String>> {
    let mut parts = Vec::new();
    for part in raw.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                return Err(HostError::refused(format!(
                    "{name}: {raw} would be unpacked outside of the target"
                )));
            }
            part => parts.push(part),
        }
    }
    let left: Vec<&str> = parts.into_iter().skip(strip as usize).collect();
    Ok((!left.is_empty()).then(|| left.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(path: &str) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(2);
        header.set_mode(0o755);
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        builder.append(&header, b"hi".as_slice()).unwrap();
        builder.into_inner().unwrap()
    }

    #[test]
    fn plain_and_gzipped_give_the_same() {
        use std::io::Write as _;
        let plain = sample("./cni/bin/bridge");
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&plain).unwrap();
        for bytes in [plain, encoder.finish().unwrap()] {
            let mut seen = Vec::new();
            unpack("a.tar", bytes.as_slice(), 1, |path, mode, entry| {
                let ArchiveEntry::File(content) = entry else {
                    panic!("{path} is not a file");
                };
                seen.push((path.to_owned(), mode, io::read_to_string(content).unwrap()));
                Ok(())
            })
            .unwrap();
            assert_eq!(seen, [("bin/bridge".to_owned(), 0o755, "hi".to_owned())]);
        }
    }

    #[test]
    fn an_archive_of_more_than_is_allowed_is_refused() {
        use std::io::Write as _;
        let limits = ArchiveLimits {
            file: 100,
            total: 4096,
            entries: 2,
        };
        let refused = |bytes: &[u8]| {
            let drain = |_: &str, _: u32, entry: ArchiveEntry<'_>| {
                if let ArchiveEntry::File(content) = entry {
                    io::copy(content, &mut io::sink())
                        .map_err(|error| HostError::failed("cannot read", error))?;
                }
                Ok(())
            };
            let error = unpack_within(&limits, "a.tar", bytes, 0, drain).unwrap_err();
            halite_errors::chain(&error)
        };
        let archive = |files: u64, size: u64| {
            let mut builder = tar::Builder::new(Vec::new());
            for number in 0..files {
                let mut header = tar::Header::new_gnu();
                header.set_size(size);
                header.set_mode(0o644);
                let content = io::repeat(0).take(size);
                builder
                    .append_data(&mut header, format!("f{number}"), content)
                    .unwrap();
            }
            builder.into_inner().unwrap()
        };
        assert!(refused(&archive(1, 101)).contains("f0 has 101 bytes"));
        assert!(refused(&archive(3, 1)).contains("more than 2 entries"));
        // Zeros, which compress to a thousandth; the header does not reveal their number.
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        let mut skipped = tar::Header::new_gnu();
        skipped.set_entry_type(tar::EntryType::XGlobalHeader);
        skipped.set_size(1 << 20);
        skipped.set_cksum();
        encoder.write_all(skipped.as_bytes()).unwrap();
        encoder.write_all(&vec![0; 1 << 20]).unwrap();
        encoder.write_all(&archive(1, 1)).unwrap();
        let text = refused(&encoder.finish().unwrap());
        assert!(text.contains("unpacks to more than is allowed"), "{text}");
    }

    #[test]
    fn nothing_leaves_the_target() {
        let error = unpack("a.tar", sample("../etc/passwd").as_slice(), 0, |_, _, _| {
            Ok(())
        })
        .unwrap_err();
        assert!(error.to_string().contains("outside"), "{error}");
    }
}
