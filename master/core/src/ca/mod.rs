//! The certificate authorities, which are stored as files and sign exactly what a profile says.
//!
//! `kubernetes`, `etcd` and `front-proxy` equal kubeadm's three in subject, usages and lifetime
//! (kubeadm's `certlist.go` and `pki_helpers.go`); `halite` signs identities and `site` the
//! bundle's web server. A request contributes only its public key and the proof of possession:
//! names, usages and lifetime come from the [`Profile`], which comes from the master's own
//! compilation.

mod create;
mod error;
mod expired;
pub mod files;
mod profile;
mod sign;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_proto::pki;
use halite_proto::pki::{Inspected, PrivateKey};
use halite_proto::v1::Epoch;
use halite_store::Millis;
use rcgen::{Issuer, KeyPair, SigningKey as _};
use rustls_pki_types::CertificateDer;

pub use error::{CaError, ContentError};
pub use expired::ExpiredCa;
pub use profile::{CHUNK_CAS, Profile};
pub use sign::{Issued, request_fingerprint};

/// The CA of identities.
pub const HALITE: &str = "halite";
/// The CA of the Kubernetes API and its clients.
pub const KUBERNETES: &str = "kubernetes";
/// The CA of the bundle's web server.
pub const SITE: &str = "site";
/// All CAs.
pub const NAMES: [&str; 5] = [HALITE, KUBERNETES, "etcd", "front-proxy", SITE];
/// Time before the signing at which a certificate's validity starts, so that a host whose clock is
/// behind accepts it. One hour, because a clock without daylight saving time is wrong by that much;
/// kubeadm's `CertificateBackdate` is five minutes.
pub const BACKDATE_SECONDS: i64 = 60 * 60;

/// One certificate authority.
pub struct Ca {
    name: String,
    certificate_pem: String,
    certificate_der: CertificateDer<'static>,
    key_pem: String,
    not_after: i64,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ca")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Ca {
    /// Reads a CA and checks that the certificate is a CA's and that the key belongs to it. An
    /// expired CA is read, too: see [`Cas::expired`].
    ///
    /// # Errors
    /// The first problem, with the file that has it.
    fn read(name: &str, directory: &Path) -> Result<Self, CaError> {
        let [certificate_path, key_path] = files::pair(directory, name);
        let certificate_pem = files::read(&certificate_path)?;
        let key_pem = files::read(&key_path)?;
        let found =
            Inspected::from_pem(&certificate_pem).map_err(CaError::unusable(&certificate_path))?;
        if !found.is_ca {
            return Err(CaError::unusable(certificate_path)(ContentError::NotCa));
        }
        let key = PrivateKey::from_pem(&key_pem).map_err(CaError::unusable(&key_path))?;
        if key.fingerprint() != found.fingerprint {
            let other = ContentError::OtherKey(certificate_path);
            return Err(CaError::unusable(key_path)(other));
        }
        let certificate_der = pki::certificates(&certificate_pem)?.swap_remove(0);
        let issuer = Issuer::from_ca_cert_der(&certificate_der, key.into_key_pair())
            .map_err(ContentError::Issuer)
            .map_err(CaError::unusable(certificate_path))?;
        Ok(Self {
            name: name.to_owned(),
            certificate_pem,
            certificate_der,
            key_pem,
            not_after: found.not_after,
            issuer,
        })
    }

    /// Returns whether it has expired.
    fn is_expired(&self, now: Millis) -> bool {
        self.not_after < now / 1000
    }
}

/// All certificate authorities and the key pair of service accounts.
#[derive(Debug)]
pub struct Cas {
    cas: BTreeMap<String, Ca>,
    sa: ServiceAccounts,
}

/// The key pair that signs and verifies tokens of service accounts.
struct ServiceAccounts {
    key_pem: String,
    public_pem: String,
}

impl fmt::Debug for ServiceAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServiceAccounts(..)")
    }
}

impl Cas {
    /// Creates missing files under `state_dir` (`ca/NAME.{crt,key}`, `sa.{key,pub}`), keeps
    /// existing ones, and loads all. May be repeated at any time, also after a crash half-way.
    ///
    /// # Errors
    /// A file cannot be read or written, or an existing file is invalid.
    pub fn create_or_load(state_dir: &Path, cluster: &str, now: Millis) -> Result<Self, CaError> {
        create::missing(state_dir, cluster, now)?;
        Self::load(state_dir)
    }

