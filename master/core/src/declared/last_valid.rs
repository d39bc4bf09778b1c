//! The last valid documents on disk, for a master that starts while the documents contain a
//! mistake.
//!
//! The file is private to root like the CAs' keys beside it, because documents may contain secrets.
//! What the operator has encrypted stays encrypted.
//! It is one of the saved files, so that a promoted standby and a restored master have it, too. It
//! has a directory of its own, which a standby's feed watches.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_errors::chain;
use halite_pillar::declaration::Declaration;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::sealed::SealedSecrets;
use halite_pillar::validate::Context;
use halite_secret_file::SecretFile;
use serde::{Deserialize, Serialize};

use crate::ca::{CaError, files};
use crate::saved::LAST_VALID;

/// The file in its directory.
const FILE: &str = "documents.json";
/// The cluster document, below the operator's directory.
const CLUSTER: &str = "cluster.yaml";
/// The operator's own values, below the operator's directory.
const CUSTOM: &str = "custom/pillar.yaml";

/// Documents by their path below the operator's directory.
#[derive(Serialize, Deserialize)]
struct Kept {
    documents: BTreeMap<String, String>,
    /// The encrypted file of secrets, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secrets: Option<String>,
}

/// The last valid documents of a master.
#[derive(Debug, Clone)]
pub struct LastValid {
    directory: PathBuf,
    config_dir: PathBuf,
    secret_file: SecretFile,
}

impl LastValid {
    /// The last valid documents of the master with these directories.
    pub fn new(state_dir: &Path, config_dir: &Path) -> Self {
        Self::of_copy(state_dir, config_dir, state_dir)
    }

    /// The last valid documents in a standby's copy of these directories. `own` is the standby's
    /// own state directory, which has its identity.
    pub fn of_copy(state_dir: &Path, config_dir: &Path, own: &Path) -> Self {
        Self {
            directory: state_dir.join(LAST_VALID),
            config_dir: config_dir.to_owned(),
            secret_file: SecretFile::new(config_dir, own),
        }
    }

    /// Creates the directory, so that a standby's feed watches it before it contains the first
    /// documents.
    pub fn make_directory(&self) {
        if let Err(error) = files::directory(&self.directory, 0o700) {
            let error = chain(&error);
            tracing::warn!(
                error,
                "cannot create the directory of the last valid documents"
            );
        }
    }

    /// Returns whether valid documents were ever stored.
    pub fn exists(&self) -> bool {
        self.directory.join(FILE).exists()
    }

    /// Stores these documents on disk. If that fails, the master continues, and a later restart
    /// does without them.
    pub fn store(&self, texts: &Texts) {
        if let Err(error) = self.write(texts) {
            let error = chain(&error);
            tracing::warn!(
                error,
                "cannot store the valid documents for a restart with invalid ones"
            );
        }
    }

    fn write(&self, texts: &Texts) -> Result<(), CaError> {
        let nodes = texts.nodes.iter().chain(&texts.custom);
        let all = std::iter::once(&texts.cluster).chain(nodes);
        let documents = all.map(|text| (self.place(&text.file), text.text.clone()));
        let kept = Kept {
            documents: documents.collect(),
            secrets: (texts.sealed.as_ref()).map(|sealed| STANDARD.encode(&sealed.bytes)),
        };
        // Maps of texts always convert to JSON.
        let content = serde_json::to_string(&kept).unwrap_or_default();
        let path = self.directory.join(FILE);
        if std::fs::read_to_string(&path).is_ok_and(|before| before == content) {
            return Ok(());
        }
        files::directory(&self.directory, 0o700)?;
        files::write(&path, &content, 0o600)
    }

    fn place(&self, file: &str) -> String {
        let below = Path::new(file).strip_prefix(&self.config_dir);
        below.map_or_else(|_| file.to_owned(), |below| below.display().to_string())
    }

