//! Shared by tests of several crates: real programs and servers on loopback, signed repositories,
//! and a small site whose bundle is built like a real one. No shipped program uses it.
//!
//! Everything here panics on an error, and so fails its test. The unit tests of the bundle's crates
//! cannot pass their types to this crate, which is linked with another build of them.
//! of it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "it runs in tests only"
)]

mod backup_ca;
pub mod distribution;
mod etcd_snapshot;
mod files;
mod gnupg;
mod nginx;
mod packed;
pub mod process;
pub mod pty;
pub mod registry;
mod server;
mod shared_site;
mod site;
mod tls;

pub use backup_ca::BackupCa;
pub use etcd_snapshot::empty_etcd_snapshot;
pub use files::{content, files, hex, names, put, run, state_tree};
pub use gnupg::Signer;
pub use nginx::Nginx;
pub use packed::packed;
pub use server::{CannedAnswer, SeenRequest, Server};
pub use shared_site::{SharedSite, SiteCopy};
pub use site::{Site, layout, layout_of, status, version};
pub use tls::Authority;
