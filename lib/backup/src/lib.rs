//! Backups of a whole cluster, from which `ctl bootstrap --restore` restores its first host.
//!
//! A backup is one file: a header that anyone may read, a tar archive that is encrypted with age if
//! there are recipients, and a digest of all preceding bytes. The last entry of the archive lists
//! the others with their digests; the entry before it is the signature by the cluster's CA.
//!
//! ```text
//! halite-backup 1\n
//! {"cluster":"prod","created":"2026-11-23T14:00:00Z",…}\n
//! the archive
//! SHA-256 of everything above, as 64 hexadecimal digits\n
//! ```
//!
//! Without this program: `tail -n +3 FILE | head -c -65 | age -d -i KEY | tar x`.
//!
//! Input: a stream of files. Output: a file in a directory, complete or absent; the content of an
//! existing one; or the reason why it is invalid. This crate prints nothing and knows nothing of
//! clusters.

mod archive;
mod directory;
mod envelope;
mod error;
mod from_disk;
mod header;
mod manifest;
mod mounts;
mod signature;
mod snapshot;
mod writer;

pub use archive::{LIST, Sink};
pub use directory::{Directory, FoundBackup, PendingBackup, Pruned};
pub use envelope::BackupFile;
pub use error::{BackupDamage, Error};
pub use halite_age::{AgeError, Decryptor, Encryptor, Identity};
pub use header::{CountedKeys, EtcdSource, Header};
pub use manifest::{BackupEntry, Manifest};
pub use mounts::unmounted;
pub use signature::{BadSignature, SIGNATURE};
pub use snapshot::{SnapshotCheck, SnapshotDamage};
pub use writer::BackupWriter;

/// The path of etcd's snapshot in the archive.
pub const SNAPSHOT: &str = "etcd/snapshot.db";
/// The directory of the master's own files in the archive.
pub const STATE: &str = "state";
/// The directory of the operator's files in the archive.
pub const CONFIG: &str = "config";
