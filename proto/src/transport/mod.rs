//! The road between both ends: TLS 1.3 with identities in certificates, HTTP/2 with keep-alive, one
//! port.
//!
//! The server asks for a client certificate and takes none as "nobody": such a caller reaches first
//! contact only (see [`crate::authz`]). A certificate that is shown must be good: an unknown
//! issuer, one out of date, another cluster's or a revoked one ends the handshake. Session tickets
//! are off at both ends, because a resumed session would bring in a certificate without looking at
//! it again.

mod client;
mod server;
#[cfg(test)]
mod tests;
mod tls;

use std::net::SocketAddr;
use std::time::Duration;

pub use client::{
    Channel, ClientIdentity, ConnectError, Pinned, connect, connect_over, connect_pinned,
    pinned_over,
};
pub use server::{Doorkeeper, Server, TlsError};
pub use tls::{Caller, install_crypto};

/// A ping goes out on a connection that was silent for so long.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// A connection whose ping stays unanswered for so long is dead.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// A TCP and TLS handshake must be done within this time.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Who is at the other end of a call; stands in the extensions of each request.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The verified identity; `None` for a caller that showed no certificate.
    pub caller: Option<Caller>,
    /// Where the connection came from.
    pub address: SocketAddr,
}

impl Peer {
    /// For logs and audit: `minion:worker-1`, or the address of a caller without identity.
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
    /// The request did not come in through [`Server`]; answered as an internal fault.
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
