//! Certificate authorities to trust: the system's and additional ones.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};

use super::Settings;
use crate::error::Error;

/// The TLS configuration of the settings.
pub fn config(settings: &Settings) -> Result<TlsConfig, Error> {
    let mut roots = Vec::new();
    if settings.system_authorities {
        let found = rustls_native_certs::load_native_certs();
        roots.extend(
            found
                .certs
                .iter()
                .map(|certificate| Certificate::from_der(certificate).to_owned()),
        );
        for error in &found.errors {
            tracing::warn!("the system's authorities: {error}");
        }
    }
    for path in &settings.authorities {
        roots.extend(read(path)?);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = TlsConfig::builder().provider(TlsProvider::Rustls);
    Ok(config
        .root_certs(RootCerts::from(roots))
        .unversioned_rustls_crypto_provider(provider)
        .build())
}

fn read(path: &Path) -> Result<Vec<Certificate<'static>>, Error> {
    let pem = fs::read(path).map_err(Error::file("read", path))?;
    let certificates = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
        Ok(_) => None,
        Err(error) => Some(Err(Error::content(path.to_string_lossy(), error))),
    });
    let certificates = certificates.collect::<Result<Vec<_>, _>>()?;
    if certificates.is_empty() {
        return Err(Error::content(
            path.to_string_lossy(),
            "it contains no certificate in PEM",
        ));
    }
    Ok(certificates)
}
