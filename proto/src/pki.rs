//! Keys, certificate requests and certificates for both ends.

use std::fmt;
use std::fmt::Write as _;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256,
    PublicKeyData as _,
};
use ring::signature;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::identity::Identity;
use crate::pkcs8;

pub use crate::pkcs8::KeyFormError;
pub use crate::pki_error::PkiError;

/// The kinds of keys that a CA may have, each with the hash that fits it.
const ALGORITHMS: [&dyn signature::VerificationAlgorithm; 3] = [
    &signature::ECDSA_P256_SHA256_ASN1,
    &signature::ECDSA_P384_SHA384_ASN1,
    &signature::RSA_PKCS1_2048_8192_SHA256,
];

/// A private key: ECDSA P-256 when made here. `Debug` shows only its fingerprint.
pub struct PrivateKey(KeyPair);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.fingerprint())
    }
}

impl PrivateKey {
    /// Makes a new ECDSA P-256 key.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn generate() -> Result<Self, PkiError> {
        KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
            .map(Self)
            .map_err(PkiError::MakeKey)
    }

    /// Reads a key in PEM: PKCS#8 (`PRIVATE KEY`), PKCS#1 (`RSA PRIVATE KEY`) or SEC1 (`EC PRIVATE
    /// KEY`).
    ///
    /// # Errors
    /// The text is not a key, or its algorithm is not supported.
    pub fn from_pem(pem: &str) -> Result<Self, PkiError> {
        let der = pkcs8::wrapped(&private_key(pem)?)?;
        KeyPair::try_from(der.as_slice())
            .map(Self)
            .map_err(PkiError::UseKey)
    }

    /// The key as PKCS#8 PEM: a secret.
    #[must_use]
    pub fn to_pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// The public half, PKIX PEM (`PUBLIC KEY`).
    #[must_use]
    pub fn public_pem(&self) -> String {
        self.0.public_key_pem()
    }

    /// SHA-256 of the public key (SPKI DER), see [`fingerprint`].
    #[must_use]
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.0.subject_public_key_info())
    }

    /// The key for use with rcgen.
    #[must_use]
    pub fn as_key_pair(&self) -> &KeyPair {
        &self.0
    }

    /// The key for use with rcgen, by value.
    #[must_use]
    pub fn into_key_pair(self) -> KeyPair {
        self.0
    }

    /// A certificate request (PEM) that proves possession of this key. The signer uses only the
    /// key: the name is for people, and the signer decides the content of the certificate.
    ///
    /// # Errors
    /// The name is invalid in a certificate.
    pub fn request(&self, common_name: &str) -> Result<String, PkiError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        let request = params
            .serialize_request(&self.0)
            .map_err(PkiError::Request)?;
        request.pem().map_err(PkiError::Request)
    }
}

/// Random bytes of the system, for serial numbers, token secrets and ids.
///
/// # Errors
/// The system has no randomness.
pub fn random<const N: usize>() -> Result<[u8; N], PkiError> {
    let mut bytes = [0; N];
    let source = rustls::crypto::ring::default_provider().secure_random;
    source.fill(&mut bytes).map_err(|_| PkiError::Randomness)?;
    Ok(bytes)
}

/// Lower-case hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// SHA-256, lower-case hex.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// A public key's fingerprint, which operators compare: SHA-256 of its SPKI DER in lower-case hex,
/// with colons between pairs.
#[must_use]
pub fn fingerprint(spki_der: &[u8]) -> String {
    let pairs: Vec<String> = Sha256::digest(spki_der)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    pairs.join(":")
}

/// All certificates in a PEM text, in order.
///
/// # Errors
/// One of them is not PEM, or the text contains none.
pub fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let found = found.map_err(PkiError::ReadCertificate)?;
    if found.is_empty() {
        return Err(PkiError::NoCertificate);
    }
    Ok(found)
}

/// The private key in a PEM text (PKCS#8, SEC1 or PKCS#1).
///
/// # Errors
/// The text contains no key.
pub fn private_key(pem: &str) -> Result<PrivateKeyDer<'static>, PkiError> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| match error {
        // The error quotes the line, which may contain the key.
        pem::Error::IllegalSectionStart { .. } => PkiError::KeyHeader,
        other => PkiError::ReadKey(other),
    })
}

/// Certificate DER as PEM.
#[must_use]
pub fn certificate_pem(der: &CertificateDer<'_>) -> String {
    pem("CERTIFICATE", der)
}

/// DER as PEM with 64 characters a line (RFC 7468).
#[must_use]
pub fn pem(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in body.as_bytes().chunks(64) {
        text.extend(line.iter().map(|b| char::from(*b)));
        text.push('\n');
    }
    text.push_str("-----END ");
    text.push_str(label);
    text.push_str("-----\n");
    text
}

