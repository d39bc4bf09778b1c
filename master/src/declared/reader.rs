//! Reads documents and bundle.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use halite_manifest::Bundles;
use halite_manifest::manifest::FILE;
use halite_pillar::declaration::Declaration;
use halite_pillar::load::{Texts, load};
use halite_pillar::validate::Context;
use halite_pillar::view::Pki;
use halite_states::tree::{DirTree, MemoryTree};

use super::Snapshot;
use super::bundle;
use super::bundle::InUse;
use super::slow::{LIMIT, Slow};
use crate::app::App;
use crate::ca;
use crate::ca::Cas;
use crate::refusal::Refusal;

/// Name, time and size of every file that something was read from.
type Fingerprint = Vec<(PathBuf, Option<(SystemTime, u64)>)>;

/// The operator's documents as they were read.
pub(super) struct Documents {
    files: Fingerprint,
    pub(super) declaration: Declaration,
}

/// The bundle in use as it was read.
pub(super) struct ReadBundle {
    files: Fingerprint,
    pub(super) in_use: InUse,
    tree: MemoryTree,
}

/// Reads the files when they have changed.
pub(super) struct Reader {
    config_dir: PathBuf,
    bundles: Bundles,
    /// The bundle of a cluster whose document records none.
    configured: Option<PathBuf>,
    cas: Arc<Cas>,
    documents: Slow<(), Result<Arc<Documents>, Refusal>>,
    bundle: Slow<PathBuf, Result<Arc<ReadBundle>, Refusal>>,
    newest: Mutex<Option<Arc<Snapshot>>>,
}

impl Reader {
    pub(super) fn new(app: &App) -> Self {
        Self {
            config_dir: app.config.config_dir.clone(),
            bundles: Bundles::new(&app.config.bundles),
            configured: app.config.bundle.clone(),
            cas: Arc::clone(&app.cas),
            documents: Slow::default(),
            bundle: Slow::default(),
            newest: Mutex::default(),
        }
    }

    /// The last snapshot that was read, whatever the files contain now.
    pub(super) fn newest(&self) -> Option<Arc<Snapshot>> {
        self.kept().clone()
    }

    fn kept(&self) -> MutexGuard<'_, Option<Arc<Snapshot>>> {
        // Nothing panics while holding the lock.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present snapshot.
    ///
    /// # Errors
    /// All problems of all documents.
    pub(super) async fn load(&self) -> Result<Arc<Snapshot>, Refusal> {
        let documents = self.read_documents().await?;
        let bundle = self.read_bundle(&documents.declaration).await;
        let mut newest = self.kept();
        let same = newest.as_ref().filter(|newest| {
            let bundles = newest.bundle.as_ref().ok().zip(bundle.as_ref().ok());
            Arc::ptr_eq(&newest.documents, &documents)
                && bundles.is_some_and(|(before, now)| Arc::ptr_eq(before, now))
        });
        if let Some(same) = same {
            return Ok(Arc::clone(same));
        }
        let own = DirTree::new().mount("custom", self.config_dir.join("custom"));
        let tree = match &bundle {
            Ok(bundle) => own.with_fallback(bundle.tree.clone()),
            Err(_) => own,
        };
        let snapshot = Arc::new(Snapshot {
            documents,
            bundle,
            bundles: self.bundles.clone(),
            pki: public_halves(&self.cas),
            tree,
            cas: Arc::clone(&self.cas),
        });
        *newest = Some(Arc::clone(&snapshot));
        Ok(snapshot)
    }

    async fn read_documents(&self) -> Result<Arc<Documents>, Refusal> {
        let directory = self.config_dir.clone();
        let read = move |before: Option<Result<Arc<Documents>, Refusal>>| {
            let files = fingerprint(document_files(&directory));
            if let Some(Ok(before)) =
                before.filter(|before| is_of(before, |read| &read.files, &files))
            {
                return Ok(before);
            }
            let texts = Texts::from_dir(&directory)
                .map_err(|problems| Refusal::from_problems(&problems))?;
            // The documents were checked against host and bundle when they were written; a bundle
            // that has changed since must not make a running cluster unmanageable.
            let declaration = load(&texts, &Context::default())
                .map_err(|problems| Refusal::from_problems(&problems))?;
            Ok(Arc::new(Documents { files, declaration }))
        };
        let hung = || does_not_answer("the documents", &self.config_dir);
        self.documents.read((), read, hung).await?
    }

    async fn read_bundle(&self, declaration: &Declaration) -> Result<Arc<ReadBundle>, Refusal> {
        let bundles = self.bundles.clone();
        let configured = self.configured.clone();
        let directory = bundle::directory(&declaration.cluster, &bundles, configured.as_deref())?;
        let place = directory.clone();
        let read = move |before: Option<Result<Arc<ReadBundle>, Refusal>>| {
            let mut manifests = bundles.manifests();
            manifests.extend(configured.map(|bundle| bundle.join(FILE)));
            let files = fingerprint(manifests);
            // One that could not be read may return without a change of any file.
            if let Some(Ok(before)) =
                before.filter(|before| is_of(before, |read| &read.files, &files))
            {
                return Ok(before);
            }
            let (in_use, tree) = bundle::read(&place, &bundles)?;
            Ok(Arc::new(ReadBundle {
                files,
                in_use,
                tree,
            }))
        };
        let hung = || does_not_answer("the bundle", &directory);
        self.bundle.read(directory.clone(), read, hung).await?
    }
}

/// True when something was read from these files.
fn is_of<T>(
    read: &Result<Arc<T>, Refusal>,
    files_of: impl Fn(&T) -> &Fingerprint,
    files: &Fingerprint,
) -> bool {
    read.as_ref().is_ok_and(|read| files_of(read) == files)
}

fn does_not_answer(what: &str, place: &Path) -> Refusal {
    Refusal::conflict(format!(
        "cannot read {what} in {}: the file system has not answered for {} s; `findmnt -T {0}` shows what is mounted there",
        place.display(),
        LIMIT.as_secs()
    ))
}

fn document_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = vec![
        directory.join("cluster.yaml"),
        directory.join("custom/pillar.yaml"),
    ];
    let nodes = std::fs::read_dir(directory.join("nodes"));
    let nodes = nodes.into_iter().flatten().flatten();
    let mut nodes: Vec<PathBuf> = nodes.map(|entry| entry.path()).collect();
    nodes.sort();
    files.append(&mut nodes);
    files
}

fn fingerprint(files: Vec<PathBuf>) -> Fingerprint {
    let facts = |path: PathBuf| {
        let data = std::fs::metadata(&path).ok();
        let facts = data.and_then(|data| Some((data.modified().ok()?, data.len())));
        (path, facts)
    };
    files.into_iter().map(facts).collect()
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
