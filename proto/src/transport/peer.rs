//! The caller at the other end of a connection, and the policy that admits it.

use std::net::SocketAddr;

use tokio::sync::watch;

use super::source::source;
use crate::identity::Identity;
use crate::pki::{Inspected, PkiError};
use crate::role::Role;

/// An identity and the certificate that proves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The identity in the certificate.
    pub identity: Identity,
    /// SHA-256 of the public key, see [`crate::pki::fingerprint`].
    pub fingerprint: String,
    /// The certificate's serial number, lower-case hex.
    pub serial: String,
    /// End of its validity, seconds since the epoch.
    pub not_after: i64,
}

impl Caller {
    /// Reads the identity in a certificate. It does not verify the certificate.
    ///
    /// # Errors
    /// It names no Halite identity, or several.
    pub fn from_der(der: &[u8]) -> Result<Self, PkiError> {
        let found = Inspected::from_der(der)?;
        Ok(Self {
            identity: found.identity()?,
            fingerprint: found.fingerprint,
            serial: found.serial,
            not_after: found.not_after,
        })
    }
}

/// The caller at the other end of a connection, in the extensions of each request.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The verified identity; `None` for a caller without a certificate.
    pub caller: Option<Caller>,
    /// The role of an operator at the time of the call; `None` for all other callers.
    pub role: Option<Role>,
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

    /// The refusal of an operator whose role is too low for `what`.
    #[must_use]
    pub fn lacks(&self, least: Role, what: &str) -> tonic::Status {
        let own = match self.role {
            Some(role) => format!("has the role {role}"),
            None => "has no role".to_owned(),
        };
        tonic::Status::permission_denied(format!(
            "{} {own}, and {what} needs the role {least}; an administrator can do it, or make an operator who may: \
             ctl operator create",
            self.name()
        ))
    }

    /// The owner of the peer's address, for budgets; see [`super::source`].
    #[must_use]
    pub fn source(&self) -> String {
        source(self.address.ip())
    }

    /// The peer of a request.
    ///
    /// # Errors
    /// The request did not pass through [`super::Server`]: an internal error.
    #[allow(
        clippy::result_large_err,
        reason = "tonic's own error type, as its services return it"
    )]
    pub fn of<T>(request: &tonic::Request<T>) -> Result<&Self, tonic::Status> {
        request
            .extensions()
            .get::<Self>()
            .ok_or_else(|| tonic::Status::internal("the request bypassed the identity check"))
    }
}

/// The reason why a verified identity may not connect. The server logs it; the caller learns only
/// that it is not accepted, or that the master has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// The serial number of the certificate is among the revoked ones.
    #[error("the certificate is revoked")]
    Revoked,
    /// No key of this minion is accepted.
    #[error("the minion's key is not accepted")]
    NotAccepted,
    /// The minion's key is not the accepted one.
    #[error("the minion's id belongs to another key")]
    OtherKey,
    /// No operator has this name and key, or they were revoked.
    #[error("no operator has this name and key, or they were revoked")]
    NoOperator,
    /// The master is moving to another host.
    #[error("the master is moving to another host, and only its standbys may connect")]
    Moving,
    /// The master has moved to another host.
    #[error("the master has moved to another host, and only its standbys may connect")]
    Moved,
}

/// The policy that decides which verified peers may connect, with notifications about refused ones.
pub trait PeerPolicy: Send + Sync + 'static {
    /// Decides whether a verified identity may connect now. The server calls it in the handshake
    /// and again after each change.
    ///
    /// # Errors
    /// The identity may not connect.
    fn admit(&self, caller: &Caller) -> Result<(), NotAdmitted>;
    /// The present role of an operator; `None` for all other callers. The server reads it at each
    /// call.
    fn role(&self, caller: &Caller) -> Option<Role>;
    /// Changes whenever an identity that was admitted may no longer be.
    fn changes(&self) -> watch::Receiver<u64>;
    /// Reports a call that the table refused. Must not block.
    fn refused(&self, peer: &Peer, path: &str, reason: &str);
    /// Reports a failed handshake: no TLS, or a certificate that is not trusted. Must not block.
    fn handshake_failed(&self, address: SocketAddr, reason: &str);
}
