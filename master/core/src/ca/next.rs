//! The next CA of a name, from an operator (docs/decisions/0103): the key of a certificate request,
//! or an imported CA. The next rotation takes it instead of making one.
//!
//! The record `ca/NAME.next.json` is one of the saved files, as the keys of the CAs are: standbys
//! and backups have it. It is replaced as a whole, so a killed master has the old one or the new
//! one.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use halite_pillar::ca_rotation::CLUSTER_CAS;
use halite_proto::pki::{Inspected, PrivateKey};
use halite_secrets::SecretText;
use halite_store::Millis;
use serde::{Deserialize, Serialize};

use super::checked::{CaName, ImportedParts, check, ready};
use super::{CaError, Cas, ContentError, NAMES, create, files};

/// The most characters of an unknown name in a message.
const NAME_MAX: usize = 80;

/// A CA that an operator imports.
#[derive(Debug, Clone, Default)]
pub struct GivenCa {
    /// Its certificate (PEM), which others of its chain may follow.
    pub certificate: String,
    /// Its private key (PEM); `None` for the key of the request.
    pub key: Option<SecretText>,
    /// The certificates up to its root (PEM); empty if it is a root.
    pub chain: String,
}

impl GivenCa {
    /// A CA with these texts; an empty key stands for that of the request.
    #[must_use]
    pub fn new(certificate: String, key: String, chain: String) -> Self {
        let key = Some(key).filter(|key| !key.is_empty());
        Self {
            certificate,
            key: key.map(SecretText::new),
            chain,
        }
    }
}

/// A CA that was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedCa {
    /// Its certificate (PEM).
    pub certificate: String,
    /// The number of CAs that may follow it in a chain; `None` without a limit.
    pub path_length: Option<u32>,
}

/// The next CA of a name, which no rotation has taken yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedCa {
    /// Its name.
    pub name: &'static str,
    /// Its certificate (PEM); `None` while only its key and a request exist.
    pub certificate: Option<String>,
}

/// The CA that a rotation takes.
pub(super) struct TakenCa {
    pub(super) certificate: String,
    pub(super) key: PrivateKey,
    pub(super) name: CaName,
}

/// The record.
#[derive(Serialize, Deserialize)]
struct NextCa {
    /// The private key (PEM): a secret.
    key: String,
    /// `true` if the key was made here, for a request.
    requested: bool,
    /// The certificate (PEM); `None` before the import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate: Option<String>,
}

impl fmt::Debug for NextCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextCa")
            .field("requested", &self.requested)
            .finish_non_exhaustive()
    }
}

/// The file of the record.
fn path(state_dir: &Path, name: &str) -> PathBuf {
    state_dir.join(format!("ca/{name}.next.json"))
}

