//! TLS: the verification of callers and masters.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::peer::{Caller, NotAdmitted, PeerPolicy};
use crate::identity::IdentityKind;
use crate::pki::{Inspected, PkiError, sha256_hex};

/// Installs ring as the process's cryptography, for libraries that use the default. May be called
/// any number of times.
pub fn install_crypto() {
    // An error means that one is installed already: then it stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The cryptography provider of this crate, installed or not.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The reason why a certificate that the CA signed is refused anyway. It stays readable in logs of
/// this end; the other end sees only an alert.
#[derive(Debug, thiserror::Error)]
pub(super) enum Mistrust {
    #[error(transparent)]
    Identity(#[from] PkiError),
    #[error("the server's chain contains no CA with the hash in the token")]
    NoPinnedCa,
    #[error("the certificate with the hash in the token is not a CA")]
    NotCa,
    #[error("the server is of kind {0}, not a master")]
    Kind(IdentityKind),
    #[error("the host {0} is a standby")]
    StandsBy(String),
    #[error("the server is a master of cluster {0:?}")]
    Cluster(String),
}

impl From<Mistrust> for Error {
    fn from(reason: Mistrust) -> Self {
        Self::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(reason))))
    }
}

fn caller(der: &CertificateDer<'_>) -> Result<Caller, Mistrust> {
    Ok(Caller::from_der(der)?)
}

/// An error whose alert the caller can distinguish from others; [`super::MasterAlert`] reads it.
fn refusal(reason: NotAdmitted) -> CertificateError {
    match reason {
        // TLS has no alert for this. No caller sends an OCSP response, so its alert is free for it.
        NotAdmitted::Moved => CertificateError::InvalidOcspResponse,
        NotAdmitted::Revoked
        | NotAdmitted::NotAccepted
        | NotAdmitted::OtherKey
        | NotAdmitted::NoOperator
        | NotAdmitted::Moving => CertificateError::Revoked,
    }
}

/// Verifies client certificates: a chain to our CA, an identity of our cluster, and the policy's
/// decision.
pub(super) struct CallerVerifier {
    pub(super) authority: Arc<dyn ClientCertVerifier>,
    pub(super) cluster: String,
    pub(super) policy: Arc<dyn PeerPolicy>,
}

impl fmt::Debug for CallerVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerVerifier")
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

impl ClientCertVerifier for CallerVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authority.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .authority
            .verify_client_cert(end_entity, intermediates, now)?;
        let caller = caller(end_entity)?;
        if caller.identity.cluster() != self.cluster {
            return Err(Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            ));
        }
        if let Err(reason) = self.policy.admit(&caller) {
            tracing::debug!(identity = %caller.identity, %reason, "identity is not admitted");
            return Err(Error::InvalidCertificate(refusal(reason)));
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authority.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authority.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authority.supported_verify_schemes()
    }
}

/// The trust anchor of the server's certificate chain.
#[derive(Debug, Clone)]
pub(super) enum Trust {
    /// One of these CAs.
    Roots(RootCertStore),
    /// A CA in the presented chain whose DER has this SHA-256 (lower-case hex): a new minion knows
    /// only that.
    Pinned(String),
}

/// Verifies the master's certificate by its kind, not by a DNS name: a host may be reached by any
/// address, but only a certificate that our CA issued to a master makes it one. A standby presents
/// the certificate of its minion, so no client takes it for a master.
#[derive(Debug)]
pub(super) struct MasterVerifier {
    pub(super) trust: Trust,
    /// The cluster, if it is known.
    pub(super) cluster: Option<String>,
    /// `true` to accept a standby as well.
    pub(super) standbys: bool,
    pub(super) provider: Arc<CryptoProvider>,
}

impl MasterVerifier {
    fn roots(&self, chain: &[&CertificateDer<'_>]) -> Result<RootCertStore, Error> {
        let pin = match &self.trust {
            Trust::Roots(roots) => return Ok(roots.clone()),
            Trust::Pinned(pin) => pin,
        };
        let pinned = chain.iter().find(|der| sha256_hex(der) == *pin);
        let pinned = pinned.ok_or(Mistrust::NoPinnedCa)?;
        let inspected = Inspected::from_der(pinned).map_err(Mistrust::from)?;
        if !inspected.is_ca {
            return Err(Mistrust::NotCa.into());
        }
        let mut roots = RootCertStore::empty();
        roots.add((*pinned).clone().into_owned())?;
        Ok(roots)
    }

    /// Verifies the certificate of a standby, which is its minion's and is marked for clients only.
    fn verify_standby(
        &self,
        roots: RootCertStore,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let provider = Arc::clone(&self.provider);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        let verified = verifier.verify_client_cert(end_entity, intermediates, now);
        verified.map(drop)
    }
}

impl ServerCertVerifier for MasterVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain: Vec<&CertificateDer<'_>> =
            std::iter::once(end_entity).chain(intermediates).collect();
        let roots = self.roots(&chain)?;
        let found = caller(end_entity);
        let is_minion = |caller: &Caller| caller.identity.kind() == IdentityKind::Minion;
        if found.as_ref().is_ok_and(is_minion) {
            self.verify_standby(roots, end_entity, intermediates, now)?;
        } else {
            let parsed = ParsedCertificate::try_from(end_entity)?;
            rustls::client::verify_server_cert_signed_by_trust_anchor(
                &parsed,
                &roots,
                intermediates,
                now,
                self.provider.signature_verification_algorithms.all,
            )?;
        }
        let identity = found?.identity;
        match identity.kind() {
            IdentityKind::Master => {}
            IdentityKind::Minion if self.standbys => {}
            IdentityKind::Minion => return Err(Mistrust::StandsBy(identity.id().to_owned()).into()),
            other => return Err(Mistrust::Kind(other).into()),
        }
        match &self.cluster {
            Some(cluster) if cluster != identity.cluster() => {
                Err(Mistrust::Cluster(identity.cluster().to_owned()).into())
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
