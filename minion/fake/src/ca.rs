//! CAs of the fake host: real certificates, so that the check of a certificate state reads the same
//! data as on a real host.

use std::collections::BTreeMap;

use halite_minion::host::certificate::{Signed, usable_key};
use halite_minion::host::effect::CertificateRequest;
use halite_minion::host::{HostError, HostResult};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::Value;

/// Test CAs, created on first use.
#[derive(Debug, Clone, Default)]
pub struct FakeCas(BTreeMap<String, (String, String)>);

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> HostError {
    HostError::failed("the fake CA failed", error)
}

/// An RSA key, from openssl as on a real host.
#[expect(clippy::disallowed_methods, reason = "openssl makes the keys of tests")]
pub(crate) fn rsa_key(bits: u32) -> HostResult<KeyPair> {
    let size = format!("rsa_keygen_bits:{bits}");
    let output = std::process::Command::new("openssl")
        .args(["genpkey", "-quiet", "-algorithm", "RSA", "-pkeyopt", &size])
        .output()
        .map_err(failed)?;
    let pem = String::from_utf8(output.stdout).map_err(failed)?;
    usable_key(&pem, &format!("rsa-{bits}")).ok_or_else(|| failed("openssl made no usable RSA key"))
}

fn date(seconds: i64) -> HostResult<std::time::SystemTime> {
    Ok(std::time::UNIX_EPOCH
        + std::time::Duration::from_secs(u64::try_from(seconds).map_err(failed)?))
}

impl FakeCas {
    /// The CA's certificate, PEM.
    ///
    /// # Errors
    /// The cryptography library refuses.
    pub fn certificate(&mut self, name: &str) -> HostResult<String> {
        Ok(self.get(name)?.0)
    }

    fn get(&mut self, name: &str) -> HostResult<(String, String)> {
        if let Some(found) = self.0.get(name) {
            return Ok(found.clone());
        }
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        // A CA that is rotated has two keys under one name: `kubernetes`, `kubernetes:new`.
        let common_name = name.split(':').next().unwrap_or(name);
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate = params.self_signed(&key).map_err(failed)?;
        let made = (certificate.pem(), key.serialize_pem());
        self.0.insert(name.to_owned(), made.clone());
        Ok(made)
    }

    /// Signs like the master: usages and lifetime (`server_auth`, `client_auth`, `days`, default
    /// 365) come from the chunk's arguments.
    ///
    /// # Errors
    /// The request is malformed.
    pub fn sign(
        &mut self,
        request: &CertificateRequest,
        csr_pem: &str,
        now: i64,
    ) -> HostResult<Signed> {
        let (ca_pem, key_pem) = self.get(&request.ca)?;
        let key = KeyPair::from_pem(&key_pem).map_err(failed)?;
        let issuer = Issuer::from_ca_cert_pem(&ca_pem, key).map_err(failed)?;
        let mut csr = CertificateSigningRequestParams::from_pem(csr_pem).map_err(failed)?;
        let flag = |key: &str| {
            request
                .spec
                .get(key)
                .and_then(Value::as_bool)
                .unwrap_or(false)
        };
        csr.params.extended_key_usages.clear();
        if flag("server_auth") {
            csr.params
                .extended_key_usages
                .push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        if flag("client_auth") || request.kubeconfig.is_some() {
            csr.params
                .extended_key_usages
                .push(ExtendedKeyUsagePurpose::ClientAuth);
        }
        csr.params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        let days = request
            .spec
            .get("days")
            .and_then(Value::as_i64)
            .unwrap_or(365);
        let start = date(now - 300)?;
        let end = date(now + days * 86_400)?;
        csr.params.not_before = start.into();
        csr.params.not_after = end.into();
        csr.params.use_authority_key_identifier_extension = true;
        let certificate = csr.signed_by(&issuer).map_err(failed)?;
        Ok(Signed {
            certificate_pem: certificate.pem(),
            ca_pem,
        })
    }
}
