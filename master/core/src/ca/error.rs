//! Errors of the certificate authorities.

use std::io;
use std::path::PathBuf;

use halite_proto::identity::IdentityError;
use halite_proto::pki::PkiError;

/// What is wrong with a CA, a request or a profile.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// There is no CA of that name.
    #[error("there is no CA {0:?}; there are halite, kubernetes, etcd, front-proxy and site")]
    Unknown(String),
    /// A file or directory cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// Verb, for example `read`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file cannot be replaced or removed.
    #[error(transparent)]
    Durable(#[from] halite_durable::Error),
    /// A file is missing.
    #[error("{} is missing; `halite-master init` makes what is missing", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A certificate without its key.
    #[error(
        "{} is there but {} is not; put the key beside it, or move the certificate away to get a new CA",
        certificate.display(),
        key.display()
    )]
    NoKey {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// A file does not hold what it should.
    #[error("cannot use {}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with its content.
        source: ContentError,
    },
    /// The request is larger than any real one.
    #[error("cannot use the certificate request: it has more than {limit} bytes")]
    LargeRequest {
        /// The limit.
        limit: usize,
    },
    /// The request is malformed, or its proof of the key is wrong.
    #[error("cannot use the certificate request")]
    Request(#[source] rcgen::Error),
    /// A certificate cannot contain a name of the profile.
    #[error(
        "cannot make the certificate: {what} {value:?} has characters that are not allowed there"
    )]
    Name {
        /// The kind of the name.
        what: &'static str,
        /// The name.
        value: String,
    },
    /// A certificate cannot be made.
    #[error("cannot make the certificate")]
    Certificate(#[source] rcgen::Error),
    /// The key of a CA cannot sign.
    #[error("cannot sign with the key of the CA")]
    Statement(#[source] rcgen::Error),
    /// A certificate cannot contain the requested identity.
    #[error("cannot make the certificate")]
    Identity(#[from] IdentityError),
    /// Keys and randomness.
    #[error(transparent)]
    Pki(#[from] PkiError),
}

/// The reason why the content of a CA's file is not usable.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// It is no certificate or key.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// It is the certificate of a leaf.
    #[error("this is not the certificate of a CA")]
    NotCa,
    /// The CA has expired.
    #[error("this CA has expired on {0}; put a valid one there")]
    Expired(String),
    /// The key is not that of the certificate.
    #[error("this is not the key of {}", .0.display())]
    OtherKey(PathBuf),
    /// The public key is not that of the private one.
    #[error("this is not the public half of {}", .0.display())]
    OtherHalf(PathBuf),
    /// The CA cannot sign.
    #[error("it cannot sign")]
    Issuer(#[source] rcgen::Error),
}

impl CaError {
    /// Makes the error of a file or directory that cannot be used as `action` says, for `map_err`.
    pub(super) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }

    /// Makes the error of a file with unusable content, for `map_err`.
    pub fn unusable<E: Into<ContentError>>(path: impl Into<PathBuf>) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::Unusable {
            path,
            source: source.into(),
        }
    }
}
