//! Backups of a site registry: made while it serves, verified and restored.
//!
//! The registry is CNCF's `distribution` with its filesystem driver: below `docker/registry/v2`
//! there are `blobs`, each under its digest, and `repositories`, whose files `link` name blobs. The
//! registry writes a blob before the link that names it. Therefore a backup reads the links first:
//! every blob that they name exists already.
//!
//! A backup is a directory with the same layout and a file `backup.json`. Making a backup and
//! restoring one are the same work: a new tree is built beside its place, from links and the blobs
//! that they name, and renamed when it is complete. Blobs that the previous backup has are
//! hard-linked to it, never to the registry's own files: damage to the registry must not reach its
//! backups.
//!
//! Input: the registry's data directory, a directory with backups. Output: a new backup, or a
//! restored data directory, or the damage. This crate prints nothing, starts no program and never
//! talks to the registry itself.

mod backups;
mod blobs;
mod create;
mod links;
mod owner;
mod restore;
mod tree;

pub use backups::{Backup, Found, Metadata, find, list};
pub use create::{Created, create};
pub use restore::{restore, verify};
pub use tree::Content;
