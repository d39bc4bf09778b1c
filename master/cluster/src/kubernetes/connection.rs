//! The connection of a client to one API server: identities, trust, timeouts.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::{Client, Config};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::json;

use super::ApiError;

/// A client certificate with its key, both PEM.
#[derive(Clone)]
pub struct Identity {
    /// Certificate.
    pub certificate: String,
    /// Private key, PKCS#8.
    pub key: String,
}

/// The master's identities for the API, and the parameters that identify the server.
#[derive(Clone)]
pub struct Access {
    /// Port.
    pub port: u16,
    /// The name that the server's certificate must contain: the endpoint.
    pub server_name: String,
    /// The Kubernetes CA, PEM.
    pub ca: String,
    /// Administrator like kubeadm's `admin.conf`.
    pub admin: Identity,
    /// Administrator like kubeadm's `super-admin.conf`, used only where the other is forbidden.
    pub super_admin: Identity,
}

/// Makes a client of the server at one address, with one identity; makes no connection yet.
///
/// # Errors
/// The CA or the identity is malformed.
pub(super) fn client(
    access: &Access,
    endpoint: &str,
    identity: &Identity,
) -> Result<Client, ApiError> {
    let failed = |what: &str| format!("cannot make the Kubernetes client: {what}");
    let url = format!("https://{endpoint}")
        .parse()
        .map_err(ApiError::unusable(failed("address")))?;
    let mut config = Config::new(url);
    let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(access.ca.as_bytes()).collect();
    let roots = roots.map_err(ApiError::unusable(failed("kubernetes CA certificate")))?;
    config.root_cert = Some(
        roots
            .iter()
            .map(|certificate| certificate.as_ref().to_vec())
            .collect(),
    );
    config.tls_server_name = Some(access.server_name.clone());
    // A starting API server answers soon or never: callers wait with a deadline of their own. The
    // timeout is longer than one lost packet (sent again after 1 s), and shorter than the search
    // for an address that no host has yet (3 s), so a virtual address that comes up in the meantime
    // is found at the next attempt.
    config.connect_timeout = Some(Duration::from_secs(2));
    config.read_timeout = Some(Duration::from_secs(30));
    config.reset_reader_on_write = true;
    config.default_retry = false;
    // The field's type comes from a crate that is not a dependency; deserialising a kubeconfig's
    // form yields the same.
    config.auth_info = serde_json::from_value(json!({
        "client-certificate-data": STANDARD.encode(&identity.certificate),
        "client-key-data": STANDARD.encode(&identity.key),
    }))
    .map_err(|_| ApiError::Malformed("the Kubernetes client's identity is malformed".into()))?;
    Client::try_from(config).map_err(ApiError::unusable(failed("identity or TLS settings")))
}
