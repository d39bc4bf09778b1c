//! The declared state: the operator's documents, the bundle in use and the public halves of the
//! CAs, and from these the pillar of one minion.
//!
//! The files decide and may change at any time, so each job loads them again; nothing is parsed
//! again while name, time and size of every file stay the same.

mod bundle;
mod nodes;
mod redactors;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bundle::InUse;
use halite_errors::chain;
use halite_manifest::Bundles;
use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::declaration::Declaration;
use halite_pillar::load::{Texts, load};
use halite_pillar::role::Role;
use halite_pillar::validate::Context;
use halite_pillar::view::{Pki, allowed_secrets, own_secret, view};
use halite_proto::ids::MinionId;
use halite_secrets::reference;
use halite_states::tree::DirTree;
use redactors::Redactors;
use serde_json::{Map, Value};

use crate::app::App;
use crate::ca;
use crate::ca::Cas;
use crate::names::MASTER;
use crate::redact::Redactor;
use crate::refusal::Refusal;

pub use nodes::NodeRequest;

/// Reads the declared state and caches the last [`Snapshot`] of it.
pub struct Declarations {
    config_dir: PathBuf,
    bundles: Bundles,
    /// The bundle of a cluster whose document records none.
    configured: Option<PathBuf>,
    cas: Arc<Cas>,
    current: Mutex<Option<(Fingerprint, Arc<Snapshot>)>>,
    redactors: Redactors,
    /// Node documents are written one at a time.
    pub(crate) writing: tokio::sync::Mutex<()>,
}

/// Name, time and size of every file that a snapshot is made of.
type Fingerprint = Vec<(PathBuf, Option<(SystemTime, u64)>)>;

impl Declarations {
    /// The declared state in the configured directories.
    #[must_use]
    pub fn new(app: &App) -> Self {
        Self {
            config_dir: app.config.config_dir.clone(),
            bundles: Bundles::new(&app.config.bundles),
            configured: app.config.bundle.clone(),
            cas: Arc::clone(&app.cas),
            current: Mutex::default(),
            redactors: Redactors::default(),
            writing: tokio::sync::Mutex::default(),
        }
    }

    /// The present snapshot.
    ///
    /// # Errors
    /// All problems of all documents. An unreadable bundle is an error of the methods that need it.
    pub fn load(&self) -> Result<Arc<Snapshot>, Refusal> {
        let stamp = self.stamp();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, snapshot)) = current.as_ref()
            && *known == stamp
        {
            return Ok(Arc::clone(snapshot));
        }
        let snapshot = Arc::new(self.read()?);
        // A bundle that could not be read may return without a change of any file.
        *current = snapshot
            .in_use
            .is_ok()
            .then(|| (stamp, Arc::clone(&snapshot)));
        Ok(snapshot)
    }

    /// The redactor for the returns of one minion. It removes the secrets of earlier declarations,
    /// too: a return may come after the secret was changed, or while the documents cannot be read.
    ///
    /// # Errors
    /// The declaration cannot be read, and could not be since the master started. Nothing of the
    /// minion may be stored or displayed then.
    pub fn redactor(&self, minion: &MinionId) -> Result<Arc<Redactor>, Refusal> {
        self.redactors.get(minion, self.load())
    }

    /// The directory of the operator's documents.
    #[must_use]
    pub fn config_dir(&self) -> &Path {
        &self.config_dir
    }

    fn stamp(&self) -> Fingerprint {
        let mut files = vec![
            self.config_dir.join("cluster.yaml"),
            self.config_dir.join("custom/pillar.yaml"),
        ];
        files.extend(self.bundles.manifests());
        files.extend(
            self.configured
                .iter()
                .map(|bundle| bundle.join(halite_manifest::manifest::FILE)),
        );
        let nodes = std::fs::read_dir(self.config_dir.join("nodes"));
        let mut nodes: Vec<PathBuf> = nodes
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        nodes.sort();
        files.append(&mut nodes);
        let facts = |path: PathBuf| {
            let data = std::fs::metadata(&path).ok();
            let facts = data.and_then(|data| Some((data.modified().ok()?, data.len())));
            (path, facts)
        };
        files.into_iter().map(facts).collect()
    }

    fn read(&self) -> Result<Snapshot, Refusal> {
        let texts = Texts::from_dir(&self.config_dir)
            .map_err(|problems| Refusal::from_problems(&problems))?;
        // The documents were checked against host and bundle when they were written; a bundle that
        // has changed since must not make a running cluster unmanageable.
        let declaration = load(&texts, &Context::default())
            .map_err(|problems| Refusal::from_problems(&problems))?;
        let directory = bundle::directory(
            &declaration.cluster,
            &self.bundles,
            self.configured.as_deref(),
        );
        let own = DirTree::new().mount("custom", self.config_dir.join("custom"));
        let (in_use, tree) =
            match directory.and_then(|directory| bundle::read(&directory, &self.bundles)) {
                Ok((in_use, tree)) => (Ok(in_use), own.with_fallback(tree)),
                Err(refusal) => (Err(refusal), own),
            };
        Ok(Snapshot {
            declaration,
            in_use,
            bundles: self.bundles.clone(),
            pki: public_halves(&self.cas),
            tree,
            cas: Arc::clone(&self.cas),
        })
    }
}

