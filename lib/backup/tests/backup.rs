//! Backups as files: a reader gets exactly the written content.

#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

#[path = "backup/damage.rs"]
mod damage;
#[path = "backup/from_disk.rs"]
mod from_disk;
#[path = "backup/killed.rs"]
mod killed;
#[path = "backup/signed.rs"]
mod signed;
#[path = "backup/support.rs"]
mod support;
