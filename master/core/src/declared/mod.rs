//! The declared state: the operator's documents, the bundle in use and the public halves of the
//! CAs, and from these the pillar of one minion.
//!
//! The files are authoritative and may change at any time. Each new job inspects all of them
//! ([`Declarations::load`]); its messages only ask the kernel whether a document has changed since
//! ([`Declarations::current`]). Nothing is parsed again while name, time and size of every file
//! stay the same. Files are read on threads of their own: the disk of a bundle may hang, and then
//! only requests that need the bundle fail.

mod bundle;
mod ca_stages;
mod changes;
mod contents;
mod keys;
mod last_valid;
mod leaving;
mod masters;
mod nodes;
mod own_cas;
mod reader;
mod redactors;
mod releases;
mod roles;
mod secrets;
mod slow;
mod upgraded;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bundle::InUse;
use contents::{Content, Contents};
use halite_errors::chain;
use halite_manifest::Bundles;
use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::declaration::Declaration;
use halite_pillar::encryption_keys::{EncryptionKeys, key_name};
use halite_pillar::masters::MasterPart;
use halite_pillar::role::Role;
use halite_pillar::view::{Pki, allowed_secrets, is_encryption_key, own_secret, view};
use halite_proto::ids::MinionId;
use halite_secrets::reference;
use halite_secrets::reference::FillError;
use halite_states::tree::{DirTree, MemoryTree};
use reader::{DeclarationReader, Documents};
use redactors::Redactors;
use serde_json::{Map, Value};

use crate::app::App;
use crate::ca::Cas;
use crate::clock::Clock;
use crate::encryption::KeyFile;
use crate::names::MASTER;
use crate::redact::Redactor;
use crate::refusal::{Refusal, RefusalKind};

pub use ca_stages::CaStep;
pub use changes::{Changes, Generation};
pub use keys::KeyStep;
pub use last_valid::LastValid;
pub use nodes::{NodeRequest, node_roles, requested};
pub use reader::{Look, look};
pub use releases::{BundlePart, Direction};
pub use roles::Stage;
pub use slow::in_background;
pub use upgraded::NewBytes;

/// Reads the declared state and caches its last [`Snapshot`].
pub struct Declarations {
    config_dir: PathBuf,
    reader: DeclarationReader,
    redactors: Redactors,
    clock: Arc<dyn Clock>,
    /// Node documents are written one at a time.
    pub writing: tokio::sync::Mutex<()>,
}

impl Declarations {
    /// The declared state in the configured directories.
    #[must_use]
    pub fn new(app: &App) -> Self {
        Self::with_look(app, Arc::new(look))
    }

    /// Like [`Declarations::new`], with a custom inspection of the documents.
    pub fn with_look(app: &App, look: Look) -> Self {
        Self {
            config_dir: app.config.config_dir.clone(),
            reader: DeclarationReader::new(app, look),
            clock: Arc::clone(&app.clock),
            redactors: Redactors::default(),
            writing: tokio::sync::Mutex::default(),
        }
    }

    /// The current snapshot. Inspects each file, so it is called once for a job, not for each of
    /// its minions and messages.
    ///
    /// # Errors
    /// All problems of all documents. A bundle that cannot be read, or whose disk does not answer,
    /// is an error of the methods that need the bundle.
    pub async fn load(&self) -> Result<Arc<Snapshot>, Refusal> {
        self.reader.load().await
    }

    /// The snapshot with the current documents, and with the bundle that the last
    /// [`load`](Self::load) found. No file is inspected while no document has changed, however many
    /// callers ask.
    ///
    /// # Errors
    /// All problems of all documents.
    pub async fn current(&self) -> Result<Arc<Snapshot>, Refusal> {
        self.reader.current().await
    }

    /// The declaration in force: the current documents, or the last valid ones while the current
    /// ones are refused, also after a restart of the master. It is for everything that must
    /// continue in spite of a mistake: stored and displayed data of a minion, work that has
    /// started, the other masters. An operator's orders are refused instead, so that they are never
    /// carried out with other documents than those on disk.
    ///
    /// # Errors
    /// All problems of all documents, if no valid documents are known.
    pub async fn in_force(&self) -> Result<Arc<Snapshot>, Refusal> {
        self.reader.in_force().await
    }

