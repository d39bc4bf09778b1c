//! The SPDX document of a bundle (`sbom.spdx.json`): its types, and the check that it names
//! everything in the bundle.

pub mod check;
pub mod spdx;

/// The document's place in a bundle.
pub const FILE: &str = "sbom.spdx.json";
