//! The certificate authorities of a host that was bootstrapped before. The plan of a repair
//! compares files with the real certificates.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use halite_pillar::ca_rotation::{CaRotation, RECORDED, ROTATED, SERVICE_ACCOUNTS};
use halite_pillar::encryption_keys::{EncryptionKeys, KEYS_FILE};
use halite_pillar::view::{Pki, UNKNOWN};
use halite_secrets::reference;
use halite_states::low::LowState;
use serde_json::Value;

use super::declaration::Declared;

/// The master's directory with the authorities.
pub const DIRECTORY: &str = "/var/lib/halite/master";
const NAMES: [&str; 5] = ["halite", "kubernetes", "etcd", "front-proxy", "site"];

/// The existing certificates and keys; empty on a bare host.
#[derive(Default)]
pub struct Authority {
    certificates: BTreeMap<String, String>,
    /// The certificates that sign, of CAs that are being rotated.
    signers: BTreeMap<String, String>,
    /// The numbers of the stages of rotations.
    stages: BTreeMap<&'static str, u64>,
    /// The keys, by pillar path.
    keys: BTreeMap<String, String>,
    public: Option<String>,
    encryption: Option<EncryptionKeys>,
}

impl Authority {
    /// Reads the existing files.
    pub fn read(directory: &Path) -> Self {
        let text = |path: String| std::fs::read_to_string(directory.join(path)).ok();
        let mut found = Self {
            public: text("sa.pub".to_owned()),
            encryption: text(KEYS_FILE.to_owned())
                .and_then(|keys| serde_json::from_str(&keys).ok()),
            ..Self::default()
        };
        for name in NAMES {
            if let Some(certificate) = text(format!("ca/{name}.crt")) {
                found.certificates.insert(name.to_owned(), certificate);
            }
            if let Some(key) = text(format!("ca/{name}.key")) {
                found.keys.insert(format!("pki.{name}.key"), key);
            }
        }
        if let Some(key) = text("sa.key".to_owned()) {
            found.keys.insert("pki.sa.key".to_owned(), key);
        }
        for name in ROTATED {
            let exists = match name {
                SERVICE_ACCOUNTS => found.public.is_some(),
                name => found.certificates.contains_key(name),
            };
            if !exists {
                continue;
            }
            let dropped = text(CaRotation::dropped_path(name));
            let dropped = dropped.and_then(|list| serde_json::from_str::<Vec<String>>(&list).ok());
            let ended = dropped.unwrap_or_default().len() as u64;
            let mut number = CaRotation::number_after(ended);
            let record = text(CaRotation::path(name));
            if let Some(record) =
                record.and_then(|record| serde_json::from_str::<CaRotation>(&record).ok())
            {
                found.rotate(name, &record);
                number = record.number();
            }
            if RECORDED.contains(&name) {
                found.stages.insert(name, number);
            }
        }
        found
    }

    /// Uses the stage of a rotation.
    fn rotate(&mut self, name: &str, record: &CaRotation) {
        if record.new_signs() {
            let key = record.key.clone();
            self.keys.insert(format!("pki.{name}.key"), key);
        }
        if name == SERVICE_ACCOUNTS {
            let old = self.public.take().unwrap_or_default();
            self.public = Some(record.trusted(&old));
            return;
        }
        let old = self.certificates.remove(name).unwrap_or_default();
        if let Some(signer) = record.one_of_two(&old) {
            self.signers.insert(name.to_owned(), signer.to_owned());
        }
        self.certificates
            .insert(name.to_owned(), record.trusted(&old));
    }

    /// The certificates and the public key.
    pub fn pki(&self) -> Pki {
        Pki {
            certificates: self.certificates.clone(),
            signers: self.signers.clone(),
            service_account: self.public.clone(),
            stages: self.stages.clone(),
            encryption: self.encryption.as_ref().map(EncryptionKeys::names),
        }
    }

    /// Replaces references to secrets in a low state, which is only passed to this host's minion
    /// program. Secrets that do not exist yet become a placeholder.
    ///
    /// # Errors
    /// The low state refers to a secret that this host may not have.
    pub fn fill(&self, low: &mut LowState, declared: &Declared, name: &str) -> anyhow::Result<()> {
        let allowed = declared.allowed_secrets(name);
        let lookup = |path: &str| {
            if declared.is_encryption_key(name, path) {
                let key = self.encryption.as_ref().and_then(|keys| keys.secret(path));
                return Some(key.unwrap_or(UNKNOWN).to_owned());
            }
            allowed.contains(path).then(|| {
                let own = declared.own_secret(name, path);
                self.keys
                    .get(path)
                    .cloned()
                    .or(own)
                    .unwrap_or_else(|| UNKNOWN.to_owned())
            })
        };
        for chunk in &mut low.chunks {
            let mut args = Value::Object(std::mem::take(&mut chunk.args));
            reference::fill(&mut args, &lookup)
                .with_context(|| format!("{} {}", chunk.function(), chunk.name))?;
            if let Value::Object(args) = args {
                chunk.args = args;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_host_has_no_authority() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Authority::read(dir.path()).pki(), Pki::default());
    }

    #[test]
    fn existing_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("ca")).unwrap();
        std::fs::write(dir.path().join("ca/etcd.crt"), "CERT").unwrap();
        std::fs::write(dir.path().join("ca/etcd.key"), "KEY").unwrap();
        let found = Authority::read(dir.path());
        assert_eq!(found.pki().certificates.get("etcd").unwrap(), "CERT");
        assert_eq!(found.keys.get("pki.etcd.key").unwrap(), "KEY");
        let record = r#"{"stage": "sign", "certificate": "NEW", "key": "NEW KEY"}"#;
        std::fs::write(dir.path().join("ca/etcd.rotation.json"), record).unwrap();
        let found = Authority::read(dir.path());
        assert_eq!(found.pki().certificates.get("etcd").unwrap(), "NEW\nCERT\n");
        assert_eq!(found.pki().signers.get("etcd").unwrap(), "NEW");
        assert_eq!(found.keys.get("pki.etcd.key").unwrap(), "NEW KEY");
        assert_eq!(found.pki().stages, [("etcd", 2)].into());
        std::fs::remove_file(dir.path().join("ca/etcd.rotation.json")).unwrap();
        std::fs::write(dir.path().join("ca/etcd.dropped.json"), r#"["OLD"]"#).unwrap();
        assert_eq!(
            Authority::read(dir.path()).pki().stages,
            [("etcd", 3)].into()
        );
    }
}
