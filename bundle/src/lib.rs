//! The bundle: everything that a site without internet needs, in one directory that can be checked
//! file by file.
//!
//! A *recipe* names what goes in ([`recipe`]), a *lock* records what that came to ([`lock`]),
//! [`build()`] gathers it: container images in one OCI layout ([`oci`]), operating system packages
//! in a signed apt repository ([`apt`]), our own programs, the state tree, the nginx configuration
//! that serves the images ([`nginx`]), and a *manifest* with the SHA-256 of every file
//! ([`manifest`]). [`verify()`] reads a bundle and names each file that is not what the manifest
//! says.

pub mod apt;
mod build;
mod chart;
pub mod complete;
pub mod delta;
mod diff;
mod docs;
mod error;
pub mod fetch;
mod gather;
mod image;
mod init;
pub mod iso;
mod licences;
mod list;
pub mod lock;
pub mod manifest;
pub mod nginx;
pub mod oci;
mod pack;
pub mod package;
mod paper;
mod part;
pub mod recipe;
mod resolve;
pub mod rpm;
mod sbom;
pub mod seal;
pub mod site;
mod sound;
pub(crate) mod verify;

pub use build::{Options, Render, build};
pub use diff::{Change, Diff};
pub use error::Error;
pub use image::build_image;
pub use init::{RELEASES, Release, Start, init};
pub use list::{Listing, list};
pub use manifest::Manifest;
pub use pack::{pack, unpack_some};
pub use resolve::{Resolved, lock, update};
pub use sound::Sound;
pub use verify::{Problem, Report, verify, verify_same};
