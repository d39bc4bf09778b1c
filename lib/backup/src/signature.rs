//! The signature of a backup. The cluster's own CA signs the facts in the header and the list of
//! the files; the digest at the end of a backup says only that no byte was lost.
//!
//! The master makes it, because the key of the CA never leaves the master's host and its standbys.
//! It is a file in the archive, so that it reveals nothing about an encrypted backup, and older
//! versions can still read the backup.

use std::collections::BTreeMap;

use halite_proto::pki;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::header::Header;
use crate::manifest::{BackupEntry, Manifest};

/// The path of the signature in the archive, where it comes after all other files.
pub const SIGNATURE: &str = "signature.json";
/// The kind of the statement. The CA signs certificates too, which do not begin with a brace.
const KIND: &str = "halite-backup-signature 1";

/// The reason why a signature is invalid.
#[derive(Debug, thiserror::Error)]
pub enum BadSignature {
    /// It is not the signature of a backup.
    #[error("it is malformed")]
    Malformed,
    /// The CA is not the one named in the header.
    #[error("it is by another CA ({0}), not the CA of the cluster that the backup names")]
    OtherCa(String),
    /// The CA has not signed this.
    #[error("the CA has not signed this")]
    Forged,
    /// The signed header differs.
    #[error("the signature is for another header")]
    Header,
    /// The signature is for another file.
    #[error("{0} is not the signed file")]
    File(String),
}

#[derive(Deserialize)]
struct Signed {
    /// The signed statement.
    statement: String,
    /// The signature, in base64.
    signature: String,
    /// The certificate of the CA, PEM.
    certificate: String,
}

#[derive(Deserialize)]
struct Statement {
    kind: String,
    header: Value,
    files: BTreeMap<String, BackupEntry>,
}

/// Checks that the CA which the header names has signed header and files.
pub(crate) fn verify(text: &[u8], manifest: &Manifest) -> Result<(), BadSignature> {
    let signed: Signed = serde_json::from_slice(text).map_err(|_| BadSignature::Malformed)?;
    let certificates =
        pki::certificates(&signed.certificate).map_err(|_| BadSignature::Malformed)?;
    let ca = certificates.first().ok_or(BadSignature::Malformed)?;
    let hash = pki::sha256_hex(ca);
    if hash != manifest.header.cluster_id {
        return Err(BadSignature::OtherCa(hash));
    }
    let statement = signed.statement.as_bytes();
    // Only this one: a certificate after it is not compared with the header.
    if !pki::is_signed(&pki::certificate_pem(ca), statement, &signed.signature) {
        return Err(BadSignature::Forged);
    }
    compare(statement, manifest)
}

/// Compares a statement with the manifest that was read.
fn compare(statement: &[u8], manifest: &Manifest) -> Result<(), BadSignature> {
    let statement: Statement =
        serde_json::from_slice(statement).map_err(|_| BadSignature::Malformed)?;
    if statement.kind != KIND {
        return Err(BadSignature::Malformed);
    }
    // The encrypting program adds the recipients and drops fractions of a second.
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