    /// Loads all files; creates none. A CA may have expired ([`Cas::expired`]).
    ///
    /// # Errors
    /// A file is missing or invalid.
    pub fn load(state_dir: &Path) -> Result<Self, CaError> {
        let directory = state_dir.join("ca");
        let mut cas = BTreeMap::new();
        for name in NAMES {
            cas.insert(name.to_owned(), Ca::read(name, &directory)?);
        }
        let key_path = state_dir.join("sa.key");
        let public_path = state_dir.join("sa.pub");
        let key_pem = files::read(&key_path)?;
        let public_pem = files::read(&public_path)?;
        let key = PrivateKey::from_pem(&key_pem).map_err(CaError::unusable(&key_path))?;
        let same = |a: &str, b: &str| a.split_whitespace().eq(b.split_whitespace());
        if !same(&key.public_pem(), &public_pem) {
            let other = ContentError::OtherHalf(key_path);
            return Err(CaError::unusable(public_path)(other));
        }
        Ok(Self {
            cas,
            sa: ServiceAccounts {
                key_pem,
                public_pem,
            },
        })
    }

    fn ca(&self, name: &str) -> Result<&Ca, CaError> {
        self.cas
            .get(name)
            .ok_or_else(|| CaError::Unknown(name.to_owned()))
    }

    /// A CA's certificate, PEM.
    ///
    /// # Errors
    /// No CA has this name.
    pub fn certificate_pem(&self, name: &str) -> Result<&str, CaError> {
        Ok(&self.ca(name)?.certificate_pem)
    }

    /// The CAs that have expired, sorted by name.
    #[must_use]
    pub fn expired(&self, now: Millis) -> Vec<ExpiredCa> {
        let expired = self.cas.values().filter(|ca| ca.is_expired(now));
        let found = expired.map(|ca| ExpiredCa {
            name: ca.name.clone(),
            not_after: ca.not_after,
        });
        found.collect()
    }

    /// The end of a CA's validity, in seconds since the epoch. No certificate that it signs
    /// outlives it, except identities of an expired `halite` ([`Cas::sign`]).
    ///
    /// # Errors
    /// No CA has this name.
    pub fn not_after(&self, name: &str) -> Result<i64, CaError> {
        Ok(self.ca(name)?.not_after)
    }

    /// A CA's private key, PEM: a secret, for the pillar of the hosts that need it.
    ///
    /// # Errors
    /// No CA has this name.
    pub fn key_pem(&self, name: &str) -> Result<&str, CaError> {
        Ok(&self.ca(name)?.key_pem)
    }

    /// SHA-256 of a CA certificate's DER, in lower-case hex, as in a token.
    ///
    /// # Errors
    /// No CA has this name.
    pub fn certificate_sha256(&self, name: &str) -> Result<String, CaError> {
        Ok(pki::sha256_hex(&self.ca(name)?.certificate_der))
    }

    /// Signs a text with the key of a CA. The text must start with another byte than the content of
    /// a certificate, so that it cannot be mistaken for one.
    ///
    /// # Errors
    /// No CA has this name, or its key cannot sign.
    pub fn sign_statement(&self, ca: &str, statement: &str) -> Result<Vec<u8>, CaError> {
        let key = self.ca(ca)?.issuer.key();
        key.sign(statement.as_bytes()).map_err(CaError::Statement)
    }

    /// Signs the epoch of this master, as evidence for the hosts of the cluster.
    ///
    /// # Errors
    /// The key of the CA cannot sign.
    pub fn sign_epoch(&self, number: u64, holder: &str) -> Result<Epoch, CaError> {
        let mut epoch = Epoch {
            number,
            holder: holder.to_owned(),
            signature: String::new(),
        };
        let signature = self.sign_statement(HALITE, &epoch.statement())?;
        epoch.signature = STANDARD.encode(signature);
        Ok(epoch)
    }

    /// The public key of service accounts, PKIX PEM.
    #[must_use]
    pub fn sa_public_pem(&self) -> &str {
        &self.sa.public_pem
    }

    /// The private key of service accounts, PEM: a secret.
    #[must_use]
    pub fn sa_key_pem(&self) -> &str {
        &self.sa.key_pem
    }

    /// Signs a request (PEM) with a CA: the key is the request's, everything else the profile's.
    /// The CA `halite` also signs after it has expired.
    ///
    /// # Errors
    /// No CA has this name, it has expired, the request is malformed or does not prove possession of its key, or a
    /// certificate cannot contain the profile's values.
    pub fn sign(
        &self,
        ca: &str,
        csr_pem: &str,
        profile: &Profile,
        now: Millis,
    ) -> Result<Issued, CaError> {
        sign::sign(self.ca(ca)?, csr_pem, profile, now)
    }
}
