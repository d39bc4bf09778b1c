//! Errors of the certificate authorities.

use halite_proto::pki::PkiError;

/// What is wrong with a CA, a request or a profile.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// There is no CA of that name.
    #[error("there is no CA {0:?}; there are halite, kubernetes, etcd, front-proxy and site")]
    Unknown(String),
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file is missing.
    #[error("{path} is missing; `halite-master init` makes what is missing")]
    Missing {
        /// The file.
        path: String,
    },
    /// A certificate without its key.
    #[error(
        "{certificate} is there but {key} is not; put the key beside it, or move the certificate away to get a new CA"
    )]
    NoKey {
        /// The certificate's file.
        certificate: String,
        /// The key's file.
        key: String,
    },
    /// A file does not hold what it should.
    #[error("{path}: {reason}")]
    Unusable {
        /// The file.
        path: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The request is bad.
    #[error("the certificate request cannot be used: {0}")]
    Request(String),
    /// A certificate cannot contain the requested value.
    #[error("the certificate cannot be made: {0}")]
    Profile(String),
    /// Keys and randomness.
    #[error(transparent)]
    Pki(#[from] PkiError),
}
