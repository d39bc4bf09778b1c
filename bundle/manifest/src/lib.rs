//! The content of a bundle ([`Manifest`]), the difference between two ([`Diff`]), and the bundles
//! that a site has ([`Bundles`]), read only.
//!
//! Input: the directories of bundles. Output: typed manifests and the state of each installed
//! bundle. It changes nothing on the disk, opens no ISO and checks no signature: that is for the
//! crates above it, so that the master needs this one only.

pub mod bundles;
pub mod diff;
pub mod manifest;

pub use bundles::{Bundles, InstalledBundle};
pub use diff::{Change, Diff};
pub use halite_durable::Error;
pub use manifest::{Entry, Manifest};
