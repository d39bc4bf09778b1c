//! Trust: the keys whose signatures on an image are accepted.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use halite_errors::chain;
use jiff::Timestamp;

use super::directory::{REVOKED, parse_revoked};
use super::signature::Signature;
use super::{KeyId, PublicKey, Signer, directory};
use crate::error::Error;

/// The trusted keys and the revoked ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    keys: Vec<PublicKey>,
    /// Revoked keys, each with the reason from the file.
    revoked: BTreeMap<KeyId, String>,
    unsigned: bool,
    /// The time of the check, if it is not the current time.
    now: Option<Timestamp>,
}

/// The result of verifying a statement's signatures.
#[derive(Debug)]
pub struct Verdict {
    pub signers: Vec<Signer>,
    pub ignored: Vec<String>,
}

/// The reason why no signature of a message is accepted.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    /// A signature by a trusted key does not match.
    #[error(
        "the signature of key {key} does not match its statement: one of them was changed; do not use this image, and \
         ask its builder"
    )]
    Changed {
        /// The key's name and id.
        key: String,
    },
    /// There is no signature.
    #[error("it is not signed: ask its builder for a signed one")]
    Unsigned,
    /// There are signatures, but none by a trusted key.
    #[error(
        "no trusted key signed it: {}. Trusted are: {}. Ask its builder for the current .pub file, through another channel \
         than the image, and put it into the trust directory; or ask for an image signed by a trusted key",
        ignored.join("; "),
        if trusted.is_empty() { "none".to_owned() } else { trusted.join(", ") }
    )]
    NoTrustedKey {
        /// Ignored signatures, each with the reason.
        ignored: Vec<String>,
        /// The names and ids of the trusted keys.
        trusted: Vec<String>,
    },
}

impl Trust {
    /// A trust store with these keys.
    #[must_use]
    pub fn new(keys: Vec<PublicKey>) -> Self {
        Self {
            keys,
            ..Self::default()
        }
    }

    /// A trust store without keys that accepts unsigned images. Such an image is checked for damage
    /// only; its maker may have put anything into it. For `--allow-unsigned`.
    #[must_use]
    pub fn unsigned() -> Self {
        Self::default().allow_unsigned()
    }

    /// Also accepts an image that no trusted key signed.
    #[must_use]
    pub fn allow_unsigned(self) -> Self {
        Self {
            unsigned: true,
            ..self
        }
    }

