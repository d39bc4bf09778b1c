//! Signatures of repositories, checked by GnuPG's `gpgv` against a given keyring. No key comes from
//! a server or from a user's keyring.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::error::Error;

/// The keys that are trusted for one repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyring {
    path: PathBuf,
    bytes: Vec<u8>,
}

const BEGIN: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";
const END: &str = "-----END PGP PUBLIC KEY BLOCK-----";

impl Keyring {
    /// Reads a file with public keys, binary (`.gpg`) or armoured (`.asc`).
    ///
    /// # Errors
    /// It cannot be read, or has no public key.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let bytes = fs::read(path).map_err(Error::file("read", path))?;
        let wrong = |message: &str| Error::content(path.to_string_lossy(), message);
        let bytes = match std::str::from_utf8(&bytes) {
            Ok(text) if text.contains(BEGIN) => {
                dearmour(text).ok_or_else(|| wrong("its armour is damaged"))?
            }
            _ => bytes,
        };
        // The tag of a public-key packet (RFC 9580, 5.5.1.1), in the old form or the new one.
        if !matches!(bytes.first(), Some(0x98..=0x9a | 0xc6)) {
            return Err(wrong("it contains no OpenPGP public key"));
        }
        Ok(Self {
            path: path.to_owned(),
            bytes,
        })
    }

    /// Checks an inline-signed message (`InRelease`) and returns its signed part. Text before and
    /// after that part is not signed, and is dropped.
    pub fn open_message(&self, what: &str, message: &[u8]) -> Result<Vec<u8>, Error> {
        let dir = tempdir()?;
        let out = dir.path().join("message");
        self.gpgv(what, dir.path(), &[("signed", message)], Some(&out))?;
        fs::read(&out).map_err(Error::file("read", out))
    }

    /// Checks a detached signature.
    pub fn check(&self, what: &str, signed: &[u8], signature: &[u8]) -> Result<(), Error> {
        self.gpgv(
            what,
            tempdir()?.path(),
            &[("signature", signature), ("signed", signed)],
            None,
        )
    }

    fn gpgv(
        &self,
        what: &str,
        dir: &Path,
        files: &[(&str, &[u8])],
        out: Option<&Path>,
    ) -> Result<(), Error> {
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.join(name);
            let written = fs::File::create_new(&path).and_then(|mut file| file.write_all(bytes));
            written
                .map(|()| path.clone())
                .map_err(Error::file("write", path))
        };
        let mut gpgv = Command::new("gpgv");
        gpgv.args(["--status-fd", "1", "--weak-digest", "SHA1", "--keyring"])
            .arg(write("keyring.gpg", &self.bytes)?);
        if let Some(out) = out {
            gpgv.arg("--output").arg(out);
        }
        for (name, bytes) in files {
            gpgv.arg(write(name, bytes)?);
        }
        gpgv.env("LC_ALL", "C.UTF-8")
            .env("GNUPGHOME", dir)
            .stdin(Stdio::null());
        let wrong = |message: String| Error::Signature {
            what: what.to_owned(),
            message,
        };
        let output = gpgv.output().map_err(|error| {
            wrong(format!(
                "cannot start gpgv: {error} (it is in the package gpgv or gnupg2)"
            ))
        })?;
        judge(&String::from_utf8_lossy(&output.stdout)).map_err(|why| {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = why.unwrap_or_else(|| said.trim().replace('\n', "; "));
            wrong(format!(
                "{why}; trusted are the keys in {}",
                self.path.display()
            ))
        })
    }
}

/// Interprets the output of `gpgv --status-fd` (doc/DETAILS of GnuPG). One good signature by a
/// trusted key is enough, because repositories are signed with an old and a new key at once, but no
/// signature may be bad.
fn judge(status: &str) -> Result<(), Option<String>> {
    let lines: Vec<Vec<&str>> = status
        .lines()
        .filter_map(|line| Some(line.strip_prefix("[GNUPG:] ")?.split(' ').collect()))
        .collect();
    let has = |key: &str| {
        lines
            .iter()
            .find(|words| words[0] == key)
            .map(|words| words.get(1).copied().unwrap_or(""))
    };
    if let Some(key) = has("BADSIG") {
        return Err(Some(format!(
            "the signature by key {key} does not belong to it: it was changed"
        )));
    }
    // VALIDSIG also follows a signature by an expired or revoked key.
    let mut good = false;
    for words in &lines {
        match words[0] {
            "GOODSIG" => good = true,
            "NEWSIG" | "ERRSIG" | "EXPSIG" | "EXPKEYSIG" | "REVKEYSIG" => good = false,
            "VALIDSIG" if good => return Ok(()),
            _ => {}
        }
    }
    let reasons = [
        ("EXPKEYSIG", "is by a key that has expired"),
        ("REVKEYSIG", "is by a key that was revoked"),
        ("EXPSIG", "has expired"),
        ("NO_PUBKEY", "is by a key that is not trusted"),
        (
            "ERRSIG",
            "cannot be checked, or is of a kind that is too weak",
        ),
    ];
    let found = reasons
        .iter()
        .find_map(|(key, why)| has(key).map(|id| format!("its signature ({id}) {why}")));
    Err(found.or_else(|| has("NODATA").map(|_| "it is not signed".to_owned())))
}

fn dearmour(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for block in text.split(BEGIN).skip(1) {
        let block = block
            .split_once(END)?
            .0
            .trim_start_matches(['\r', ' ', '\t'])
            .strip_prefix('\n')?;
        let mut lines = block.lines().map(str::trim);
        // Headers such as `Comment:` end with an empty line.
        lines.by_ref().find(|line| line.is_empty())?;
        let body: String = lines.filter(|line| !line.starts_with('=')).collect();
        bytes.extend(STANDARD.decode(body).ok()?);
    }
    Some(bytes)
}

fn tempdir() -> Result<tempfile::TempDir, Error> {
    tempfile::Builder::new()
        .prefix("halite-gpgv-")
        .tempdir()
        .map_err(Error::file("make a directory in", std::env::temp_dir()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_good_signature_is_enough_and_a_bad_one_too_much() {
        let good = "[GNUPG:] GOODSIG A x\n[GNUPG:] VALIDSIG F";
        let other = "[GNUPG:] NEWSIG\n[GNUPG:] ERRSIG B 1 8 01 1 9 -\n[GNUPG:] NO_PUBKEY B\n";
        let first = "[GNUPG:] NEWSIG\n[GNUPG:] SIG_ID s 2026 1\n";
        assert!(judge(&format!("{other}{first}{good}")).is_ok());
        let why = |status: &str| judge(status).unwrap_err().unwrap();
        assert!(
            why(&format!("{first}{good}\n[GNUPG:] BADSIG C x")).contains("key C does not belong")
        );
        assert!(why(other).contains("(B) is by a key that is not trusted"));
        assert!(
            why("[GNUPG:] EXPKEYSIG D x\n[GNUPG:] VALIDSIG F")
                .contains("(D) is by a key that has expired")
        );
        assert!(why("[GNUPG:] NODATA 4").contains("not signed"));
        assert_eq!(
            judge("GOODSIG\nsomething [GNUPG:] GOODSIG").unwrap_err(),
            None
        );
    }
}
