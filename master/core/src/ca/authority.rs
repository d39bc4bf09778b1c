//! One certificate authority, with the stage of its rotation.

use std::fmt;
use std::path::{Path, PathBuf};

use halite_pillar::ca_rotation::RotationStage;
use halite_proto::pki;
use halite_proto::pki::{Inspected, PrivateKey};
use halite_store::Millis;
use rcgen::{Issuer, KeyPair};
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{CaError, ContentError, files, rotation};

/// One certificate authority.
pub struct Ca {
    pub(super) name: String,
    pub(super) certificate_pem: String,
    pub(super) certificate_der: CertificateDer<'static>,
    pub(super) key_pem: String,
    pub(super) not_after: i64,
    /// `false` if another CA has signed it: an operator's intermediate.
    pub(super) is_root: bool,
    pub(super) issuer: Issuer<'static, KeyPair>,
    /// The rotation that has begun and not ended.
    pub(super) rotation: Option<Rotating>,
}

/// The rotation of a CA.
pub(super) struct Rotating {
    /// The other certificate that is trusted.
    pub(super) other: Option<String>,
    /// All trusted certificates, this CA's first.
    pub(super) trusted: String,
    /// The certificate that follows those of servers: this CA's, signed by the old CA.
    pub(super) cross: Option<String>,
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
    /// expired CA is read, too: see [`Cas::expired`]. While it is rotated, it is the one that
    /// signs.
    ///
    /// # Errors
    /// The first problem, with the file that has it.
    pub(super) fn read(name: &str, state_dir: &Path) -> Result<Self, CaError> {
        let paths = files::pair(&state_dir.join("ca"), name);
        let own = || {
            let [certificate, key] = [files::read(&paths[0])?, files::read(&paths[1])?];
            Self::new(name, certificate, key, &paths)
        };
        let Some(record) = rotation::read(state_dir, name)? else {
            return own();
        };
        let path = rotation::path(state_dir, name);
        let [certificate, key] = [record.certificate.clone(), record.key.clone()];
        let new = || Self::new(name, certificate, key, &[path.clone(), path.clone()]);
        if record.stage == RotationStage::Only {
            // The end of the rotation may have replaced one of the two files.
            let mut new = new()?;
            new.rotation = Some(Rotating {
                other: None,
                trusted: record.certificate,
                cross: None,
            });
            return Ok(new);
        }
        let (own, new) = (own()?, new()?);
        let trusted = record.trusted(&own.certificate_pem);
        let (mut signer, other) = match record.new_signs() {
            true => (new, own),
            false => (own, new),
        };
        signer.rotation = Some(Rotating {
            other: Some(other.certificate_pem),
            trusted,
            cross: record.cross.filter(|_| record.stage == RotationStage::Sign),
        });
        Ok(signer)
    }

    /// The CA with this certificate and key (PEM); errors name the files with them.
    fn new(
        name: &str,
        certificate_pem: String,
        key_pem: String,
        [certificate_path, key_path]: &[PathBuf; 2],
    ) -> Result<Self, CaError> {
        let found =
            Inspected::from_pem(&certificate_pem).map_err(CaError::unusable(certificate_path))?;
        if !found.is_ca {
            return Err(CaError::unusable(certificate_path)(ContentError::NotCa));
        }
        let key = PrivateKey::from_pem(&key_pem).map_err(CaError::unusable(key_path))?;
        if key.fingerprint() != found.fingerprint {
            let other = ContentError::OtherKey(certificate_path.clone());
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
            is_root: found.subject == found.issuer,
            issuer,
            rotation: None,
        })
    }

    /// All trusted certificates, this one first.
    pub(super) fn trusted_pem(&self) -> &str {
        let rotation = self.rotation.as_ref();
        rotation.map_or(&self.certificate_pem, |rotation| &rotation.trusted)
    }

    /// Returns whether it may sign the certificate of a CA: its path length is not 0.
    pub(super) fn may_sign_cas(&self) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(&self.certificate_der) else {
            return false;
        };
        let constraints = certificate.basic_constraints().ok().flatten();
        constraints.is_none_or(|found| found.value.path_len_constraint != Some(0))
    }

    /// Returns whether it has expired.
    pub(super) fn is_expired(&self, now: Millis) -> bool {
        self.not_after < now / 1000
    }
}
