//! The seal of an ISO: what makes every byte of it checkable, and says who vouches for it.
//!
//! A sealed file is the image (whole sectors of 2048 bytes) and a trailer, each part of which
//! begins on a sector and is filled up with newlines, so that it can be read and checked with
//! standard tools alone (the guide shows how):
//!
//! 1. the *map* ([`Segment`]): JSON, the SHA-256 of every byte range of the image, with the file
//!    that lies there, so that damage is named by file even where the directory records are
//!    damaged;
//! 2. the *statement* ([`Statement`]): JSON, what the image is, its SHA-256 and that of the map;
//! 3. no, one or several *signatures* over the statement, each a signature file of `minisign` as it
//!    is;
//! 4. the *footer*, the last sector: where the others are, and their SHA-256.
//!
//! The hashes in the footer find accidents; only a signature stands against intent. [`check()`]
//! believes nothing of the image before a trusted key vouches for the statement, the statement for
//! the map, and the map for each byte.
//!
//! The same image, facts and keys give the same bytes: Ed25519 signatures hold no randomness, and
//! their trusted comment carries no time but the statement's.

mod check;
pub mod detached;
mod error;
pub mod keys;
mod map;
mod pass;
mod report;
mod signature;
mod statement;
mod trailer;
mod write;

pub use check::{check, statement};
pub use error::Error;
pub use map::Segment;
pub use report::{Found, Problem, Report, Signer};
pub use statement::{Facts, Statement};
pub use write::{add, seal};
