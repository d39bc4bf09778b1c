//! Reading tar archives, plain or gzipped, one entry at a time: nothing is ever held whole but the
//! entry at hand.

use std::io::{BufRead, Read};

use super::{HostError, HostResult};

/// An entry to make below the target directory.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Directory,
    /// A file's content.
    File(Vec<u8>),
    /// A symbolic link's target.
    Symlink(String),
    /// A hard link to another entry, by its path below the target.
    Hardlink(String),
}

/// Calls `make(path below the target, permission bits, entry)` for each entry, leading components
/// stripped as by `tar --strip-components`.
///
/// # Errors
/// A broken archive, an entry that would land outside of the target, an entry that is neither file,
/// directory nor link, or what `make` answers.
pub fn unpack(
    name: &str,
    mut reader: impl BufRead,
    strip: u32,
    mut make: impl FnMut(&str, u32, Entry) -> HostResult<()>,
) -> HostResult<()> {
    let broken = |e: std::io::Error| HostError::failed(format!("{name}: broken archive"), e);
    let gzipped = reader
        .fill_buf()
        .map_err(broken)?
        .starts_with(&[0x1f, 0x8b]);
    let inner: Box<dyn Read> = if gzipped {
        Box::new(flate2::bufread::MultiGzDecoder::new(reader))
    } else {
        Box::new(reader)
    };
    let mut archive = tar::Archive::new(inner);
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
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
            tar::EntryType::Directory => Entry::Directory,
            tar::EntryType::Symlink => Entry::Symlink(link),
            tar::EntryType::Link => match stripped(name, &link, strip)? {
                Some(target) => Entry::Hardlink(target),
                None => continue,
            },
            tar::EntryType::Regular | tar::EntryType::Continuous => {
                let mut content = Vec::new();
                entry.read_to_end(&mut content).map_err(broken)?;
                Entry::File(content)
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

/// The entry's path below the target; `None` when nothing is left of it.
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
                seen.push((path.to_owned(), mode, entry));
                Ok(())
            })
            .unwrap();
            assert_eq!(
                seen,
                [("bin/bridge".to_owned(), 0o755, Entry::File(b"hi".to_vec()))]
            );
        }
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
