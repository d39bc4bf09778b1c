//! The content of a bundle ([`Manifest`]), the difference between two bundles ([`Diff`]), and
//! read-only access to the bundles of a site ([`Bundles`]).
//!
//! Input: the directories of bundles. Output: typed manifests and the state of each installed
//! bundle. This crate changes nothing on the disk, opens no ISO and checks no signature. The crates
//! above it do that; the master depends only on this one.

pub mod bundles;
pub mod diff;
pub mod manifest;

pub use bundles::{Bundles, InstalledBundle, Unusable};
pub use diff::{Diff, ItemChange};
pub use halite_durable::Error;
pub use manifest::{ImageReference, Manifest, ManifestEntry};
