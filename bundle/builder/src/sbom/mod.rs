//! The software bill of materials of a bundle, as an SPDX document (`sbom.spdx.json`): every known
//! image, package, program and library in it, their relationships, and all other files.

mod contents;
pub mod crates;
mod document;
mod golang;
mod licence;
mod own;
mod purl;
mod release;

pub(crate) use contents::Contents;
pub(crate) use document::{Deb, Material, SbomImage, write};
pub use release::release_sbom;
