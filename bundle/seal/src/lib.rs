//! The seal of an ISO: it makes every byte checkable, and names the keys that signed.
//!
//! A sealed file is the image (whole sectors of 2048 bytes) followed by a trailer. Each part of the
//! trailer begins on a sector boundary and is padded with newlines, so that standard tools alone
//! can read and check it (the guide shows how):
//!
//! 1. the *map* ([`Segment`]): JSON, the SHA-256 of every byte range of the image with the file in
//!    that range, so that damage is named by file even if the directory records are damaged;
//! 2. the *statement* ([`Statement`]): JSON, the name and version of the image, its SHA-256 and
//!    that of the map;
//! 3. zero or more *signatures* of the statement, each an unchanged `minisign` signature file;
//! 4. the *footer*, the last sector: offsets, sizes and SHA-256 of the other parts.
//!
//! The digests in the footer detect accidental damage; only a signature detects tampering.
//! [`check()`] trusts nothing until a trusted key's signature verifies the statement, the statement
//! the map, and the map each byte.
//!
//! The same image, facts and keys give the same bytes: Ed25519 signatures contain no randomness,
//! and their trusted comment contains no time except the statement's.

mod check;
mod damage;
pub mod detached;
mod error;
pub mod keys;
mod map;
mod pass;
mod report;
mod statement;
mod trailer;
mod write;

pub use check::{check, statement};
pub use error::Error;
pub use keys::Signer;
pub use map::Segment;
pub use report::{FoundContent, Problem, SealReport};
pub use statement::{Facts, Statement};
pub use write::{add, seal};

/// The size of a sector. Every part begins on one.
pub const SECTOR: u64 = 2048;

/// The largest number of signatures in a footer, with room to spare.
pub const SIGNATURES: usize = 8;
