//! The check of an etcd snapshot, as in `etcdutl snapshot restore`: the last 32 bytes are the
//! SHA-256 of the preceding ones. In addition, the database's own description must match its size.
//!
//! Not checked: the pages of the database and the keys in it. The hash covers the data as it was on
//! the member's disk.

use std::io;
use std::io::Write;

use sha2::{Digest as _, Sha256};

/// Bytes of the hash at the end.
const HASH: usize = 32;
/// bbolt's page sizes; it uses the system's.
const PAGES: std::ops::RangeInclusive<usize> = 1024..=65536;
/// Bytes of a page's head, and of the description that follows in the first two pages
/// (`bbolt/internal/common/meta.go`).
const HEAD: usize = 16;
const META: usize = 64;
const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;

/// The reason why a snapshot is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotDamage {
    /// It is shorter than a hash.
    #[error("it is cut short")]
    Cut,
    /// The hash at its end differs.
    #[error("its hash does not match its content: it was changed or cut short")]
    Hash,
    /// It is not a bbolt database.
    #[error("it is not a database of etcd")]
    NoDatabase,
    /// It lacks pages.
    #[error("the database in it lacks pages: it has {found} bytes and needs {needed}")]
    Pages {
        /// Its size.
        found: u64,
        /// The size according to its description.
        needed: u64,
    },
}

/// Checks the snapshot written to it.
#[derive(Default)]
pub struct SnapshotCheck {
    hash: Sha256,
    size: u64,
    /// The last bytes, which may be the hash.
    tail: Vec<u8>,
    /// The first bytes, with both descriptions.
    head: Vec<u8>,
}

impl SnapshotCheck {
    /// The verdict on everything written.
    ///
    /// # Errors
    /// The snapshot is invalid.
    pub fn finish(self) -> Result<(), SnapshotDamage> {
        let expected: [u8; HASH] = (self.tail.as_slice())
            .try_into()
            .map_err(|_| SnapshotDamage::Cut)?;
        if self.hash.finalize()[..] != expected {
            return Err(SnapshotDamage::Hash);
        }
        let newest = [0].into_iter().chain(page_sizes());
        let metas = newest.filter_map(|begin| Meta::read(self.head.get(begin..)?, begin));
        let newest = metas.max_by_key(|meta| meta.transaction);
        let newest = newest.ok_or(SnapshotDamage::NoDatabase)?;
        let (found, needed) = (self.size, newest.pages.saturating_mul(newest.page_size));
        if found < needed {
            return Err(SnapshotDamage::Pages { found, needed });
        }
        Ok(())
    }
}

fn page_sizes() -> impl Iterator<Item = usize> {
    let sizes = std::iter::successors(Some(*PAGES.start()), |size| Some(size * 2));
    sizes.take_while(|size| PAGES.contains(size))
}

/// A description of the database.
struct Meta {
    page_size: u64,
    /// The number of pages.
    pages: u64,
    transaction: u64,
}

impl Meta {
    /// The description in the page that begins here.
    fn read(page: &[u8], begin: usize) -> Option<Self> {
        let meta = page.get(HEAD..HEAD + META)?;
        let number = |at: usize| Some(u32::from_le_bytes(meta.get(at..at + 4)?.try_into().ok()?));
        let large = |at: usize| Some(u64::from_le_bytes(meta.get(at..at + 8)?.try_into().ok()?));
        let page_size = u64::from(number(8)?);
        let sound = number(0)? == MAGIC
            && number(4)? == VERSION
            && large(META - 8)? == fnv(&meta[..META - 8])
            && (begin == 0 || page_size == begin as u64);
        sound.then_some(())?;
        Some(Self {
            page_size,
            pages: large(40)?,
            transaction: large(48)?,
        })
    }
}

/// FNV-1a with 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Write for SnapshotCheck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wanted = (PAGES.end() + HEAD + META).saturating_sub(self.head.len());
        self.head.extend(bytes.iter().take(wanted));
        self.tail.extend_from_slice(bytes);
        let content = self.tail.len().saturating_sub(HASH);
        self.hash.update(&self.tail[..content]);
        self.size += content as u64;
        self.tail.drain(..content);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A snapshot of an empty database with this many pages, for tests.
#[cfg(test)]
pub(crate) fn example(pages: u64) -> Vec<u8> {
    let mut content = vec![0; usize::try_from(pages).unwrap() * 4096];
    for number in 0..2 {
        let mut meta = Vec::new();
        for value in [MAGIC, VERSION, 4096, 0] {
            meta.extend(value.to_le_bytes());
        }
        for value in [3, 0, 2, pages, number] {
            meta.extend(u64::to_le_bytes(value));
        }
        meta.extend(fnv(&meta).to_le_bytes());
        let begin = usize::try_from(number).unwrap() * 4096 + HEAD;
        content[begin..begin + META].copy_from_slice(&meta);
    }
    let hash = Sha256::digest(&content);
    content.extend(hash);
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8]) -> Result<(), SnapshotDamage> {
        let mut check = SnapshotCheck::default();
        for part in bytes.chunks(1000) {
            check.write_all(part).unwrap();
        }
        check.finish()
    }

    fn hashed(content: &[u8]) -> Vec<u8> {
        [content, &Sha256::digest(content)].concat()
    }

    #[test]
    fn a_snapshot_is_whole_or_refused() {
        let good = example(4);
        assert_eq!(check(&good), Ok(()));
        assert_eq!(check(&good[..20]), Err(SnapshotDamage::Cut));
        assert_eq!(check(&good[..good.len() - 1]), Err(SnapshotDamage::Hash));
        assert_eq!(check(&hashed(b"text")), Err(SnapshotDamage::NoDatabase));
        // The result of a full disk on the member: the hash matches, but pages are missing.
        let short = hashed(&good[..3 * 4096]);
        let lacks = SnapshotDamage::Pages {
            found: 3 * 4096,
            needed: 4 * 4096,
        };
        assert_eq!(check(&short), Err(lacks));
    }

    #[test]
    fn every_changed_byte_is_found() {
        let good = example(2);
        for place in 0..good.len() {
            let mut changed = good.clone();
            changed[place] ^= 1;
            assert_eq!(check(&changed), Err(SnapshotDamage::Hash), "{place}");
        }
    }
}
