//! Backups of a site registry: creation while it serves, verification and restore.
//!
//! The registry is CNCF's `distribution` with its filesystem driver: below `docker/registry/v2`
//! there are `blobs`, each under its digest, and `repositories`, whose files `link` name blobs. The
//! registry writes a blob before the link that names it. Therefore a backup reads the links first:
//! every blob that they name already exists.
//!
//! A backup is a directory in the same layout, with a file `backup.json` that describes it. Blobs
//! that an earlier backup already has are hard-linked to it, never to the registry's own files:
//! damage to the registry must not reach its backups.
//!
//! Input: the registry's data directory, a directory with backups. Output: a new backup, a list of
//! damage, or a restored data directory; with a [`Reporter`] also a report for `ctl status`. This
//! crate prints nothing, starts no program and never talks to the registry itself.

mod backup;
mod backup_metadata;
mod backup_writer;
mod backups;
mod digest;
mod error;
mod folder;
mod image_needs;
mod layout;
mod metadata_error;
mod report;
mod restore;
mod scan;
mod tree;
mod verify;

pub use backup::{CreatedBackup, create};
pub use backup_metadata::{BackupMetadata, Repaired, StoredDamage};
pub use backups::{Backup, Backups};
pub use error::Error;
pub use metadata_error::MetadataError;
pub use report::Reporter;
pub use restore::{RestoreOutcome, Restored, restore};
pub use verify::{Verified, verify};
