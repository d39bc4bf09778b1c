//! Errors of keys and certificates.

use rustls_pki_types::pem;
use x509_parser::error::X509Error;

use crate::identity::IdentityError;
use crate::pkcs8::KeyFormError;

/// The reason why a key, request or certificate cannot be used. It never contains key material.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The system has no random bytes.
    #[error("the system has no randomness")]
    Randomness,
    /// A private key could not be made.
    #[error("cannot make a private key")]
    MakeKey(#[source] rcgen::Error),
    /// The text is not a private key in PEM.
    #[error("cannot read the private key")]
    ReadKey(#[source] pem::Error),
    /// A line that starts like a PEM header contains more text.
    #[error("cannot read the private key: text follows `-----BEGIN` that is not a PEM header")]
    KeyHeader,
    /// The key has a form that cannot be converted.
    #[error("cannot read the private key")]
    KeyForm(#[from] KeyFormError),
    /// The algorithm of the key is not supported, or the key does not match it.
    #[error("cannot use the private key")]
    UseKey(#[source] rcgen::Error),
    /// A certificate request could not be made.
    #[error("cannot make the certificate request")]
    Request(#[source] rcgen::Error),
    /// The text is not a certificate in PEM.
    #[error("cannot read the certificate")]
    ReadCertificate(#[source] pem::Error),
    /// The text contains no certificate.
    #[error("cannot read the certificate: there is no CERTIFICATE block in the text")]
    NoCertificate,
    /// The content of a certificate is malformed.
    #[error("cannot read the certificate")]
    Certificate(#[source] X509Error),
    /// A certificate contains no Halite identity, or several.
    #[error("the certificate names {0} Halite identities, exactly one is needed")]
    NotOneIdentity(usize),
    /// The identity in a certificate is malformed.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}
