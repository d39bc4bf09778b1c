//! The CA of a cluster, which signs backups as the master does.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SigningKey as _};
use serde_json::{Map, Value, json};

use crate::hex;

/// A CA of identities.
pub struct BackupCa(CertifiedIssuer<'static, KeyPair>);

impl BackupCa {
    /// Makes a CA.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// The SHA-256 of its certificate.
    #[must_use]
    pub fn hash(&self) -> String {
        hex(self.0.der())
    }

    /// Its certificate, PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// The statement that is signed for a backup with these facts, and these files with mode and
    /// content. The master's facts lack the recipients and the declared backup settings.
    #[must_use]
    pub fn statement(header: &Value, files: &[(&str, u32, Vec<u8>)]) -> Value {
        let mut facts = header.clone();
        facts.as_object_mut().unwrap().remove("recipients");
        facts["backup"] = json!({"keep": 28});
        let entries: Map<String, Value> = files
            .iter()
            .map(|(path, mode, content)| {
                let sha256 = hex(content);
                let entry = json!({"sha256": sha256, "size": content.len(), "mode": mode});
                ((*path).to_owned(), entry)
            })
            .collect();
        json!({"kind": "halite-backup-signature 1", "header": facts, "files": entries})
    }

    /// The file with the signature of a statement.
    #[must_use]
    pub fn sign(&self, statement: &Value) -> Value {
        let statement = statement.to_string();
        let signature = self.0.key().sign(statement.as_bytes()).unwrap();
        json!({"statement": statement, "signature": STANDARD.encode(signature), "certificate": self.pem()})
    }
}

impl Default for BackupCa {
    fn default() -> Self {
        Self::new()
    }
}