    /// The redactor for the returns of one minion. It also removes the secrets of earlier
    /// declarations: a return may arrive after the secret was changed, or while the documents
    /// cannot be read.
    ///
    /// # Errors
    /// The declaration cannot be read, and no valid one is known. Then no data of the minion that
    /// may contain a secret is stored or displayed.
    pub async fn redactor(&self, minion: &MinionId) -> Result<Arc<Redactor>, Refusal> {
        let cannot = |reason: &str| {
            Refusal::new(
                RefusalKind::Unavailable,
                format!(
                    "cannot store a return of {minion}: its secrets are unknown while {reason}"
                ),
            )
        };
        let snapshot = self.reader.in_force().await.map_err(|refusal| {
            cannot(&format!(
                "the declaration cannot be read: {}",
                refusal.message
            ))
        })?;
        if snapshot.has_unknown_secrets() {
            return Err(cannot(
                "this master cannot decrypt them; `ctl status` shows the remedy",
            ));
        }
        Ok(self.redactors.get(minion, &snapshot))
    }

    /// Replaces the references to secrets in a value that is sent to a minion; from now on these
    /// secrets are removed from its returns.
    ///
    /// # Errors
    /// No declaration is in force, the value refers to a secret that this minion may not have, or
    /// it was compiled before the present stage of a CA's rotation.
    pub async fn fill(&self, minion: &MinionId, value: &mut Value) -> Result<(), Refusal> {
        let snapshot = self.in_force().await?;
        snapshot.refuse_earlier_stage(value)?;
        self.redactors.get(minion, &snapshot);
        snapshot.fill(minion, value)
    }

    /// The file of the keys that encrypt objects in etcd.
    fn key_file(&self) -> &KeyFile {
        self.reader.key_file()
    }

    /// The number of bundles in memory.
    #[cfg(any(test, feature = "testing"))]
    pub fn bundles_in_memory(&self) -> usize {
        self.reader.bundles_in_memory()
    }

    /// The directory of the operator's documents.
    #[must_use]
    pub fn config_dir(&self) -> &Path {
        &self.config_dir
    }
}

/// The declared state at one moment.
pub struct Snapshot {
    documents: Arc<Documents>,
    /// The bundles in use.
    contents: Contents,
    bundles: Bundles,
    pki: Pki,
    cas: Arc<Cas>,
    /// The addresses of this master.
    own: Vec<IpAddr>,
}

