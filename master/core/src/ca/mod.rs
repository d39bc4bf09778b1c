//! The certificate authorities, which are stored as files and sign exactly what a profile says.
//!
//! `kubernetes`, `etcd` and `front-proxy` equal kubeadm's three in subject, usages and lifetime
//! (kubeadm's `certlist.go` and `pki_helpers.go`); `halite` signs identities, epochs and backups,
//! and `site` the certificates of the site's servers. A request contributes only its public key and
//! the proof of possession: names, usages and lifetime come from the [`Profile`], which comes from
//! the master's own compilation.

mod authority;
mod checked;
#[cfg(test)]
mod checked_tests;
mod create;
mod error;
mod expired;
pub mod files;
mod next;
#[cfg(test)]
mod next_tests;
mod profile;
mod rotation;
#[cfg(test)]
mod rotation_tests;
mod service_accounts;
mod sign;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use authority::Ca;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_pillar::ca_rotation::ROTATED;
use halite_proto::pki;
use halite_proto::v1::Epoch;
use halite_store::Millis;
use rcgen::SigningKey as _;
use rotation::Rotations;
use service_accounts::ServiceAccounts;
use tokio::sync::watch;

pub use error::{CaError, ContentError};
pub use expired::ExpiredCa;
pub use next::{GivenCa, ImportedCa, PreparedCa};
pub use profile::{CHUNK_CAS, Profile};
pub use rotation::Unfinished;
pub use sign::{Issued, request_fingerprint};

/// The CA of identities.
pub const HALITE: &str = "halite";
/// The CA of the Kubernetes API and its clients.
pub const KUBERNETES: &str = "kubernetes";
/// The CA of the site's servers: bundles, the site registry, metrics.
pub const SITE: &str = "site";
/// All CAs.
pub const NAMES: [&str; 5] = [HALITE, KUBERNETES, "etcd", "front-proxy", SITE];
/// Time before the signing at which a certificate's validity starts, so that a host whose clock is
/// behind accepts it. One hour, because a clock without daylight saving time is wrong by that much;
/// kubeadm's `CertificateBackdate` is five minutes.
pub const BACKDATE_SECONDS: i64 = 60 * 60;

/// All certificate authorities and the key pair of service accounts, as the last stage of each
/// rotation has them.
#[derive(Debug)]
pub struct Cas {
    state_dir: PathBuf,
    first: Loaded,
    /// Held while a stage begins.
    changing: Mutex<()>,
    /// The number of the last stage that has begun or ended.
    stages: watch::Sender<usize>,
}

/// The CAs at one moment. The ones that follow are appended, so that a borrowed certificate stays
/// valid: there are a few in the life of a master.
#[derive(Debug)]
struct Loaded {
    cas: BTreeMap<String, Ca>,
    sa: ServiceAccounts,
    /// By CA, and `sa`.
    rotations: BTreeMap<&'static str, Rotations>,
    next: OnceLock<Box<Loaded>>,
}

impl Loaded {
    fn read(state_dir: &Path) -> Result<Self, CaError> {
        let mut cas = BTreeMap::new();
        for name in NAMES {
            cas.insert(name.to_owned(), Ca::read(name, state_dir)?);
        }
        let mut rotations = BTreeMap::new();
        for name in ROTATED {
            rotations.insert(name, Rotations::read(state_dir, name)?);
        }
        Ok(Self {
            cas,
            sa: ServiceAccounts::read(state_dir)?,
            rotations,
            next: OnceLock::new(),
        })
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
        Ok(Self {
            state_dir: state_dir.to_owned(),
            first: Loaded::read(state_dir)?,
            changing: Mutex::default(),
            stages: watch::Sender::new(1),
        })
    }

    fn all(&self) -> impl Iterator<Item = &Loaded> {
        std::iter::successors(Some(&self.first), |loaded| {
            loaded.next.get().map(|next| &**next)
        })
    }

    /// The present CAs.
    fn present(&self) -> &Loaded {
        self.all().last().unwrap_or(&self.first)
    }

    fn ca(&self, name: &str) -> Result<&Ca, CaError> {
        (self.present().cas.get(name)).ok_or_else(|| CaError::Unknown(name.to_owned()))
    }

    /// A CA's certificate, PEM. While it is rotated, all trusted ones, the signer first.
    ///
    /// # Errors
    /// No CA has this name.
    pub fn certificate_pem(&self, name: &str) -> Result<&str, CaError> {
        Ok(self.ca(name)?.trusted_pem())
    }

    /// The CAs that have expired, sorted by name.
    #[must_use]
    pub fn expired(&self, now: Millis) -> Vec<ExpiredCa> {
        let expired = self.present().cas.values().filter(|ca| ca.is_expired(now));
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

    /// Returns whether the CA of identities has signed the first certificate of this PEM text.
    /// While it is rotated, the one of both that signs.
    #[must_use]
    pub fn has_signed_identity(&self, certificate_pem: &str) -> bool {
        let signer = self.ca(HALITE).map(|ca| ca.certificate_pem.as_str());
        signer.is_ok_and(|signer| pki::is_of_signer(certificate_pem, signer))
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

    /// The public key of service accounts, PKIX PEM. While it is rotated, all trusted ones, the
    /// signer's first.
    #[must_use]
    pub fn sa_public_pem(&self) -> &str {
        &self.present().sa.public_pem
    }

    /// The private key of service accounts, PEM: a secret.
    #[must_use]
    pub fn sa_key_pem(&self) -> &str {
        &self.present().sa.key_pem
    }

    /// Signs a request (PEM) with a CA: the key is the request's, everything else the profile's.
    /// The CA `halite` also signs after it has expired.
    ///
    /// # Errors
    /// No CA has this name, it has expired, the request is malformed or does not prove possession
    /// of its key, or a certificate cannot contain the profile's values.
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
