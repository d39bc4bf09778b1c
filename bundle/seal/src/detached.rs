//! Detached signatures, for a bundle in a directory: mounted, or extracted by another program.

use halite_durable::digest;

use super::keys::signature::{InvalidSignature, Signature};
use super::keys::{SecretKey, Signer, Trust, Untrusted, signature};

/// The result of verifying a message's signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedManifest {
    /// The SHA-256 of the message. A caller that reads the message again must compare with it.
    pub sha256: String,
    /// The trusted keys that signed it; empty only if unsigned messages are allowed.
    pub signers: Vec<Signer>,
    /// Ignored signatures, each with the reason.
    pub ignored: Vec<String>,
}

/// The reason why the signatures of a message were refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// A signature file is malformed.
    #[error("this version cannot read a signature")]
    Signature(#[source] InvalidSignature),
    /// No trusted key signed the message.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
}

/// Signs a message and returns the text of a signature file, as `minisign -S` writes it.
#[must_use]
pub fn sign(key: &SecretKey, message: &[u8], comment: &str) -> String {
    signature::sign(key, message, comment)
}

/// Verifies the signature files of a message.
///
/// # Errors
/// A file is not a signature, a signature by a trusted key does not match the message, or no
/// trusted key signed.
pub fn judge(
    message: &[u8],
    signatures: &[String],
    trust: &Trust,
) -> Result<VerifiedManifest, Refused> {
    let signatures = signatures
        .iter()
        .map(|text| Signature::parse(text).map_err(Refused::Signature))
        .collect::<Result<Vec<_>, _>>()?;
    let verdict = trust.judge(message, &signatures)?;
    let sha256 = digest::sha256(message);
    Ok(VerifiedManifest {
        sha256,
        signers: verdict.signers,
        ignored: verdict.ignored,
    })
}
