//! Errors of connections, as the client sees them.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::{CertificateError, OtherError};

use super::tls::Mistrust;
use crate::pki::PkiError;

/// The reason why a connection to a master failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Not `host:port`.
    #[error("{0:?} is not the address of a master: HOST:PORT is")]
    Endpoint(String),
    /// No server answers at the endpoint.
    #[error("cannot reach the master at {endpoint}")]
    Unreachable {
        /// The endpoint.
        endpoint: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The server is not trusted, or refused the client in the handshake.
    #[error("cannot make a trusted connection to {endpoint}")]
    Untrusted {
        /// The endpoint.
        endpoint: String,
        /// The reason.
        source: HandshakeError,
    },
    /// The client's own identity or CA cannot be used.
    #[error(transparent)]
    Identity(#[from] PkiError),
    /// A certificate in the client's CA file is not a trust anchor.
    #[error("cannot use the CA's certificate")]
    Authority(#[source] rustls::Error),
}

impl ConnectError {
    /// Returns whether the server is a standby, which has no master.
    #[must_use]
    pub fn is_of_a_standby(&self) -> bool {
        let Self::Untrusted { source, .. } = self else {
            return false;
        };
        matches!(source, HandshakeError::StandsBy(_))
    }
}

/// The reason why a handshake failed or a connection broke.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The server did not finish in time.
    #[error("no TLS handshake in time")]
    Timeout,
    /// The server presented no certificate.
    #[error("the server showed no certificate")]
    NoCertificate,
    /// The server's chain does not contain the CA that the token names.
    #[error("the server's chain does not contain the pinned CA")]
    NoPinnedCa,
    /// The client's certificate, key and trust do not match.
    #[error("cannot use the client's TLS settings")]
    Settings(#[source] rustls::Error),
    /// A CA that is not trusted signed the server's certificate.
    #[error("the server's certificate is not signed by the CA that we trust")]
    UnknownIssuer,
    /// The server's certificate has expired.
    #[error("the server's certificate has expired (or this host's clock is wrong)")]
    Expired,
    /// The server's certificate is not valid yet.
    #[error("the server's certificate is not valid yet (is this host's clock right?)")]
    NotValidYet,
    /// The server's certificate is unusable for another reason.
    #[error("cannot verify the server's certificate")]
    Certificate(#[source] rustls::Error),
    /// The server is a standby: it has no master.
    #[error(
        "the host {0} stands by and has no master; `ctl master list` there shows the master that it follows"
    )]
    StandsBy(String),
    /// The server's certificate is not our master's.
    #[error(transparent)]
    OtherServer(Arc<dyn Error + Send + Sync>),
    /// The master refused the client.
    #[error(transparent)]
    Refused(MasterAlert),
    /// TLS failed.
    #[error(transparent)]
    Tls(io::Error),
    /// HTTP/2 failed.
    #[error(transparent)]
    Http2(hyper::Error),
}

/// The master's alert about our certificate; `CallerVerifier` defines when it sends which one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MasterAlert {
    /// The policy does not admit the identity.
    #[error(
        "the master does not accept this identity (any more): its key was deleted, rejected or replaced, or the \
         operator was revoked"
    )]
    NotAdmitted,
    /// The master has moved to another host. Earlier versions send [`Self::NotAdmitted`].
    #[error("the master has moved to another host, and this host no longer serves")]
    Moved,
    /// The certificate has expired.
    #[error("the master refused our certificate: it has expired")]
    Expired,
    /// Another CA signed the certificate.
    #[error("the master refused our certificate: it is not signed by this cluster's CA")]
    OtherCa,
    /// The identity belongs to another cluster.
    #[error("the master refused our certificate: it belongs to another cluster")]
    OtherCluster,
    /// The certificate names no identity, or several.
    #[error("the master refused our certificate: it does not name one identity of a caller")]
    NotOneIdentity,
    /// Another TLS alert, by its name.
    #[error("the master ended the handshake ({0})")]
    Other(String),
}

/// The text before an alert's name in an error: HTTP/2 keeps only the text of a TLS error.
const ALERT: &str = "received fatal alert: ";

impl MasterAlert {
    /// Returns whether the reason why a connection ended is that the master does not trust the CA
    /// of the client's certificate.
    #[must_use]
    pub fn is_of_another_ca(reason: &str) -> bool {
        reason.contains(&Self::OtherCa.to_string())
    }

    /// Reads the alert in the text of an error.
    fn from_text(text: &str) -> Option<Self> {
        let (_, alert) = text.split_once(ALERT)?;
        let name = alert
            .split(|c: char| !c.is_ascii_alphanumeric())
            .next()
            .unwrap_or_default();
        Some(match name {
            "CertificateRevoked" => Self::NotAdmitted,
            "BadCertificateStatusResponse" => Self::Moved,
            "CertificateExpired" => Self::Expired,
            "UnknownCA" | "DecryptError" => Self::OtherCa,
            "AccessDenied" => Self::OtherCluster,
            "BadCertificate" | "CertificateUnknown" | "UnsupportedCertificate" => {
                Self::NotOneIdentity
            }
            other => Self::Other(other.to_owned()),
        })
    }
}

impl HandshakeError {
    fn from_certificate(error: &CertificateError) -> Self {
        match error {
            // The CA that replaces another one has the same name, and another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownIssuer,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotValidYet
            }
            CertificateError::Other(OtherError(reason)) => match reason.downcast_ref() {
                Some(Mistrust::StandsBy(host)) => Self::StandsBy(host.clone()),
                _ => Self::OtherServer(Arc::clone(reason)),
            },
            other => Self::Certificate(rustls::Error::InvalidCertificate(other.clone())),
        }
    }

    /// Searches an error and its causes for the TLS error that explains it.
    fn explaining(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            let inner = error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::get_ref);
            if let Some(rustls::Error::InvalidCertificate(reason)) =
                inner.and_then(|inner| inner.downcast_ref())
            {
                return Some(Self::from_certificate(reason));
            }
            if let Some(alert) = MasterAlert::from_text(&error.to_string()) {
                return Some(Self::Refused(alert));
            }
            next = error.source();
        }
        None
    }
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        Self::explaining(&error).unwrap_or(Self::Tls(error))
    }
}

impl From<hyper::Error> for HandshakeError {
    fn from(error: hyper::Error) -> Self {
        Self::explaining(&error).unwrap_or(Self::Http2(error))
    }
}
