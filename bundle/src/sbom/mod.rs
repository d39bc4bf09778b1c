//! What a bundle is made of, as an SPDX document (`sbom.spdx.json`): every image, package, program
//! and library in it that can be known, how they belong together, and all other files.

mod check;
mod contents;
pub mod crates;
mod document;
mod golang;
mod licence;
mod purl;
pub mod spdx;

pub(crate) use check::check;
pub(crate) use contents::Contents;
pub(crate) use document::{Deb, Image, Material, write};

/// The document's place in a bundle.
pub const FILE: &str = "sbom.spdx.json";
