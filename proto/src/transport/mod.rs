//! The transport of both ends: TLS 1.3 with identities in certificates, HTTP/2 with keep-alive, one
//! port.
//!
//! The server requests a client certificate. A caller without one may only enrol (see
//! [`crate::authz`]). A certificate that a caller presents must be valid: one with an unknown
//! issuer, an expired one, one of another cluster or a revoked one ends the handshake. Session
//! tickets are off at both ends, because a resumed session would admit a certificate without
//! verifying it again.

mod authorised;
mod client;
mod error;
#[cfg(test)]
mod flood_tests;
#[cfg(test)]
mod identity_flood_tests;
mod in_flight;
mod last_word;
mod limits;
mod oldest_first;
mod peer;
#[cfg(test)]
mod rotation_tests;
mod server;
mod source;
#[cfg(test)]
mod test_support;
#[cfg(test)]
mod tests;
mod tls;

use std::time::Duration;

pub use client::{
    Channel, ClientIdentity, Pinned, connect, connect_among, connect_any, connect_over,
    connect_pinned, pinned_over,
};
pub use error::{ConnectError, HandshakeError, MasterAlert};
pub use limits::STRANGER_MESSAGE;
pub use peer::{Caller, NotAdmitted, Peer, PeerPolicy};
pub use server::{Server, TlsError};
pub use source::source;
pub use tls::install_crypto;

/// Silence on a connection after which a ping is sent.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Time without an answer to a ping after which a connection is closed.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of a TCP and TLS handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
