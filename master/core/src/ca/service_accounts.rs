//! The key pair of service accounts, with the stage of its rotation.

use std::fmt;
use std::path::Path;

use halite_pillar::ca_rotation::{RotationStage, SERVICE_ACCOUNTS};
use halite_proto::pki::PrivateKey;

use super::{CaError, ContentError, files, rotation};

/// The key pair that signs tokens of service accounts, and the public keys that verify them.
pub(super) struct ServiceAccounts {
    pub(super) key_pem: String,
    /// The signer's first.
    pub(super) public_pem: String,
    /// The signer's public key and the other one, while two are trusted.
    pub(super) two: Option<[String; 2]>,
}

impl fmt::Debug for ServiceAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServiceAccounts(..)")
    }
}

impl ServiceAccounts {
    pub(super) fn read(state_dir: &Path) -> Result<Self, CaError> {
        let record = rotation::read(state_dir, SERVICE_ACCOUNTS)?;
        if let Some(record) = &record {
            let path = rotation::path(state_dir, SERVICE_ACCOUNTS);
            halves(&record.key, &record.certificate, &path, &path)?;
        }
        if let Some(record) = record.as_ref()
            && record.stage == RotationStage::Only
        {
            return Ok(Self {
                key_pem: record.key.clone(),
                public_pem: record.certificate.clone(),
                two: None,
            });
        }
        let (key_path, public_path) = (state_dir.join("sa.key"), state_dir.join("sa.pub"));
        let (key_pem, public_pem) = (files::read(&key_path)?, files::read(&public_path)?);
        halves(&key_pem, &public_pem, &key_path, &public_path)?;
        let Some(record) = record else {
            return Ok(Self {
                key_pem,
                public_pem,
                two: None,
            });
        };
        let trusted = record.trusted(&public_pem);
        let (key_pem, two) = match record.new_signs() {
            true => (record.key, [record.certificate, public_pem]),
            false => (key_pem, [public_pem, record.certificate]),
        };
        Ok(Self {
            key_pem,
            public_pem: trusted,
            two: Some(two),
        })
    }
}

/// Checks that two texts are the halves of a key pair.
fn halves(
    key_pem: &str,
    public_pem: &str,
    key_path: &Path,
    public_path: &Path,
) -> Result<(), CaError> {
    let key = PrivateKey::from_pem(key_pem).map_err(CaError::unusable(key_path))?;
    let same = |a: &str, b: &str| a.split_whitespace().eq(b.split_whitespace());
    if !same(&key.public_pem(), public_pem) {
        let other = ContentError::OtherHalf(key_path.to_owned());
        return Err(CaError::unusable(public_path)(other));
    }
    Ok(())
}