    /// Uses this time instead of the current one.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Self {
        Self {
            now: Some(now),
            ..self
        }
    }

    /// Loads every `.pub` file of a directory. Its file `revoked` lists revoked keys: on each line
    /// a key id and the reason.
    ///
    /// # Errors
    /// The directory cannot be read, has no key, or has an invalid file. The error names all
    /// of them.
    pub fn load(dir: &Path) -> Result<Self, Error> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir).map_err(Error::file("list", dir))? {
            names.push(entry.map_err(Error::file("list", dir))?.path());
        }
        names.sort_unstable();
        let (mut trust, mut problems) = (Self::default(), Vec::new());
        for path in names
            .iter()
            .filter(|path| path.extension().is_some_and(|suffix| suffix == "pub"))
        {
            match PublicKey::load(path) {
                Ok(key) => match trust.keys.iter_mut().find(|other| other.id() == key.id()) {
                    // The same key under two names counts only once.
                    Some(other) if other.bytes() == key.bytes() => other.until(&key),
                    Some(other) => problems.push(format!(
                        "{}: another key with the id {} is in {}.pub: remove the forged one",
                        path.display(),
                        key.id(),
                        other.name().unwrap_or_default()
                    )),
                    None => trust.keys.push(key),
                },
                Err(error) => problems.push(chain(&error)),
            }
        }
        let revoked = dir.join(REVOKED);
        match parse_revoked(&directory::list(&revoked)?) {
            Ok(revoked) => trust.revoked = revoked,
            Err(wrong) => problems.extend(
                wrong
                    .iter()
                    .map(|why| format!("{}: {why}", revoked.display())),
            ),
        }
        if !problems.is_empty() {
            return Err(Error::content(
                dir,
                format!("it cannot be used:\n  {}", problems.join("\n  ")),
            ));
        }
        if trust.keys.is_empty() {
            let message = "it holds no public key: put the .pub file of the bundles' builder there, received through \
                           another channel than the bundle";
            return Err(Error::content(dir, message));
        }
        Ok(trust)
    }

    /// Applies the restrictions of a trust directory to these keys: the revocations in its file
    /// `revoked`, and the earlier expiry of each key that both contain. Its other keys are not
    /// added.
    ///
    /// # Errors
    /// The directory exists and cannot be read, or its file `revoked` is invalid.
    pub fn no_more_than(mut self, dir: &Path) -> Result<Self, Error> {
        for path in directory::public(dir)? {
            // The caller that loads the directory reports files that are not keys.
            let Ok(there) = PublicKey::load(&path) else {
                continue;
            };
            let same =
                |key: &&mut PublicKey| key.id() == there.id() && key.bytes() == there.bytes();
            self.keys
                .iter_mut()
                .filter(same)
                .for_each(|key| key.until(&there));
        }
        let path = dir.join(REVOKED);
        let revoked = parse_revoked(&directory::list(&path)?)
            .map_err(|wrong| Error::content(&path, wrong.join("; ")))?;
        self.revoked.extend(revoked);
        Ok(self)
    }

    /// The revoked keys, each with the reason.
    pub(super) fn revoked(&self) -> &BTreeMap<KeyId, String> {
        &self.revoked
    }

    /// The trusted keys.
    #[must_use]
    pub fn keys(&self) -> &[PublicKey] {
        &self.keys
    }

    fn key(&self, id: KeyId) -> Option<&PublicKey> {
        self.keys.iter().find(|key| key.id() == id)
    }

    /// Finds the trusted keys that signed a statement. A wrong signature by a known key refuses the
    /// image regardless of other signatures: the statement or the signature was changed.
    pub(in super::super) fn judge(
        &self,
        statement: &[u8],
        signatures: &[Signature],
    ) -> Result<Verdict, Untrusted> {
        let now = self.now.unwrap_or_else(Timestamp::now);
        let mut verdict = Verdict {
            signers: Vec::new(),
            ignored: Vec::new(),
        };
        for signature in signatures {
            let id = signature.key();
            let known = self.key(id);
            if let Some(key) = known
                && !signature.is_by(key, statement)
            {
                return Err(Untrusted::Changed { key: called(key) });
            }
            match (known, self.revoked.get(&id)) {
                (_, Some(why)) if why.is_empty() => {
                    verdict.ignored.push(format!("key {id} is revoked"))
                }
                (_, Some(why)) => verdict.ignored.push(format!("key {id} is revoked: {why}")),
                (None, None) => verdict
                    .ignored
                    .push(format!("key {id} is not trusted here")),
                (Some(key), None) => match key.not_after().filter(|end| *end <= now) {
                    Some(end) => verdict
                        .ignored
                        .push(format!("key {} expired at {end}", called(key))),
                    None => verdict.signers.push(Signer {
                        key: id,
                        name: key.name().map(str::to_owned),
                    }),
                },
            }
        }
        if !verdict.signers.is_empty() || self.unsigned {
            return Ok(verdict);
        }
        if signatures.is_empty() {
            return Err(Untrusted::Unsigned);
        }
        Err(Untrusted::NoTrustedKey {
            ignored: verdict.ignored,
            trusted: self.keys.iter().map(called).collect(),
        })
    }
}

fn called(key: &PublicKey) -> String {
    key.name().map_or_else(
        || key.id().to_string(),
        |name| format!("{name} ({})", key.id()),
    )
}
