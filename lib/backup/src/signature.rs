//! The signature of a backup. The cluster's own CA signs the facts in the header and the list of the
//! files; the digest at the end of a backup says only that no byte was lost.
//!
//! The master makes it, because the key of the CA leaves neither its host nor those of its standbys.
//! It is a file of the archive, so that it says nothing about an encrypted backup to others, and
//! that older versions read the backup as before.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use ring::signature;
use serde::Deserialize;
use serde_json::{Value, json};
use x509_parser::pem::parse_x509_pem;

use crate::header::Header;
use crate::manifest::{Entry, Manifest};

/// The path of the signature in the archive, where it comes after all other files.
pub const SIGNATURE: &str = "signature.json";
/// The kind of the statement. The CA signs certificates too, which do not begin with a brace.
const KIND: &str = "halite-backup-signature 1";
/// The kinds of keys that a CA may have, signing with SHA-256 or what fits the curve.
const ALGORITHMS: [&dyn signature::VerificationAlgorithm; 3] = [
    &signature::ECDSA_P256_SHA256_ASN1,
    &signature::ECDSA_P384_SHA384_ASN1,
    &signature::RSA_PKCS1_2048_8192_SHA256,
];

/// The reason why a signature counts for nothing.
#[derive(Debug, thiserror::Error)]
pub enum BadSignature {
    /// It is no signature of a backup.
    #[error("it is malformed")]
    Malformed,
    /// The CA is another one than that of the header.
    #[error("it is by another CA ({0}) than that of the cluster that the backup names")]
    OtherCa(String),
    /// The CA has not signed this.
    #[error("the CA has not signed this")]
    Forged,
    /// The header says something else.
    #[error("what is signed has another header")]
    Header,
    /// A file is another one.
    #[error("{0} is not the file that is signed")]
    File(String),
}

#[derive(Deserialize)]
struct Signed {
    /// The statement, as it was signed.
    statement: String,
    /// In base64.
    signature: String,
    /// That of the CA, PEM.
    certificate: String,
}

#[derive(Deserialize)]
struct Statement {
    kind: String,
    header: Value,
    files: BTreeMap<String, Entry>,
}

/// Checks that the CA which the header names has signed header and files.
pub(crate) fn verify(text: &[u8], manifest: &Manifest) -> Result<(), BadSignature> {
    let signed: Signed = serde_json::from_slice(text).map_err(|_| BadSignature::Malformed)?;
    let signature = STANDARD.decode(&signed.signature);
    let signature = signature.map_err(|_| BadSignature::Malformed)?;
    let (_, pem) =
        parse_x509_pem(signed.certificate.as_bytes()).map_err(|_| BadSignature::Malformed)?;
    let hash = halite_durable::digest::sha256(&pem.contents);
    if hash != manifest.header.cluster_id {
        return Err(BadSignature::OtherCa(hash));
    }
    let certificate = pem.parse_x509().map_err(|_| BadSignature::Malformed)?;
    let key = &certificate
        .tbs_certificate
        .subject_pki
        .subject_public_key
        .data;
    let statement = signed.statement.as_bytes();
    let fits = |algorithm| {
        let key = signature::UnparsedPublicKey::new(algorithm, key);
        key.verify(statement, &signature).is_ok()
    };
    if !ALGORITHMS.into_iter().any(fits) {
        return Err(BadSignature::Forged);
    }
    compare(statement, manifest)
}

/// Compares a statement with what was read.
fn compare(statement: &[u8], manifest: &Manifest) -> Result<(), BadSignature> {
    let statement: Statement =
        serde_json::from_slice(statement).map_err(|_| BadSignature::Malformed)?;
    if statement.kind != KIND {
        return Err(BadSignature::Malformed);
    }
    // The program that encrypts adds the recipients, and leaves fractions of a second out.
    let mut header = statement.header;
    header["recipients"] = json!([]);
    let mut header: Header = serde_json::from_value(header).map_err(|_| BadSignature::Malformed)?;
    let seconds = Timestamp::from_second(header.created.as_second());
    header.created = seconds.map_err(|_| BadSignature::Malformed)?;
    let found = Header {
        recipients: Vec::new(),
        ..manifest.header.clone()
    };
    if header != found {
        return Err(BadSignature::Header);
    }
    let is_other = |name: &&String| *name != SIGNATURE;
    let names = statement.files.keys().chain(manifest.files.keys());
    let differs = |name: &&String| statement.files.get(*name) != manifest.files.get(*name);
    match names.filter(is_other).find(differs) {
        Some(name) => Err(BadSignature::File(name.clone())),
        None => Ok(()),
    }
}