fn read(state_dir: &Path, name: &str) -> Result<Option<NextCa>, CaError> {
    let path = path(state_dir, name);
    let text = match files::read(&path) {
        Ok(text) => text,
        Err(CaError::Missing { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let record = serde_json::from_str(&text);
    record
        .map(Some)
        .map_err(|_| CaError::unusable(path)(ContentError::NotPrepared))
}

fn write(state_dir: &Path, name: &str, record: &NextCa) -> Result<(), CaError> {
    // Texts always convert to JSON.
    let text = serde_json::to_string(record).unwrap_or_default();
    files::write(&path(state_dir, name), &text, 0o600)
}

/// The name of a CA that an operator may import.
fn importable(name: &str) -> Result<&'static str, CaError> {
    let mut names = CLUSTER_CAS.into_iter();
    let found = names.find(|other| *other == name);
    // The name may be any text.
    found.ok_or_else(|| CaError::NotImported(name.chars().take(NAME_MAX).collect()))
}

impl Cas {
    /// A certificate request (PEM) for the next CA of a name. The first call makes its key, which
    /// stays here; the others use the same one.
    ///
    /// # Errors
    /// An operator cannot have this CA, one with a key of the operator is imported, or the record
    /// cannot be read or written.
    pub fn request_next(&self, name: &str) -> Result<String, CaError> {
        let name = importable(name)?;
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let record = match self.next_ca(name)? {
            Some(record) if record.requested => record,
            Some(_) => return Err(CaError::AlreadyImported(name.to_owned())),
            None => {
                let record = NextCa {
                    key: PrivateKey::generate()?.to_pem(),
                    requested: true,
                    certificate: None,
                };
                write(&self.state_dir, name, &record)?;
                record
            }
        };
        create::request(name, &self.key_of(name, &record)?)
    }

    /// Checks a CA and records it for the next rotation of its name, in place of one that was
    /// imported before.
    ///
    /// # Errors
    /// An operator cannot have this CA, it has problems, its rotation has not ended, a key is given
    /// while a request waits or is not given without one, or the record cannot be read or written.
    pub fn import_next(
        &self,
        name: &str,
        given: &GivenCa,
        now: Millis,
    ) -> Result<ImportedCa, CaError> {
        let name = importable(name)?;
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.rotation(name).is_some() {
            return Err(CaError::ImportDuringRotation(name.to_owned()));
        }
        let present = self.next_ca(name)?;
        let requested = present.as_ref().filter(|record| record.requested);
        let key = match (&given.key, requested) {
            (Some(_), Some(_)) => return Err(CaError::KeyOfRequest(name.to_owned())),
            (None, None) => return Err(CaError::NotRequested(name.to_owned())),
            (Some(key), None) => key.reveal(),
            (None, Some(record)) => &record.key,
        };
        let others = self.keys_of_others(name)?;
        let parts = ImportedParts {
            certificate: &given.certificate,
            chain: &given.chain,
            key,
            is_requested: requested.is_some(),
            others: &others,
        };
        let checked = check(&parts, now).map_err(|problems| CaError::Imported {
            action: "import",
            name: name.to_owned(),
            problems,
        })?;
        let record = NextCa {
            key: checked.key.to_pem(),
            requested: requested.is_some(),
            certificate: Some(checked.certificate.clone()),
        };
        write(&self.state_dir, name, &record)?;
        Ok(ImportedCa {
            certificate: checked.certificate,
            path_length: checked.path_length,
        })
    }

    /// Removes what was requested or imported for the next rotation of a CA. Returns `false` if
    /// there was nothing.
    ///
    /// # Errors
    /// An operator cannot have this CA, or the record cannot be removed.
    pub fn discard_next(&self, name: &str) -> Result<bool, CaError> {
        let name = importable(name)?;
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // A damaged record is removed, too.
        let exists = !matches!(self.next_ca(name), Ok(None));
        files::remove(&path(&self.state_dir, name))?;
        Ok(exists)
    }

    /// The CAs that operators have prepared, and no rotation has taken yet.
    ///
    /// # Errors
    /// A record cannot be read.
    pub fn prepared(&self) -> Result<Vec<PreparedCa>, CaError> {
        let mut all = Vec::new();
        for name in CLUSTER_CAS {
            if let Some(NextCa { certificate, .. }) = self.next_ca(name)? {
                all.push(PreparedCa { name, certificate });
            }
        }
        Ok(all)
    }

    /// The CA that a rotation of this name takes; `None` if it makes one.
    pub(super) fn imported(&self, name: &str, now: Millis) -> Result<Option<TakenCa>, CaError> {
        let Some(record) = self.next_ca(name)? else {
            return Ok(None);
        };
        let key = self.key_of(name, &record)?;
        let Some(certificate) = record.certificate else {
            return Err(CaError::RequestWaits(name.to_owned()));
        };
        // Time has passed since the import.
        let name = ready(&certificate, now).map_err(|problems| CaError::Imported {
            action: "rotate",
            name: name.to_owned(),
            problems,
        })?;
        Ok(Some(TakenCa {
            certificate,
            key,
            name,
        }))
    }

    /// Removes the record of a CA that a rotation has taken. It is ignored until then, and a
    /// damaged one does not stop a rotation that has begun.
    pub(super) fn forget_taken(&self, name: &str) -> Result<(), CaError> {
        match read(&self.state_dir, name) {
            Ok(Some(record)) if self.is_taken(name, &record) => {
                files::remove(&path(&self.state_dir, name))
            }
            _ => Ok(()),
        }
    }

    /// The record, unless a rotation has taken its CA.
    fn next_ca(&self, name: &str) -> Result<Option<NextCa>, CaError> {
        let record = read(&self.state_dir, name)?;
        Ok(record.filter(|record| !self.is_taken(name, record)))
    }

    /// Returns whether the CA of a record is in use, or was.
    fn is_taken(&self, name: &str, record: &NextCa) -> bool {
        let Some(certificate) = &record.certificate else {
            return false;
        };
        let trusted = self.certificates(name).unwrap_or_default();
        let mut known = trusted.into_iter().chain(self.dropped(name));
        known.any(|pem| pem.trim() == certificate.trim())
    }

    fn key_of(&self, name: &str, record: &NextCa) -> Result<PrivateKey, CaError> {
        let path = path(&self.state_dir, name);
        PrivateKey::from_pem(&record.key).map_err(CaError::unusable(path))
    }

    /// The keys of all CAs that are, were or are to be in use, except the next one of this name:
    /// the fingerprint, and the CA in words.
    fn keys_of_others(&self, name: &str) -> Result<Vec<(String, String)>, CaError> {
        let mut all = Vec::new();
        let mut add = |pem: &str, owner: String| -> Result<(), CaError> {
            all.push((Inspected::from_pem(pem)?.fingerprint, owner));
            Ok(())
        };
        for other in NAMES {
            for pem in self.certificates(other)? {
                add(pem, format!("the CA {other}"))?;
            }
        }
        for pem in self.dropped(name) {
            add(pem, format!("an earlier CA {name}"))?;
        }
        for other in CLUSTER_CAS.into_iter().filter(|other| *other != name) {
            let next = self.next_ca(other)?;
            if let Some(pem) = next.and_then(|next| next.certificate) {
                add(&pem, format!("the CA that was imported for {other}"))?;
            }
        }
        Ok(all)
    }
}
