//! The builder of bundles, on the machine with internet access.
//!
//! Input: a *recipe*, which names the content ([`recipe`]), and a *lock*, which records what each
//! item resolved to ([`lock`]). [`build()`] gathers a bundle from them: container images in one OCI
//! layout, operating system packages in a signed apt repository ([`apt`]) and yum repository
//! ([`rpm`]), our own programs, the state tree, the nginx configuration that serves the images, the
//! documentation, and a manifest with the SHA-256 of every file. [`completeness`] then compiles the
//! state tree for every combination of options and refuses a bundle that lacks an item that a
//! combination could request. Output: a directory or a sealed ISO; the same inputs give the same
//! bytes.
//!
//! It never runs at a site, and fetches from other machines only the items that the lock names.

pub mod apt;
mod build;
mod build_cache;
mod build_image;
mod bundle_documents;
mod chart;
pub mod completeness;
mod error;
mod gather;
mod html;
mod init;
mod licences;
pub mod lock;
pub mod package;
mod process;
pub mod recipe;
mod resolve;
pub mod rpm;
mod sbom;
pub mod signer;

pub use build::{Options, RequirementsOf, build, build_with};
pub use build_image::{build_image, build_image_with};
pub use error::Error;
pub use init::{RELEASES, Release, Start, init};
pub use resolve::{Resolved, lock, update};
pub use sbom::release_sbom;