impl Snapshot {
    /// The cluster's name.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.declaration().cluster.metadata.name
    }

    /// The operator's documents.
    #[must_use]
    pub fn declaration(&self) -> &Declaration {
        &self.documents.declaration
    }

    /// The facts of the cluster's bundle.
    ///
    /// # Errors
    /// The bundle cannot be read now, for example because its disk is not mounted.
    pub fn bundle(&self) -> Result<&BundleFacts, Refusal> {
        self.in_use().map(|in_use| &in_use.facts)
    }

    /// The facts of the bundle from which a minion is compiled.
    ///
    /// # Errors
    /// The bundle cannot be read now.
    pub fn bundle_for(&self, minion: &MinionId) -> Result<&BundleFacts, Refusal> {
        self.content(minion).in_use().map(|in_use| &in_use.facts)
    }

    fn in_use(&self) -> Result<&InUse, Refusal> {
        self.contents.cluster.in_use()
    }

    fn content(&self, minion: &MinionId) -> &Content {
        self.contents.get(self.declaration().bundle_for(minion))
    }

    /// The state tree from which a minion is compiled, with the operator's own states mounted at
    /// `custom/`.
    #[must_use]
    pub fn tree(&self, minion: &MinionId) -> &DirTree {
        &self.content(minion).tree
    }

    /// The operator's own states as they are on disk now. Reads the files.
    ///
    /// # Errors
    /// All files that cannot be read: to compile without them could remove what they declare.
    pub fn read_own_states(&self) -> Result<MemoryTree, Refusal> {
        let read = self.contents.cluster.tree.read_directories();
        read.map_err(|problems| Refusal::from_problems(&problems))
    }

    /// The same snapshot with own states that were read before, for a job: all of its minions get
    /// the same version, whatever happens on disk while they are compiled.
    #[must_use]
    pub fn with_own_states(&self, own: &Arc<MemoryTree>) -> Self {
        Self {
            documents: Arc::clone(&self.documents),
            contents: self.contents.with_own_states(own),
            bundles: self.bundles.clone(),
            pki: self.pki.clone(),
            cas: Arc::clone(&self.cas),
            own: self.own.clone(),
        }
    }

    /// The pillar of one minion, with references instead of secrets.
    ///
    /// # Errors
    /// The minion is not declared, the bundle cannot be read now, or the documents name another
    /// host as the master's host: their states would stop the master here.
    pub fn pillar(&self, minion: &MinionId) -> Result<Value, Refusal> {
        if let Some(host) = masters::other_master(self.declaration(), &self.own) {
            return Err(Refusal::conflict(format!(
                "cannot compile for {minion}: the master runs on {host}, but the cluster document names another \
                 host; `systemctl restart halite-master` there records {host}"
            )));
        }
        let bundle = self.bundle_for(minion)?;
        view(self.declaration(), bundle, &self.pki, minion)
            .map_err(|error| Refusal::not_found(format!("{minion}: {}", chain(&error))))
    }

    /// Like [`Snapshot::pillar`]; an empty mapping for a minion that is not declared.
    #[must_use]
    pub fn pillar_or_empty(&self, minion: &MinionId) -> Value {
        self.pillar(minion)
            .unwrap_or_else(|_| Value::Object(Map::new()))
    }

    /// The digest of a file of a minion's bundle with this path in the bundle.
    #[must_use]
    pub fn bundle_hash(&self, minion: &MinionId, path: &str) -> Option<String> {
        let in_use = self.content(minion).in_use().ok()?;
        in_use.manifest.sha256(path).map(str::to_owned)
    }

    /// The path of a bundle's file with this digest. A job that was made from another bundle of the
    /// site, before the current one came into use, still gets its files. May read the manifests of
    /// other bundles, so it must not be called where a hanging disk would delay others.
    #[must_use]
    pub fn bundle_file(&self, sha256: &str) -> Option<PathBuf> {
        let mut used = self
            .contents
            .all()
            .filter_map(|content| content.in_use().ok());
        let here = used.find_map(|in_use| in_use.file(sha256));
        here.or_else(|| self.bundles.file(sha256))
    }

    /// The value of a secret, if this minion may have it.
    fn secret(&self, minion: &MinionId, path: &str) -> Option<String> {
        if is_encryption_key(self.declaration(), minion, path) {
            let keys = self.documents.keys.as_ref()?;
            return keys.secret(path).map(str::to_owned);
        }
        if !allowed_secrets(self.declaration(), minion).contains(path) {
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
            None => own_secret(self.declaration(), minion, path),
        }
    }

    /// Replaces the references to secrets in a value that is sent to a minion.
    ///
    /// # Errors
    /// The value refers to a secret that this minion may not have, or to an encryption key that has
    /// left since the value was compiled.
    pub fn fill(&self, minion: &MinionId, value: &mut Value) -> Result<(), Refusal> {
        let filled = reference::fill(value, &|path| self.secret(minion, path));
        filled.map(|_| ()).map_err(|error| match &error {
            FillError::Unknown(path) if is_encryption_key(self.declaration(), minion, path) => {
                let name = key_name(path).unwrap_or(path);
                Refusal::conflict(format!(
                    "{minion}: these states are from an earlier stage of the rotation of the encryption key: the master no longer has \
                     {name}; run the same command again"
                ))
            }
            FillError::Unknown(path) if self.is_unknown(path) => Refusal::conflict(format!(
                "{minion}: this master cannot decrypt the secret {path}; `ctl status` shows the remedy"
            )),
            _ => Refusal::denied(format!("{minion}: {}", chain(&error))),
        })
    }

    /// The secrets that one minion may have.
    fn secrets(&self, minion: &MinionId) -> impl Iterator<Item = String> {
        allowed_secrets(self.declaration(), minion)
            .into_iter()
            .chain(self.documents.keys.iter().flat_map(EncryptionKeys::paths))
            .filter_map(move |path| self.secret(minion, &path))
    }

    /// The groups of minions for which a highstate of the whole cluster is safe: first each host
    /// with a bundle, etcd or a control plane by itself (so that two members of a quorum never
    /// restart at once), then the Kubernetes objects, then all other hosts together. Leaves out
    /// declared nodes that are not in `accepted`.
    #[must_use]
    pub fn safe_order(&self, accepted: &[MinionId]) -> Vec<Vec<MinionId>> {
        let mut first: Vec<(bool, &MinionId)> = Vec::new();
        let mut others = Vec::new();
        for name in self.declaration().nodes.keys() {
            let Some(name) = accepted.iter().find(|id| *id == name.as_str()) else {
                continue;
            };
            let has_master = self.declaration().part(name.as_str()) == Some(MasterPart::Master);
            if self.changes_alone(name.as_str()) {
                first.push((!has_master, name));
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

    /// The declared hosts that change in batches: those without the master, etcd and a control
    /// plane.
    #[must_use]
    pub fn hosts_in_batches(&self) -> BTreeSet<String> {
        let names = self.declaration().nodes.keys();
        names
            .map(|name| name.as_str().to_owned())
            .filter(|name| !self.changes_alone(name))
            .collect()
    }

    /// Returns whether a host has the master, etcd or a control plane.
    fn changes_alone(&self, name: &str) -> bool {
        let declaration = self.declaration();
        let has_master = declaration.part(name) == Some(MasterPart::Master);
        let node = declaration.nodes.get(name);
        has_master || node.is_some_and(|node| node.has(Role::Etcd) || node.has(Role::ControlPlane))
    }
}
