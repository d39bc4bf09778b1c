//! `halite-master init`, which creates the CAs and identities that the daemon needs before its
//! first start. It may be repeated at any time; valid files stay unchanged.

use std::path::{Path, PathBuf};

use halite_proto::identity::{Identity, IdentityKind, is_root_of_host};
use halite_proto::pki::{Inspected, PrivateKey};
use halite_store::Millis;

use crate::ca::{CaError, Cas, HALITE, Profile, files};
use crate::config::Config;

/// The name of the operator that init creates: root on the bootstrap host.
const OPERATOR: &str = "root";

/// The result of init, for the command's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initialised {
    /// SHA-256 of the `halite` CA's DER, lower-case hex.
    pub ca_sha256: String,
    /// Directory of the operator's identity.
    pub operator: PathBuf,
}

/// Creates the CAs, the key pair of service accounts, the master's identity and the operator's
/// identity, if they are missing, due for renewal, or signed by another CA.
///
/// # Errors
/// A file cannot be read or written, or an existing one cannot be used.
pub fn init(config: &Config, now: Millis) -> Result<Initialised, CaError> {
    files::directory(&config.state_dir, 0o700)?;
    let cas = Cas::create_or_load(&config.state_dir, &config.cluster, now)?;
    master_identity(config, &cas, now)?;
    let operator = own_operator(config, &cas, now)?;
    Ok(Initialised {
        ca_sha256: cas.certificate_sha256(HALITE)?,
        operator,
    })
}

/// The directory with the identity of root on this host, whose files are created if they are
/// missing, due for renewal, or signed by another CA.
fn own_operator(config: &Config, cas: &Cas, now: Millis) -> Result<PathBuf, CaError> {
    let operator = config.config_dir.join("operator");
    files::directory(&operator, 0o700)?;
    let own = operator_on_disk(config, &operator);
    let name = own.as_deref().unwrap_or(OPERATOR);
    let profile = Profile::identity(&identity(config, IdentityKind::Operator, name)?);
    identity_files(&operator, "operator", &profile, cas, now)?;
    write_text(&operator.join("ca.crt"), cas.certificate_pem(HALITE)?)?;
    Ok(operator)
}

/// Makes the identity of root on this host follow the stages of the CA of identities. Does nothing
/// without such an identity, or if the CA that signs has signed it and its trusted CAs are the
/// present ones: states renew one that is due.
///
/// # Errors
/// A file cannot be read or written.
pub fn follow_ca(config: &Config, cas: &Cas, now: Millis) -> Result<(), CaError> {
    let directory = config.config_dir.join("operator");
    let [certificate, _] = files::pair(&directory, "operator");
    let Ok(own) = files::read(&certificate) else {
        return Ok(());
    };
    let trusted = files::read(&directory.join("ca.crt")).unwrap_or_default();
    if cas.has_signed_identity(&own) && trusted == cas.certificate_pem(HALITE)? {
        return Ok(());
    }
    own_operator(config, cas, now).map(drop)
}

/// The operator `root@HOST` that root on this host already was before the host had the master. The
/// master knows its key by that name alone.
fn operator_on_disk(config: &Config, directory: &Path) -> Option<String> {
    let [certificate, _] = files::pair(directory, "operator");
    let found = Inspected::from_pem(&files::read(&certificate).ok()?).ok()?;
    let identity = found.identity().ok()?;
    let is_own = identity.cluster() == config.cluster
        && identity.kind() == IdentityKind::Operator
        && is_root_of_host(identity.id());
    is_own.then(|| identity.id().to_owned())
}

/// The master's certificate and key (PEM). They are created again if they are missing, due for
/// renewal or signed by another CA, or if the advertised addresses have changed.
///
/// # Errors
/// A file cannot be read or written.
pub fn master_identity(
    config: &Config,
    cas: &Cas,
    now: Millis,
) -> Result<(String, String), CaError> {
    // There is only one master, so its id only has to be a valid name.
    let mut profile = Profile::identity(&identity(config, IdentityKind::Master, "master")?);
    profile.addresses.clone_from(&config.advertise);
    identity_files(&config.state_dir, "identity", &profile, cas, now)
}

fn identity(config: &Config, kind: IdentityKind, id: &str) -> Result<Identity, CaError> {
    Ok(Identity::new(&config.cluster, kind, id)?)
}

/// Reads an identity from its two files, and creates them if they are missing or due. The key is
/// written first, so that a crash between the two only costs another certificate.
fn identity_files(
    directory: &Path,
    name: &str,
    profile: &Profile,
    cas: &Cas,
    now: Millis,
) -> Result<(String, String), CaError> {
    let [certificate_path, key_path] = files::pair(directory, name);
    let key = match files::read(&key_path) {
        Ok(pem) => PrivateKey::from_pem(&pem).map_err(CaError::unusable(&key_path))?,
        Err(CaError::Missing { .. }) => {
            let key = PrivateKey::generate()?;
            files::write(&key_path, &key.to_pem(), 0o600)?;
            key
        }
        Err(error) => return Err(error),
    };
    if let Ok(pem) = files::read(&certificate_path)
        && is_valid(&pem, profile, &key, cas, now)
    {
        return Ok((pem, key.to_pem()));
    }
    let issued = cas.sign(HALITE, &key.request(&profile.common_name)?, profile, now)?;
    files::write(&certificate_path, &issued.certificate_pem, 0o600)?;
    Ok((issued.certificate_pem, key.to_pem()))
}

/// Returns whether a certificate matches profile, key and CA and has more than a third of its life
/// left.
fn is_valid(pem: &str, profile: &Profile, key: &PrivateKey, cas: &Cas, now: Millis) -> bool {
    let Ok(found) = Inspected::from_pem(pem) else {
        return false;
    };
    let left = found.not_after - now / 1000;
    let mut addresses = (found.addresses.clone(), profile.addresses.clone());
    addresses.0.sort_unstable();
    addresses.1.sort_unstable();
    found.fingerprint == key.fingerprint()
        && cas.has_signed_identity(pem)
        && found.identity().ok() == profile.identity
        && addresses.0 == addresses.1
        && left > (found.not_after - found.not_before) / 3
}

fn write_text(path: &Path, text: &str) -> Result<(), CaError> {
    match files::read(path) {
        Ok(found) if found == text => Ok(()),
        Ok(_) | Err(CaError::Missing { .. }) => files::write(path, text, 0o600),
        Err(error) => Err(error),
    }
}
