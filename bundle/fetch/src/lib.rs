//! Fetching on the machine with internet: files over HTTPS ([`http`]), container images ([`oci`]),
//! packages of apt ([`apt`]) and yum ([`yum`]) repositories, all into a cache by digest ([`cache`])
//! from which later builds need no network.
//!
//! All functions block; independent work runs on a bounded number of threads. Content is stored
//! only if it has the requested digest, interrupted transfers are resumed, and all errors are in
//! one report.

pub mod apt;
pub mod apt_index;
pub mod cache;
mod error;
mod fetcher;
pub mod http;
mod image_ref;
pub mod names;
pub mod oci;
pub mod oci_layout;
mod openpgp;
pub mod parallel;
pub mod progress;
pub mod unpack;
pub mod yum;

pub use cache::Cache;
pub use error::Error;
pub use fetcher::{Artifact, Fetcher};
pub use halite_durable::Digest;
pub use http::{Client, Settings};
pub use image_ref::{ImageRef, InvalidImageRef};
pub use openpgp::Keyring;