fn public_halves(cas: &Cas) -> Pki {
    let certificate = |name: &&str| {
        Some((
            (*name).to_owned(),
            cas.certificate_pem(name).ok()?.to_owned(),
        ))
    };
    Pki {
        certificates: ca::NAMES.iter().filter_map(certificate).collect(),
        service_account: Some(cas.sa_public_pem().to_owned()),
    }
}

/// The declared state at one moment.
pub struct Snapshot {
    declaration: Declaration,
    /// The bundle in use, or why it cannot be read now.
    in_use: Result<InUse, Refusal>,
    bundles: Bundles,
    pki: Pki,
    tree: DirTree,
    cas: Arc<Cas>,
}

impl Snapshot {
    /// The cluster's name.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.declaration.cluster.metadata.name
    }

    /// The operator's documents.
    #[must_use]
    pub fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// The facts of the bundle in use.
    ///
    /// # Errors
    /// The bundle cannot be read now; for example, its disk is not mounted.
    pub fn bundle(&self) -> Result<&BundleFacts, Refusal> {
        self.in_use().map(|in_use| &in_use.facts)
    }

    fn in_use(&self) -> Result<&InUse, Refusal> {
        self.in_use.as_ref().map_err(Clone::clone)
    }

    /// The state tree, the operator's own states mounted at `custom/`.
    #[must_use]
    pub fn tree(&self) -> &DirTree {
        &self.tree
    }

    /// The pillar of one minion, with references in the place of secrets.
    ///
    /// # Errors
    /// The minion is not declared, or the bundle cannot be read now.
    pub fn pillar(&self, minion: &MinionId) -> Result<Value, Refusal> {
        view(&self.declaration, self.bundle()?, &self.pki, minion)
            .map_err(|error| Refusal::not_found(format!("{minion}: {}", chain(&error))))
    }

    /// As [`Snapshot::pillar`]; an empty mapping for a minion that is not declared.
    #[must_use]
    pub fn pillar_or_empty(&self, minion: &MinionId) -> Value {
        self.pillar(minion)
            .unwrap_or_else(|_| Value::Object(Map::new()))
    }

    /// The digest of a file of the bundle, by its path in the bundle.
    #[must_use]
    pub fn bundle_hash(&self, path: &str) -> Option<String> {
        self.in_use
            .as_ref()
            .ok()?
            .manifest
            .sha256(path)
            .map(str::to_owned)
    }

    /// The path of a file of the bundle, by its digest. A job that was made from another bundle of
    /// the site, before the present one came into use, still gets its files.
    #[must_use]
    pub fn bundle_file(&self, sha256: &str) -> Option<PathBuf> {
        let here = self
            .in_use
            .as_ref()
            .ok()
            .and_then(|in_use| in_use.file(sha256));
        here.or_else(|| self.bundles.file(sha256))
    }

    /// The value of a secret, if this minion may have it.
    fn secret(&self, minion: &MinionId, path: &str) -> Option<String> {
        if !allowed_secrets(&self.declaration, minion).contains(path) {
            return None;
        }
        if path == "pki.sa.key" {
            return Some(self.cas.sa_key_pem().to_owned());
        }
        match path
            .strip_prefix("pki.")
            .and_then(|rest| rest.strip_suffix(".key"))
        {
            Some(name) => self.cas.key_pem(name).ok().map(str::to_owned),
            None => own_secret(&self.declaration, minion, path),
        }
    }

    /// Replaces the references to secrets in a value that is sent to a minion.
    ///
    /// # Errors
    /// The value refers to a secret that this minion may not have.
    pub fn fill(&self, minion: &MinionId, value: &mut Value) -> Result<(), Refusal> {
        reference::fill(value, &|path| self.secret(minion, path))
            .map(|_| ())
            .map_err(|error| Refusal::denied(format!("{minion}: {}", chain(&error))))
    }

    /// The secrets that one minion may have.
    fn secrets(&self, minion: &MinionId) -> impl Iterator<Item = String> {
        allowed_secrets(&self.declaration, minion)
            .into_iter()
            .filter_map(move |path| self.secret(minion, &path))
    }

    /// The groups of minions in which a highstate of all of them is safe: first each host of the
    /// bundle, of etcd or of the control plane by itself (so that never two members of a quorum
    /// restart at once), then the Kubernetes objects, then all other hosts together. Declared nodes
    /// that are not in `accepted` are left out.
    #[must_use]
    pub fn safe_order(&self, accepted: &[MinionId]) -> Vec<Vec<MinionId>> {
        let mut first: Vec<(bool, &MinionId)> = Vec::new();
        let mut others = Vec::new();
        for (name, node) in &self.declaration.nodes {
            let Some(name) = accepted.iter().find(|id| *id == name.as_str()) else {
                continue;
            };
            if [Role::Bootstrap, Role::Etcd, Role::ControlPlane]
                .iter()
                .any(|role| node.has(*role))
            {
                first.push((!node.has(Role::Bootstrap), name));
            } else {
                others.push(name.clone());
            }
        }
        first.sort();
        let mut order: Vec<Vec<MinionId>> = first
            .into_iter()
            .map(|(_, name)| vec![name.clone()])
            .collect();
        order.push(vec![MASTER.clone()]);
        if !others.is_empty() {
            order.push(others);
        }
        order
    }
}
