//! The client's certificate and the CA that it trusts.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem};

/// The client's certificate, its key, and etcd's CA, as PEM. `Debug` does not write the key.
pub struct Access {
    /// The CA of the members' certificates.
    pub ca: String,
    /// The certificate that the client presents.
    pub certificate: String,
    /// Its private key: a secret.
    pub key: String,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("ca", &self.ca)
            .finish_non_exhaustive()
    }
}

/// The reason why certificates and key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A certificate is not PEM.
    #[error("cannot read a certificate for etcd")]
    Certificate(#[source] pem::Error),
    /// The key is not PEM. The cause may quote it and is left out.
    #[error("cannot read the private key for etcd")]
    Key,
    /// The certificate and the key do not match.
    #[error("cannot use the certificates for etcd")]
    Settings(#[from] rustls::Error),
}

impl Access {
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, AccessError> {
        let read = |pem: &str| {
            CertificateDer::pem_slice_iter(pem.as_bytes())
                .collect::<Result<Vec<_>, _>>()
                .map_err(AccessError::Certificate)
        };
        let mut roots = RootCertStore::empty();
        for ca in read(&self.ca)? {
            roots.add(ca)?;
        }
        let key =
            PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|_| AccessError::Key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(read(&self.certificate)?, key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }
}
