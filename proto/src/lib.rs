//! The wire of Halite: messages, services, and the mTLS transport that both ends share. The only
//! crate that names tonic.

pub mod authz;
pub mod identity;
mod pkcs8;
pub mod pki;
pub mod transport;

/// The generated messages and services.
#[allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated code")]
pub mod v1 {
    tonic::include_proto!("halite.v1");
}

pub use tonic;

/// The protocol version that this build speaks. A master accepts its own and the one before.
pub const PROTOCOL: u32 = 1;

/// The paths of all methods in the proto file, as they travel.
pub const METHODS: &[&str] = include!(concat!(env!("OUT_DIR"), "/methods.rs"));
