//! What a bundle is made of, as an SPDX document (`sbom.spdx.json`): every image, package, program
//! and library in it that can be known, how they belong together, and all other files.

mod contents;
pub mod crates;
mod document;
mod golang;
mod licence;
mod purl;

pub(crate) use contents::Contents;
pub(crate) use document::{Deb, Image, Material, write};
