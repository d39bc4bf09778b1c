//! `halite-master init`: everything that the daemon needs before it first starts. May be repeated
//! at any time; what is there and good is kept.

use std::path::{Path, PathBuf};

use halite_proto::identity::{Identity, Kind};
use halite_proto::pki::{Inspected, PrivateKey};

use crate::ca::{CaError, Cas, HALITE, Profile, files};
use crate::config::Config;
use crate::store::Millis;

/// The operator that init makes: root on the bootstrap host.
const OPERATOR: &str = "root";

/// What init left in place, for the command's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initialised {
    /// SHA-256 of the `halite` CA's DER, lower-case hex.
    pub ca_sha256: String,
    /// Directory of the operator's identity.
    pub operator: PathBuf,
}

/// Makes the CAs, the key pair of service accounts, the master's identity and the operator's
/// identity, whichever is missing, due, or of another CA.
///
/// # Errors
/// A file cannot be read or written, or one that is there cannot be used.
pub fn init(config: &Config, now: Millis) -> Result<Initialised, CaError> {
    files::directory(&config.state_dir, 0o700)?;
    let cas = Cas::create_or_load(&config.state_dir, &config.cluster, now)?;
    master_identity(config, &cas, now)?;
    let operator = config.config_dir.join("operator");
    files::directory(&operator, 0o700)?;
    let profile = Profile::identity(&identity(config, Kind::Operator, OPERATOR)?);
    keep(&operator, "operator", &profile, &cas, now)?;
    keep_text(&operator.join("ca.crt"), cas.certificate_pem(HALITE)?)?;
    Ok(Initialised {
        ca_sha256: cas.certificate_sha256(HALITE)?,
        operator,
    })
}

/// The master's certificate and key (PEM); made anew when missing, due, of another CA, or when the
/// advertised addresses have changed.
///
/// # Errors
/// A file cannot be read or written.
pub fn master_identity(
    config: &Config,
    cas: &Cas,
    now: Millis,
) -> Result<(String, String), CaError> {
    // There is one master yet; its id only has to be a name.
    let mut profile = Profile::identity(&identity(config, Kind::Master, "master")?);
    profile.addresses.clone_from(&config.advertise);
    keep(&config.state_dir, "identity", &profile, cas, now)
}

fn identity(config: &Config, kind: Kind, id: &str) -> Result<Identity, CaError> {
    Identity::new(&config.cluster, kind, id).map_err(|error| CaError::Profile(error.to_string()))
}

/// Keeps an identity in two files: key first, so that a crash between them only costs another
/// certificate.
fn keep(
    directory: &Path,
    name: &str,
    profile: &Profile,
    cas: &Cas,
    now: Millis,
) -> Result<(String, String), CaError> {
    let [certificate_path, key_path] = files::pair(directory, name);
    let key = match files::read(&key_path) {
        Ok(pem) => PrivateKey::from_pem(&pem).map_err(|e| CaError::Unusable {
            path: key_path.display().to_string(),
            reason: e.to_string(),
        })?,
        Err(CaError::Missing { .. }) => {
            let key = PrivateKey::generate()?;
            files::write(&key_path, &key.to_pem(), 0o600)?;
            key
        }
        Err(error) => return Err(error),
    };
    if let Ok(pem) = files::read(&certificate_path)
        && still_good(&pem, profile, &key, cas, now)
    {
        return Ok((pem, key.to_pem()));
    }
    let issued = cas.sign(HALITE, &key.request(&profile.common_name)?, profile, now)?;
    files::write(&certificate_path, &issued.certificate_pem, 0o600)?;
    Ok((issued.certificate_pem, key.to_pem()))
}

/// Whether a certificate says what the profile wants, for this key, of this CA, with more than a
/// third of its life left.
fn still_good(pem: &str, profile: &Profile, key: &PrivateKey, cas: &Cas, now: Millis) -> bool {
    let ca = cas
        .certificate_pem(HALITE)
        .ok()
        .and_then(|pem| Inspected::from_pem(pem).ok());
    let (Ok(found), Some(ca)) = (Inspected::from_pem(pem), ca) else {
        return false;
    };
    let left = found.not_after - now / 1000;
    let mut addresses = (found.addresses.clone(), profile.addresses.clone());
    addresses.0.sort_unstable();
    addresses.1.sort_unstable();
    found.fingerprint == key.fingerprint()
        && found.issuer == ca.subject
        && found.not_before >= ca.not_before
        && found.identity().ok() == profile.identity
        && addresses.0 == addresses.1
        && left > (found.not_after - found.not_before) / 3
}

fn keep_text(path: &Path, text: &str) -> Result<(), CaError> {
    match files::read(path) {
        Ok(found) if found == text => Ok(()),
        Ok(_) | Err(CaError::Missing { .. }) => files::write(path, text, 0o600),
        Err(error) => Err(error),
    }
}
