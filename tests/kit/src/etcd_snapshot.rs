//! A snapshot as etcd sends it.

use sha2::{Digest as _, Sha256};

/// Bytes of a page of the database.
const PAGE: usize = 1024;
/// Bytes of the header of a page.
const PAGE_HEADER: usize = 16;

/// A snapshot of an empty database: two pages, the first with the description of the database
/// (bbolt's `internal/common/meta.go`), and the SHA-256 that etcd appends.
#[must_use]
pub fn empty_etcd_snapshot() -> Vec<u8> {
    // Magic number, version, size of a page, flags; then root, its sequence, free list, high-water
    // mark, transaction; then FNV-1a of all these.
    let mut meta = Vec::new();
    for value in [0xED0C_DAED_u32, 2, 1024, 0] {
        meta.extend(value.to_le_bytes());
    }
    for value in [1_u64, 0, 1, 2, 9] {
        meta.extend(value.to_le_bytes());
    }
    let sum = meta.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    meta.extend(sum.to_le_bytes());
    let mut content = vec![0; 2 * PAGE];
    content[PAGE_HEADER..PAGE_HEADER + meta.len()].copy_from_slice(&meta);
    let hash = Sha256::digest(&content);
    content.extend(hash);
    content
}
