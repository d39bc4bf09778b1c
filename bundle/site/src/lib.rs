//! Changes to the bundles of a site: verifying, adding, copying and removing them, deltas between
//! them, and the nginx configuration that serves their images.
//!
//! Input: sealed ISOs, signed directories, or another host that serves a bundle. Output: complete
//! bundles below `/var/lib/halite/bundles`, or a report of the damage. A bundle appears completely
//! or not at all, even after an interruption. This crate resolves no recipe and builds nothing:
//! `halite-builder` does.

pub mod add;
pub mod copy;
mod damage;
pub mod delta;
mod delta_apply;
mod delta_export;
mod error;
mod inspect;
mod list;
pub mod nginx;
pub mod pack;
pub mod sbom;
pub mod signed_manifest;
pub mod store;
pub mod verified;
pub mod verify;

pub use add::{Added, visible};
pub use copy::{Copied, Origin};
pub use damage::BundleDamage;
pub use delta_export::export as export_delta;
pub use error::Error;
pub use inspect::inspect;
pub use list::{ListedImage, ListedPackage, Listing, list};
pub use pack::{pack, unpack_some};
pub use store::BundleStore;
pub use verified::VerifiedImage;
pub use verify::{VerifyReport, verify, verify_same};
