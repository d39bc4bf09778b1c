//! The certificate authorities of a host that was bootstrapped before: a repair's plan must compare
//! with the real ones.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use halite_pillar::view::{Pki, UNKNOWN};
use halite_secrets::reference;
use halite_states::low::LowState;
use serde_json::Value;

use super::declare::Declared;

/// Where the master keeps them.
pub const DIRECTORY: &str = "/var/lib/halite/master";
const NAMES: [&str; 5] = ["halite", "kubernetes", "etcd", "front-proxy", "site"];

/// What is there: nothing on a bare host.
#[derive(Default)]
pub struct Authority {
    certificates: BTreeMap<String, String>,
    /// Keys by pillar path.
    keys: BTreeMap<String, String>,
    public: Option<String>,
}

impl Authority {
    /// Reads whatever is there.
    pub fn read(directory: &Path) -> Self {
        let text = |path: String| std::fs::read_to_string(directory.join(path)).ok();
        let mut found = Self {
            public: text("sa.pub".to_owned()),
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
        found
    }

    /// The public halves.
    pub fn pki(&self) -> Pki {
        Pki {
            certificates: self.certificates.clone(),
            service_account: self.public.clone(),
        }
    }

    /// Puts the real secrets into a low state that goes to this host's minion program and nowhere
    /// else. What does not exist yet says so.
    ///
    /// # Errors
    /// It asks for a secret that this host may not have.
    pub fn fill(&self, low: &mut LowState, declared: &Declared, name: &str) -> anyhow::Result<()> {
        let allowed = declared.allowed_secrets(name);
        let lookup = |path: &str| {
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
    fn a_bare_host_has_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Authority::read(dir.path()).pki(), Pki::default());
    }

    #[test]
    fn what_is_there_is_used() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("ca")).unwrap();
        std::fs::write(dir.path().join("ca/etcd.crt"), "CERT").unwrap();
        std::fs::write(dir.path().join("ca/etcd.key"), "KEY").unwrap();
        let found = Authority::read(dir.path());
        assert_eq!(found.pki().certificates["etcd"], "CERT");
        assert_eq!(found.keys["pki.etcd.key"], "KEY");
    }
}
