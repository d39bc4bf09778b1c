//! The wire of Halite: messages and services, the mTLS transport of both ends, identities, ids, and
//! the authorisation table. It reads no files, stores nothing, and knows nothing of states or jobs
//! beyond their messages.

pub mod authz;
pub mod backoff;
pub mod epoch;
pub mod framing;
pub mod identity;
pub mod ids;
mod pkcs8;
pub mod pki;
mod pki_error;
mod redacted;
pub mod role;
pub mod transport;

/// The generated messages and services.
#[allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated code")]
pub mod v1 {
    tonic::include_proto!("halite.v1");
}

pub use tonic;

/// The protocol version of this build. A master accepts its own and the previous one.
pub const PROTOCOL: u32 = 2;

/// The metadata of the answer to `Operator/Watch` that has the position after which it sends
/// events: a reader of only new events that loses its connection before the first one continues
/// from there.
pub const WATCH_POSITION: &str = "halite-position";

/// The paths of all methods in the proto file.
pub const METHODS: &[&str] = include!(concat!(env!("OUT_DIR"), "/methods.rs"));