    /// The declaration of these documents; `None` if no documents are stored, or this version
    /// cannot use them. Values of secrets that this host cannot decrypt are unknown in it.
    pub fn declaration(&self) -> Option<Declaration> {
        let text = std::fs::read_to_string(self.directory.join(FILE)).ok()?;
        let kept: Kept = serde_json::from_str(&text).ok()?;
        let declaration = load(&self.texts(kept)?, &Context::default());
        if declaration.is_err() {
            tracing::warn!("the stored documents are not valid for this version of the master");
        }
        declaration.ok()
    }

    fn texts(&self, kept: Kept) -> Option<Texts> {
        let mut documents = kept.documents;
        let sealed = match kept.secrets.map(|text| STANDARD.decode(text)) {
            Some(bytes) => {
                let bytes = bytes.ok()?;
                let plain = self.secret_file.open(&bytes);
                if let Err(error) = &plain {
                    let error = chain(error);
                    tracing::warn!(error, "the values of secrets are unknown");
                }
                Some(SealedSecrets {
                    file: self.secret_file.path().display().to_string(),
                    bytes,
                    plain: plain.ok(),
                })
            }
            None => None,
        };
        let text = |(place, text): (String, String)| Text {
            file: self.config_dir.join(place).display().to_string(),
            text,
        };
        let cluster = documents.remove_entry(CLUSTER).map(text)?;
        let custom = documents.remove_entry(CUSTOM).map(text);
        Some(Texts {
            cluster,
            nodes: documents.into_iter().map(text).collect(),
            custom,
            sealed,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const DOCUMENT: &str = "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: test}\nnetworks:\n  controlPlane: {cidrs: [10.10.0.0/24]}\nkubernetes: {version: \"1.36\"}\n";
    const FIRST: &str = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: bootstrap-1}\nroles: [bootstrap, registry, etcd, control-plane]\naddress: 10.10.0.11\n";
    const NODE: &str = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: worker-1}\nroles: [worker]\naddress: 10.10.0.12\n";

    #[test]
    fn what_was_valid_is_read_again_and_is_for_root_only() {
        let directory = tempfile::tempdir().unwrap();
        let (state, config) = (directory.path().join("state"), directory.path().join("etc"));
        let last_valid = LastValid::new(&state, &config);
        assert!(last_valid.declaration().is_none());
        let text = |file: &str, text: &str| Text {
            file: config.join(file).display().to_string(),
            text: text.to_owned(),
        };
        let texts = Texts {
            cluster: text("cluster.yaml", DOCUMENT),
            nodes: vec![
                text("nodes/bootstrap-1.yaml", FIRST),
                text("nodes/worker-1.yaml", NODE),
            ],
            custom: Some(text("custom/pillar.yaml", "a: 1\n")),
            sealed: None,
        };
        last_valid.store(&texts);
        let expected = load(&texts, &Context::default()).unwrap();
        let declaration = last_valid.declaration().unwrap();
        assert_eq!(format!("{declaration:?}"), format!("{expected:?}"));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let kept = state.join(LAST_VALID);
        assert_eq!((mode(&kept), mode(&kept.join(FILE))), (0o700, 0o600));

        let stamp = || {
            std::fs::metadata(kept.join(FILE))
                .unwrap()
                .modified()
                .unwrap()
        };
        let before = stamp();
        last_valid.store(&texts);
        assert_eq!(stamp(), before, "the same documents are not written again");
        // Moved by a restore: the reader's operator directory counts.
        let moved = LastValid::new(&state, Path::new("/elsewhere"));
        let cluster = moved.declaration().unwrap().cluster;
        assert_eq!(cluster.source.file, "/elsewhere/cluster.yaml");
        for damaged in ["", "{}", "{\"documents\": {\"cluster.yaml\": \"a: b\"}}"] {
            std::fs::write(kept.join(FILE), damaged).unwrap();
            assert!(last_valid.declaration().is_none(), "{damaged}");
        }
    }
}
