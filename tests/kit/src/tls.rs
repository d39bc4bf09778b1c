//! Certificates for the servers of the tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// An authority that exists for only one test.
pub struct Authority {
    /// Its certificate, in PEM.
    pub path: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes an authority and writes `authority.pem` into a directory.
    pub fn new(dir: &Path) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let path = dir.join("authority.pem");
        std::fs::write(&path, certificate.pem()).unwrap();
        Self {
            path,
            issuer: Issuer::new(params, key),
        }
    }

    /// Certificate and key of a server called `localhost` or 127.0.0.1.
    fn issue(&self) -> (Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params =
            CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// The same as files in a directory.
    #[must_use]
    pub fn files(&self, dir: &Path) -> (PathBuf, PathBuf) {
        let (certificate, key) = self.issue();
        let paths = (dir.join("server.pem"), dir.join("server.key"));
        std::fs::write(&paths.0, certificate.pem()).unwrap();
        std::fs::write(&paths.1, key.serialize_pem()).unwrap();
        paths
    }

    /// The configuration of a server called `localhost`.
    #[must_use]
    pub fn server(&self) -> Arc<rustls::ServerConfig> {
        let (certificate, key) = self.issue();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions();
        let config = config.unwrap().with_no_client_auth();
        Arc::new(
            config
                .with_single_cert(vec![certificate.der().clone()], key)
                .unwrap(),
        )
    }
}
