//! The transport of both ends: TLS 1.3 with identities in certificates, HTTP/2 with keep-alive, one
//! port.
//!
//! The server asks for a client certificate. A caller without one may only enrol (see
//! [`crate::authz`]). A certificate that a caller presents must be valid: one with an unknown
//! issuer, an expired one, one of another cluster or a revoked one ends the handshake. Session
//! tickets are off at both ends, because a resumed session would admit a certificate without
//! verifying it again.

mod client;
mod server;
#[cfg(test)]
mod test_support;
#[cfg(test)]
mod tests;
mod tls;

use std::net::SocketAddr;
use std::time::Duration;

pub use client::{
    Channel, ClientIdentity, ConnectError, Pinned, connect, connect_over, connect_pinned,
    pinned_over,
};
pub use server::{PeerPolicy, Server, TlsError};
pub use tls::{Caller, install_crypto};

/// Silence on a connection after which a ping is sent.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Time without an answer to a ping after which a connection is closed.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of a TCP and TLS handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The caller at the other end of a connection, in the extensions of each request.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The verified identity; `None` for a caller without a certificate.
    pub caller: Option<Caller>,
    /// The address of the connection's other end.
    pub address: SocketAddr,
}

impl Peer {
    /// The name for logs and audit: `minion:worker-1`, or the address of a caller without identity.
    #[must_use]
    pub fn name(&self) -> String {
        self.caller.as_ref().map_or_else(
            || self.address.ip().to_string(),
            |caller| format!("{}:{}", caller.identity.kind(), caller.identity.id()),
        )
    }

    /// The peer of a request.
    ///
    /// # Errors
    /// The request did not pass through [`Server`]: an internal error.
    #[allow(
        clippy::result_large_err,
        reason = "tonic's own error type, as its services return it"
    )]
    pub fn of<T>(request: &tonic::Request<T>) -> Result<&Self, tonic::Status> {
        request
            .extensions()
            .get::<Self>()
            .ok_or_else(|| tonic::Status::internal("the request came in past the identity check"))
    }
}
