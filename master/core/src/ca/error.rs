//! Errors of the certificate authorities.

use std::io;
use std::path::PathBuf;

use halite_proto::identity::IdentityError;
use halite_proto::pki::PkiError;

use super::expired::ExpiredCa;

/// An error of a CA, a request or a profile.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// No CA has that name.
    #[error("unknown CA {0:?}; the CAs are halite, kubernetes, etcd, front-proxy and site")]
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
    #[error("{} is missing; `halite-master init` creates missing files", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file of the encryption keys is missing, and a new key would decrypt nothing.
    #[error(
        "{} is missing, and a new key could not decrypt what the cluster has encrypted; put it back from the directory \
         `standby` of a standby's master, or from a backup that is newer than the last rotation",
        path.display()
    )]
    LostKeys {
        /// The file.
        path: PathBuf,
    },
    /// A certificate without its key.
    #[error(
        "{} exists but {} does not; put the key beside it, or move the certificate away to get a new CA",
        certificate.display(),
        key.display()
    )]
    NoKey {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// A file has invalid content.
    #[error("cannot use {}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The problem of its content.
        source: ContentError,
    },
    /// A CA that has no rotation.
    #[error(
        "cannot rotate {0:?}; the CAs that can be rotated are kubernetes, etcd, front-proxy, halite and site, and sa stands for service \
         accounts"
    )]
    NotRotated(String),
    /// The end of a rotation whose old certificate is still trusted.
    #[error("cannot end the rotation of {0}: the old one is still trusted")]
    StillTrusted(String),
    /// A later stage of a rotation that has not begun.
    #[error("cannot take the stage {stage} of the rotation of {name}: no rotation of it has begun")]
    NoRotation {
        /// The CA.
        name: String,
        /// The stage.
        stage: &'static str,
    },
    /// An earlier stage of a rotation whose old certificate left at once.
    #[error(
        "cannot continue the rotation of {0} in stages: it began with --compromised, and the old one is not trusted any more; run \
         `ctl certs rotate {0} --compromised`"
    )]
    Compromised(String),
    /// A CA that an operator cannot import.
    #[error(
        "cannot have a CA of your own for {0:?}; name kubernetes, etcd or front-proxy: Halite itself makes the CAs halite and site"
    )]
    NotImported(String),
    /// A CA that an operator imports or has imported cannot be used.
    #[error(
        "cannot {action} the CA {name}, nothing was changed:{}{}",
        lines(problems),
        remedy(action, name)
    )]
    Imported {
        /// `import` or `rotate`.
        action: &'static str,
        /// The CA.
        name: String,
        /// All problems, each with its remedy.
        problems: Vec<String>,
    },
    /// An import without a key, and without a request that waits.
    #[error(
        "cannot import the CA {0} without its key: no request waits for its certificate; add `--key FILE`, or have the output of \
         `ctl certs csr {0}` signed"
    )]
    NotRequested(String),
    /// An import with a key, while a request waits.
    #[error(
        "cannot import the CA {0} with `--key`: the request of `ctl certs csr {0}` waits for a certificate of its own key; omit \
         `--key`, or remove the request first: `ctl certs import {0} --discard`"
    )]
    KeyOfRequest(String),
    /// A request, while a CA with a key of the operator is imported.
    #[error(
        "cannot request a certificate for the CA {0}: one is imported with its key; `ctl certs rotate {0}` starts it, \
         `ctl certs import {0} --discard` removes it"
    )]
    AlreadyImported(String),
    /// An import during a rotation.
    #[error(
        "cannot import the CA {0}: its rotation has not ended; complete it first: `ctl certs rotate {0}`"
    )]
    ImportDuringRotation(String),
    /// A rotation, while a request waits.
    #[error(
        "cannot begin to rotate {0}: the request of `ctl certs csr {0}` waits for its certificate; import it \
         (`ctl certs import {0} --cert FILE`), or remove the request (`ctl certs import {0} --discard`), and Halite makes the CA"
    )]
    RequestWaits(String),
    /// A CA has expired, and signs nothing.
    #[error("cannot sign: {0}")]
    Expired(ExpiredCa),
    /// The request is larger than any legitimate one.
    #[error("cannot use the certificate request: it has more than {limit} bytes")]
    LargeRequest {
        /// The limit.
        limit: usize,
    },
    /// The request is malformed, or its proof of possession is wrong.
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
    /// An error of keys or randomness.
    #[error(transparent)]
    Pki(#[from] PkiError),
}

/// The reason why the content of a CA's file is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// The content is not a certificate or key.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The certificate belongs to a leaf.
    #[error("this is not the certificate of a CA")]
    NotCa,
    /// The key does not belong to the certificate.
    #[error("this is not the key of {}", .0.display())]
    OtherKey(PathBuf),
    /// The public key does not belong to the private one.
    #[error("this is not the public half of {}", .0.display())]
    OtherHalf(PathBuf),
    /// The content is not the record of encryption keys. The parser's reason may contain a key.
    #[error("these are not encryption keys; put back the file from a backup or a standby")]
    NotKeys,
    /// The content is not the record of a rotation. The parser's reason may contain a key.
    #[error("this is not the record of a rotation; put back the file from a backup or a standby")]
    NotRotation,
    /// The content is not the record of a prepared CA. The parser's reason may contain a key.
    #[error(
        "this is not the record of a CA that an operator has prepared; `ctl certs import CA --discard` removes it"
    )]
    NotPrepared,
    /// The content is not a list of replaced certificates.
    #[error("this is not a list of certificates; put back the file from a backup or a standby")]
    NotDropped,
    /// The CA cannot sign.
    #[error("it cannot sign")]
    Issuer(#[source] rcgen::Error),
}

/// Problems, each on a line.
fn lines(problems: &[String]) -> String {
    let lines = problems.iter().map(|problem| format!("\n  - {problem}"));
    lines.collect()
}

/// The remedy for an imported CA that cannot be used any more.
fn remedy(action: &str, name: &str) -> String {
    match action {
        "rotate" => format!(
            "\nimport another one, or remove it with `ctl certs import {name} --discard`, and Halite makes the CA"
        ),
        _ => String::new(),
    }
}

impl CaError {
    /// Creates the error of a failed `action` on a file or directory, for `map_err`.
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

    /// Creates the error of a file with invalid content, for `map_err`.
    pub fn unusable<E: Into<ContentError>>(path: impl Into<PathBuf>) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::Unusable {
            path,
            source: source.into(),
        }
    }
}
