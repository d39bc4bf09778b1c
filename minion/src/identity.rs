//! This minion's identity on disk: key, certificate and the CAs that it trusts.

use std::path::{Path, PathBuf};

use halite_proto::identity::IdentityKind;
use halite_proto::ids::MinionId;
use halite_proto::pki;
use halite_proto::pki::{Inspected, PkiError, PrivateKey};
use halite_proto::transport::ClientIdentity;
use halite_proto::v1::MinionTrust;

use crate::config::Config;
use crate::host::HostError;
use crate::host::linux::files;

/// No usable identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Not enrolled yet.
    #[error(
        "this host is not enrolled: run `halite-minion enrol --master HOST:PORT --token TOKEN`"
    )]
    Missing,
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] HostError),
    /// Key or certificate cannot be read as such.
    #[error("cannot use the identity (remove it and enrol again)")]
    Pki(#[from] PkiError),
    /// The files are not an identity of this minion.
    #[error("cannot use the identity (remove it and enrol again)")]
    Invalid(#[from] InvalidIdentity),
}

/// The reason why the files are not an identity of this minion.
#[derive(Debug, thiserror::Error)]
pub enum InvalidIdentity {
    /// A file has bytes that are not UTF-8.
    #[error("{} is not text", .0.display())]
    NotText(PathBuf),
    /// The certificate belongs to a master or an operator.
    #[error("it is of kind {0}, not a minion")]
    Kind(IdentityKind),
    /// The certificate is for another key.
    #[error("key and certificate do not belong together")]
    OtherKey,
    /// A certificate among the CAs that the master names is not that of a CA.
    #[error("the master names a certificate as CA that is not one")]
    NotCa,
}

/// Identity and trust.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Certificate and key, for the connection to the master.
    pub client: ClientIdentity,
    /// The trusted CAs of identities, PEM, the one that signs first.
    pub ca_pem: String,
    /// The minion's id.
    pub id: MinionId,
    /// The cluster's name.
    pub cluster: String,
    /// Start of the validity, seconds since the epoch.
    pub not_before: i64,
    /// End of the validity, seconds since the epoch.
    pub not_after: i64,
}

impl Identity {
    /// Reads the identity.
    ///
    /// # Errors
    /// It is missing, unreadable or not an identity of a minion.
    pub fn load(config: &Config) -> Result<Self, IdentityError> {
        let read = |path: &Path| -> Result<String, IdentityError> {
            let content = files::read(path)?.ok_or(IdentityError::Missing)?;
            String::from_utf8(content).map_err(|_| InvalidIdentity::NotText(path.to_owned()).into())
        };
        let certificate_pem = read(&config.certificate())?;
        let key_pem = read(&config.key())?;
        let ca_pem = read(&config.ca())?;
        let found = Inspected::from_pem(&certificate_pem)?;
        let identity = found.identity()?;
        let id = identity
            .minion()
            .ok_or(InvalidIdentity::Kind(identity.kind()))?;
        if PrivateKey::from_pem(&key_pem)?.fingerprint() != found.fingerprint {
            return Err(InvalidIdentity::OtherKey.into());
        }
        Ok(Self {
            id,
            cluster: identity.cluster().to_owned(),
            client: ClientIdentity {
                certificate_pem,
                key_pem,
            },
            ca_pem,
            not_before: found.not_before,
            not_after: found.not_after,
        })
    }

    /// Returns whether the CA that signs now has signed the certificate: another one leaves.
    #[must_use]
    pub fn is_of_signer(&self) -> bool {
        pki::is_of_signer(&self.client.certificate_pem, &self.ca_pem)
    }

    /// The trusted CAs, and the one that has signed the certificate, for the master.
    #[must_use]
    pub fn trust(&self) -> MinionTrust {
        let cas = pki::certificates(&self.ca_pem).unwrap_or_default();
        let own = pki::certificates(&self.client.certificate_pem).unwrap_or_default();
        let signer = own.first().and_then(|own| pki::issuer_among(own, &cas));
        MinionTrust {
            signed_by: signer.map_or_else(String::new, |ca| pki::sha256_hex(ca)),
            cas: cas.iter().map(|ca| pki::sha256_hex(ca)).collect(),
        }
    }

    /// Trusts these CAs of identities (PEM) from now on; returns `false` if they are the present
    /// ones.
    ///
    /// # Errors
    /// They cannot be read, or cannot be recorded: then the present ones stay.
    pub fn trust_from_now(&self, config: &Config, ca_pem: &str) -> Result<bool, IdentityError> {
        let cas = pki::certificates(ca_pem)?;
        if pki::certificates(&self.ca_pem).is_ok_and(|own| own == cas) {
            return Ok(false);
        }
        for ca in &cas {
            if !Inspected::from_der(ca)?.is_ca {
                return Err(InvalidIdentity::NotCa.into());
            }
        }
        let plain = files::Owner {
            mode: Some(0o644),
            ..files::Owner::default()
        };
        files::write(&config.ca(), ca_pem.as_bytes(), plain)?;
        Ok(true)
    }

    /// Returns whether the certificate has expired.
    #[must_use]
    pub fn has_ended(&self, now: i64) -> bool {
        now > self.not_after
    }

    /// Returns whether a third or less of the lifetime is left.
    #[must_use]
    pub fn is_old(&self, now: i64) -> bool {
        let third = self.not_after.saturating_sub(self.not_before) / 3;
        now > self.not_after.saturating_sub(third)
    }
}

/// The key of this minion: the present one, or a new one, which is on disk when this returns.
///
/// # Errors
/// It cannot be read, made or written.
pub fn key(config: &Config) -> Result<PrivateKey, IdentityError> {
    let path = config.key();
    if let Some(content) = files::read(&path)?
        && let Ok(text) = String::from_utf8(content)
        && let Ok(key) = PrivateKey::from_pem(&text)
    {
        return Ok(key);
    }
    let key = PrivateKey::generate()?;
    files::write(&path, key.to_pem().as_bytes(), secret())?;
    Ok(key)
}

/// Owner and mode of files that only root may read.
#[must_use]
pub fn secret() -> files::Owner {
    files::Owner {
        mode: Some(0o600),
        ..files::Owner::default()
    }
}

/// Makes the directories of the minion's own state.
///
/// # Errors
/// They cannot be made.
pub fn make_directories(config: &Config) -> Result<(), IdentityError> {
    for path in [
        config.state_dir.clone(),
        config.journal(),
        config.pending_triggers(),
        config.blobs(),
    ] {
        files::mkdir_private(&path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(directory: &Path) -> Config {
        Config {
            state_dir: directory.join("var/lib/minion"),
            ..Config::default()
        }
    }

    #[test]
    fn a_key_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        make_directories(&config).unwrap();
        make_directories(&config).unwrap();
        let first = key(&config).unwrap();
        assert_eq!(key(&config).unwrap().fingerprint(), first.fingerprint());
        assert_eq!(files::stat(&config.key()).unwrap().unwrap().mode, 0o600);
        assert!(matches!(
            Identity::load(&config),
            Err(IdentityError::Missing)
        ));
    }

    #[test]
    fn renewal_is_due_in_the_last_third() {
        let identity = Identity {
            client: ClientIdentity {
                certificate_pem: String::new(),
                key_pem: String::new(),
            },
            ca_pem: String::new(),
            id: "a".parse().unwrap(),
            cluster: "c".into(),
            not_before: 0,
            not_after: 900,
        };
        assert!(!identity.is_old(600));
        assert!(identity.is_old(601));
        assert!(!identity.has_ended(900));
        assert!(identity.has_ended(901));
    }
}
