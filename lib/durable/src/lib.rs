//! Files that survive a power cut: written completely or not at all, compared by digest, and
//! locked against other processes.
//!
//! Input: paths and bytes of the caller. Output: files on the disk, SHA-256 digests, and errors
//! that name the path. This crate knows nothing of bundles and uses no other crate of Halite.

pub mod atomic_dir;
pub mod digest;
pub mod disk_space;
mod error;
pub mod file_lock;
pub mod files;
pub mod private_lock;
pub mod progress;

pub use atomic_dir::AtomicDir;
pub use digest::Digest;
pub use error::Error;
pub use file_lock::{FileLock, ScratchDir};
pub use progress::ByteProgress;
