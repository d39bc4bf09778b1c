//! Signatures in files of their own, for a bundle that is a directory: mounted, or extracted by
//! another program.

use halite_durable::digest;

use super::keys::{SecretKey, Trust};
use super::report::Signer;
use super::signature;
use super::signature::Signature;

/// Who vouches for a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedManifest {
    /// The SHA-256 of the message: whoever reads it again uses nothing else.
    pub sha256: String,
    /// The trusted keys that signed it; empty only where what nobody signed is allowed.
    pub signers: Vec<Signer>,
    /// Signatures that did not count, each with why.
    pub ignored: Vec<String>,
}

/// Signs a message; gives the text of a signature file, as `minisign -S` writes it.
#[must_use]
pub fn sign(key: &SecretKey, message: &[u8], comment: &str) -> String {
    signature::sign(key, message, comment)
}

/// Judges the signature files of a message.
///
/// # Errors
/// When one of them is none, does not fit the message although its key is trusted, or no trusted
/// key signed.
pub fn judge(
    message: &[u8],
    signatures: &[String],
    trust: &Trust,
) -> Result<VerifiedManifest, String> {
    let parse = |text: &String| {
        Signature::parse(text)
            .map_err(|why| format!("a signature is none that this version reads: {why}"))
    };
    let signatures = signatures
        .iter()
        .map(parse)
        .collect::<Result<Vec<_>, _>>()?;
    let verdict = trust.judge(message, &signatures)?;
    let sha256 = digest::sha256(message);
    Ok(VerifiedManifest {
        sha256,
        signers: verdict.signers,
        ignored: verdict.ignored,
    })
}
