//! Makes a key on the host, has it signed, and writes both: the real form of
//! [`super::super::effect::Effect::Certificate`].

use std::path::Path;
use std::time::Duration;

use rcgen::KeyPair;

use super::LinuxHost;
use super::command::run_checked;
use crate::host::certificate::{files, is_rsa, key_in_file, new_key, signing_request, usable_key};
use crate::host::effect::CertificateRequest;
use crate::host::{HostError, HostResult};

/// An RSA key of 4096 bits takes seconds on a slow machine.
const KEY: Duration = Duration::from_secs(120);

impl LinuxHost {
    pub(super) async fn certificate(&self, request: &CertificateRequest) -> HostResult<()> {
        let file = if request.kubeconfig.is_some() {
            &request.cert_path
        } else {
            &request.key_path
        };
        let kept =
            super::files::read(Path::new(file))?.and_then(|content| key_in_file(request, &content));
        let key = match kept {
            Some(key) => key,
            None => make_key(&request.algorithm).await?,
        };
        let csr = signing_request(request, &key)?;
        let signed = self.signer.sign(request, &csr).await?;
        for (path, content, meta) in files(request, &key, &signed)? {
            let owner = self.owner(&meta).await?;
            super::files::write(Path::new(&path), &content, owner)?;
        }
        Ok(())
    }
}

/// Makes a key. The minion's cryptography library makes no RSA keys, so these come from the host's
/// openssl, through a pipe.
async fn make_key(algorithm: &str) -> HostResult<KeyPair> {
    let Some(bits) = is_rsa(algorithm) else {
        return new_key(algorithm);
    };
    let size = format!("rsa_keygen_bits:{bits}");
    let pem = run_checked(
        &[
            "openssl",
            "genpkey",
            "-quiet",
            "-algorithm",
            "RSA",
            "-pkeyopt",
            &size,
        ],
        &[],
        KEY,
    )
    .await
    .map_err(|e| {
        HostError::failed(
            "cannot make an RSA key (install openssl, or use the algorithm ecdsa-p256)",
            e,
        )
    })?;
    usable_key(&pem, algorithm)
        .ok_or_else(|| HostError::refused(format!("openssl made no usable key for {algorithm}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rsa_keys_come_from_openssl() {
        let key = make_key("rsa-2048").await.unwrap();
        assert!(key.is_compatible(&rcgen::PKCS_RSA_SHA256));
        assert!(usable_key(&key.serialize_pem(), "rsa-4096").is_none());
    }
}