/// The content of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// Serial number, lower-case hex without leading zeros.
    pub serial: String,
    /// Subject, RFC 4514 order as written.
    pub subject: String,
    /// Issuer, in the same form.
    pub issuer: String,
    /// The public key's [`fingerprint`].
    pub fingerprint: String,
    /// Start of its validity, seconds since the epoch.
    pub not_before: i64,
    /// End of its validity, seconds since the epoch.
    pub not_after: i64,
    /// `true` if it is a CA certificate, which may sign others.
    pub is_ca: bool,
    /// URIs among the alternative names.
    pub uris: Vec<String>,
    /// DNS names among the alternative names.
    pub dns_names: Vec<String>,
    /// Addresses among the alternative names.
    pub addresses: Vec<IpAddr>,
}

impl Inspected {
    /// Reads a certificate's DER.
    ///
    /// # Errors
    /// It is not a certificate.
    pub fn from_der(der: &[u8]) -> Result<Self, PkiError> {
        let (_, certificate) =
            X509Certificate::from_der(der).map_err(|error| PkiError::Certificate(error.into()))?;
        let mut found = Self {
            serial: format!("{:x}", certificate.serial),
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            fingerprint: fingerprint(certificate.public_key().raw),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            is_ca: certificate.is_ca(),
            uris: Vec::new(),
            dns_names: Vec::new(),
            addresses: Vec::new(),
        };
        let names = certificate
            .subject_alternative_name()
            .map_err(PkiError::Certificate)?
            .map(|extension| extension.value.general_names.as_slice());
        for name in names.unwrap_or_default() {
            match name {
                GeneralName::URI(uri) => found.uris.push((*uri).to_owned()),
                GeneralName::DNSName(dns) => found.dns_names.push((*dns).to_owned()),
                GeneralName::IPAddress(bytes) => found.addresses.extend(address(bytes)),
                _ => {}
            }
        }
        Ok(found)
    }

    /// Reads the first certificate in a PEM text.
    ///
    /// # Errors
    /// The text contains none.
    pub fn from_pem(pem: &str) -> Result<Self, PkiError> {
        let all = certificates(pem)?;
        let first = all.first().ok_or(PkiError::NotOneIdentity(0))?;
        Self::from_der(first)
    }

    /// The single identity that the certificate names.
    ///
    /// # Errors
    /// It names none, several, or a malformed one.
    pub fn identity(&self) -> Result<Identity, PkiError> {
        let ours: Vec<&String> = self
            .uris
            .iter()
            .filter(|uri| Identity::is_claimed_by(uri))
            .collect();
        match ours.as_slice() {
            [one] => Ok(one.parse()?),
            several => Err(PkiError::NotOneIdentity(several.len())),
        }
    }
}

/// Returns whether a certificate in a PEM text has the key that made this signature (base64) of
/// these bytes. The expiry of a certificate does not matter.
#[must_use]
pub fn is_signed(certificates_pem: &str, statement: &[u8], signature: &str) -> bool {
    let Ok(signature) = STANDARD.decode(signature) else {
        return false;
    };
    let by = |der: &CertificateDer<'_>| has_signed(der, statement, &signature);
    certificates(certificates_pem).is_ok_and(|all| all.iter().any(by))
}

/// The CA among these whose key has signed a certificate (DER); `None` if none has. Names and
/// expiry do not matter: a CA and the one that replaces it have the same name.
#[must_use]
pub fn issuer_among<'a>(
    certificate: &[u8],
    cas: &'a [CertificateDer<'static>],
) -> Option<&'a CertificateDer<'static>> {
    let (_, found) = X509Certificate::from_der(certificate).ok()?;
    let signed: &[u8] = found.tbs_certificate.as_ref();
    let signature: &[u8] = &found.signature_value.data;
    cas.iter().find(|ca| has_signed(ca, signed, signature))
}

/// Returns whether the first of these CAs (PEM), which is the one that signs, has signed the first
/// certificate of another PEM text.
#[must_use]
pub fn is_of_signer(certificate_pem: &str, cas_pem: &str) -> bool {
    let (Ok(own), Ok(cas)) = (certificates(certificate_pem), certificates(cas_pem)) else {
        return false;
    };
    let signer = cas.get(..1).unwrap_or_default();
    own.first()
        .is_some_and(|own| issuer_among(own, signer).is_some())
}

/// Returns whether a certificate (DER) has the key that made this signature.
fn has_signed(certificate: &[u8], text: &[u8], signature: &[u8]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return false;
    };
    let key = &certificate.public_key().subject_public_key.data;
    ALGORITHMS.into_iter().any(|algorithm| {
        let key = signature::UnparsedPublicKey::new(algorithm, key);
        key.verify(text, signature).is_ok()
    })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

#[cfg(test)]
#[path = "pki_tests.rs"]
mod tests;
