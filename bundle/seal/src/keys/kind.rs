//! Recognises files that were given in place of a key, for error messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// The beginning of the first line of every `minisign` file.
pub const COMMENT: &str = "untrusted comment:";

/// Names the kind of a file, judging by its beginning.
pub fn name(text: &str) -> &'static str {
    let first = text.lines().next().unwrap_or_default();
    let after = text.lines().nth(1).unwrap_or_default().trim();
    let has = |what: &str| first.contains(what);
    if text.trim().is_empty() {
        "an empty file"
    } else if first.starts_with("ssh-") || first.starts_with("ecdsa-") || first.starts_with("sk-") {
        "a public key of SSH"
    } else if has("BEGIN OPENSSH PRIVATE KEY") {
        "a private key of SSH"
    } else if has("BEGIN PGP PUBLIC KEY") {
        "a public key of OpenPGP"
    } else if has("BEGIN PGP") {
        "something of OpenPGP"
    } else if has("BEGIN CERTIFICATE") {
        "a certificate"
    } else if has("BEGIN") && has("PRIVATE KEY") {
        "a private key in PEM"
    } else if has("BEGIN") && has("PUBLIC KEY") {
        "a public key in PEM"
    } else if first.starts_with(COMMENT) {
        match BASE64.decode(after).map(|bytes| bytes.len()) {
            Ok(42) => "a public key of minisign",
            Ok(158) => "a secret key of minisign",
            Ok(74) => "a signature of minisign",
            _ => "a damaged file of minisign",
        }
    } else {
        "something else"
    }
}
