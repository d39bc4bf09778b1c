//! Backups of a site registry: creation while it serves, verification and restore.
//!
//! The registry is CNCF's `distribution` with its filesystem driver: below `docker/registry/v2`
//! there are `blobs`, each under its digest, and `repositories`, whose files `link` name blobs. The
//! registry writes a blob before the link that names it. Therefore a backup reads the links first:
//! every blob that they name already exists.
//!
//! A backup is a directory with the same layout and a file `backup.json`. A backup and a restore
//! build a new tree in the same way: beside its final place, from links and the blobs that they
//! name. It is renamed when it is complete. Blobs that the previous backup already has are
//! hard-linked to it, never to the registry's own files: damage to the registry must not reach its
//! backups.
//!
//! Input: the registry's data directory, a directory with backups. Output: a new backup, a
//! restored data directory, or the damage. This crate prints nothing, starts no program and never
//! talks to the registry itself.

mod backups;
mod blobs;
mod create;
mod links;
mod owner;
mod restore;
mod tree;

pub use backups::{Backup, BackupMetadata, ListedBackup, find, list};
pub use create::{CreatedBackup, create};
pub use restore::{restore, verify};
pub use tree::TreeContent;
