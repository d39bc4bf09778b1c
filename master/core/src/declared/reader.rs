//! Reads the documents and the bundle.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use halite_document::Problem;
use halite_errors::chain;
use halite_manifest::Bundles;
use halite_manifest::manifest::FILE;
use halite_names::{BundleVersion, MASTER};
use halite_pillar::ca_rotation::RECORDED;
use halite_pillar::declaration::Declaration;
use halite_pillar::encryption_keys::EncryptionKeys;
use halite_pillar::load::{Texts, load};
use halite_pillar::sealed::SEALED_FILE;
use halite_pillar::validate::Context;
use halite_pillar::view::Pki;
use halite_secret_file::SecretFile;

use super::changes::{Changes, Generation};
use super::contents::{Content, Contents, Fingerprint, ReadBundle};
use super::keys::{keys_for, unusable_keys};
use super::last_valid::LastValid;
use super::slow::{LIMIT, Slow, in_background};
use super::{Snapshot, bundle};
use crate::app::App;
use crate::ca;
use crate::ca::Cas;
use crate::encryption::KeyFile;
use crate::refusal::{Refusal, RefusalKind};

/// A function that inspects each of the documents in a directory.
pub type Look = Arc<dyn Fn(&Path) -> Fingerprint + Send + Sync>;

/// The operator's documents after parsing.
pub(super) struct Documents {
    pub(super) declaration: Declaration,
    /// The keys that encrypt objects in etcd.
    pub(super) keys: Option<EncryptionKeys>,
}

/// One reading of the documents.
#[derive(Clone)]
struct Reading {
    files: Fingerprint,
    as_of: Option<Generation>,
    outcome: Result<Arc<Documents>, Refusal>,
    /// `false` if files could not be read: that may end without a change of any file.
    is_whole: bool,
}

/// The readings of one bundle.
type Readings = Arc<Slow<(), Result<Arc<ReadBundle>, Refusal>>>;

/// The last snapshot, and the generations for which it is known to be valid.
#[derive(Default)]
struct Newest {
    snapshot: Option<Arc<Snapshot>>,
    /// The version of the snapshot's CAs.
    stages: usize,
    /// The generation of the snapshot's documents.
    has: Option<Generation>,
    /// The generation of the documents that were read last, even if they were refused.
    tried: Option<Generation>,
    /// The refusal of these documents, if no valid documents are known.
    refused: Option<Refusal>,
}

/// Reads the files after each change.
pub(super) struct DeclarationReader {
    config_dir: PathBuf,
    look: Look,
    changes: Arc<Changes>,
    bundles: Bundles,
    /// The bundle of a cluster whose document does not record one.
    configured: Option<PathBuf>,
    /// The addresses of this master.
    own: Vec<IpAddr>,
    cas: Arc<Cas>,
    last_valid: LastValid,
    key_file: KeyFile,
    secret_file: SecretFile,
    documents: Slow<(), Reading>,
    /// The readings by directory. Unused ones are dropped at the next inspection of all files,
    /// because a bundle takes megabytes.
    read: Mutex<BTreeMap<PathBuf, Readings>>,
    newest: Mutex<Newest>,
}

impl DeclarationReader {
    pub(super) fn new(app: &App, look: Look) -> Self {
        let last_valid = LastValid::new(&app.config.state_dir, &app.config.config_dir);
        last_valid.make_directory();
        Self {
            config_dir: app.config.config_dir.clone(),
            look,
            changes: Arc::new(Changes::open()),
            bundles: Bundles::new(&app.config.bundles),
            configured: app.config.bundle.clone(),
            own: app.config.advertise.clone(),
            cas: Arc::clone(&app.cas),
            last_valid,
            key_file: KeyFile::new(&app.config.state_dir),
            secret_file: SecretFile::new(&app.config.config_dir, &app.config.state_dir),
            documents: Slow::default(),
            read: Mutex::default(),
            newest: Mutex::default(),
        }
    }

    pub(super) fn cas(&self) -> &Arc<Cas> {
        &self.cas
    }

    pub(super) fn key_file(&self) -> &KeyFile {
        &self.key_file
    }

    pub(super) fn secret_file(&self) -> &SecretFile {
        &self.secret_file
    }

    /// The last snapshot, whatever the files contain now.
    pub(super) fn newest(&self) -> Option<Arc<Snapshot>> {
        self.kept().snapshot.clone()
    }

    fn kept(&self) -> MutexGuard<'_, Newest> {
        // No code panics while it holds the lock.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current snapshot. Inspects each file.
    ///
    /// # Errors
    /// All problems of all documents.
    pub(super) async fn load(&self) -> Result<Arc<Snapshot>, Refusal> {
        let (documents, as_of) = self.read_documents().await?;
        let contents = self.in_use(&documents.declaration).await;
        Ok(self.keep(documents, contents, as_of))
    }

    /// The snapshot with the current documents, and with the bundle that the last inspection found.
    /// Costs one query to the kernel while no document has changed.
    ///
    /// # Errors
    /// All problems of all documents.
    pub(super) async fn current(&self) -> Result<Arc<Snapshot>, Refusal> {
        let now = self.changes.generation();
        let stages = self.cas.version();
        let is_current =
            |newest: &Newest| newest.has == now && now.is_some() && newest.stages == stages;
        if let Some(newest) = self.newest_if(is_current) {
            return Ok(newest);
        }
        let (documents, as_of) = self.read_documents().await?;
        let same = |newest: &Newest| {
            let of = newest.snapshot.as_ref().map(|newest| &newest.documents);
            newest.stages == stages && of.is_some_and(|of| Arc::ptr_eq(of, &documents))
        };
        if let Some(newest) = self.newest_if(same) {
            self.kept().has = as_of;
            return Ok(newest);
        }
        let contents = self.in_use(&documents.declaration).await;
        Ok(self.keep(documents, contents, as_of))
    }

    /// The declaration in force: like [`Reader::current`], but while the documents are refused, the
    /// last valid ones, even from before the master's start. The documents are not read again until
    /// one of them changes.
    ///
    /// # Errors
    /// All problems of all documents, if no valid documents are known.
    pub(super) async fn in_force(&self) -> Result<Arc<Snapshot>, Refusal> {
        let now = self.changes.generation();
        {
            let newest = self.kept();
            let same_stages = newest.snapshot.is_none() || newest.stages == self.cas.version();
            if newest.tried == now && now.is_some() && same_stages {
                match (&newest.snapshot, &newest.refused) {
                    (Some(snapshot), _) => return Ok(Arc::clone(snapshot)),
                    (None, Some(refused)) => return Err(refused.clone()),
                    (None, None) => {}
                }
            }
        }
        match self.current().await {
            Ok(current) => Ok(current),
            Err(refusal) => match self.newest() {
                Some(newest) => Ok(newest),
                None => self.take_last_valid(refusal).await,
            },
        }
    }

    /// Returns the snapshot of the documents that were valid before the master's start, instead of
    /// the refused documents.
    async fn take_last_valid(&self, refusal: Refusal) -> Result<Arc<Snapshot>, Refusal> {
        let last_valid = self.last_valid.clone();
        let kept = in_background(move || Ok(last_valid.declaration())).await?;
        let Some(declaration) = kept else {
            // Files that could not be read may be readable without a change.
            let is_final = refusal.kind == RefusalKind::Invalid;
            self.kept().refused = Some(refusal.clone()).filter(|_| is_final);
            return Err(refusal);
        };
        tracing::warn!(
            problems = refusal.message,
            "the documents are not valid; the last valid ones are used"
        );
        let contents = self.in_use(&declaration).await;
        let documents = self.with_keys(declaration).await?;
        let stages = self.cas.version();
        let snapshot = self.snapshot(documents, contents);
        let mut newest = self.kept();
        if newest.snapshot.is_none() || newest.stages != stages {
            newest.stages = stages;
            newest.snapshot = Some(Arc::clone(&snapshot));
        }
        Ok(newest.snapshot.clone().unwrap_or(snapshot))
    }

    fn newest_if(&self, holds: impl FnOnce(&Newest) -> bool) -> Option<Arc<Snapshot>> {
        let newest = self.kept();
        let wanted = holds(&newest);
        newest.snapshot.clone().filter(|_| wanted)
    }

    /// Stores a reading as the newest snapshot.
    fn keep(
        &self,
        documents: Arc<Documents>,
        contents: Contents,
        as_of: Option<Generation>,
    ) -> Arc<Snapshot> {
        let stages = self.cas.version();
        let mut newest = self.kept();
        let same_stages = newest.stages == stages;
        let same = newest.snapshot.clone().filter(|newest| {
            same_stages
                && Arc::ptr_eq(&newest.documents, &documents)
                && newest.contents.are(&contents)
        });
        newest.has = as_of;
        newest.refused = None;
        if let Some(same) = same {
            return same;
        }
        let snapshot = self.snapshot(documents, contents);
        newest.stages = stages;
        newest.snapshot = Some(Arc::clone(&snapshot));
        snapshot
    }

    fn snapshot(&self, documents: Arc<Documents>, contents: Contents) -> Arc<Snapshot> {
        let mut pki = public_halves(&self.cas);
        pki.encryption = documents.keys.as_ref().map(EncryptionKeys::names);
        Arc::new(Snapshot {
            documents,
            contents,
            bundles: self.bundles.clone(),
            pki,
            cas: Arc::clone(&self.cas),
            own: self.own.clone(),
        })
    }

    /// Builds the snapshot of a declaration that is not on disk, with the bundles that it uses.
    ///
    /// # Errors
    /// The file of the encryption keys cannot be used.
    pub(super) async fn of(&self, declaration: Declaration) -> Result<Arc<Snapshot>, Refusal> {
        let contents = self.contents(&declaration).await;
        let documents = self.with_keys(declaration).await?;
        Ok(self.snapshot(documents, contents))
    }

    /// A declaration with the present keys.
    async fn with_keys(&self, declaration: Declaration) -> Result<Arc<Documents>, Refusal> {
        let file = self.key_file.clone();
        let keys = in_background(move || file.read().map_err(|error| unusable_keys(&error)));
        let keys = keys.await?;
        Ok(Arc::new(Documents { declaration, keys }))
    }

    /// The documents, and a generation that is not newer than them.
    async fn read_documents(&self) -> Result<(Arc<Documents>, Option<Generation>), Refusal> {
        // Query this before inspecting the files, so that later changes belong to a later
        // generation.
        let as_of = self.changes.generation();
        {
            let mut newest = self.kept();
            if newest.tried != as_of {
                // This refusal belongs to other documents.
                newest.refused = None;
            }
            newest.tried = as_of;
        }
        Ok((self.read_files(as_of).await?, as_of))
    }

    async fn read_files(&self, as_of: Option<Generation>) -> Result<Arc<Documents>, Refusal> {
        let directory = self.config_dir.clone();
        let (look, changes) = (Arc::clone(&self.look), Arc::clone(&self.changes));
        let (last_valid, key_file) = (self.last_valid.clone(), self.key_file.clone());
        let secret_file = self.secret_file.clone();
        let read = move |before: Option<Reading>| {
            changes.watch(&directories(&directory));
            let mut files = look(&directory);
            changes.found(files.iter().map(|(path, _)| path.as_path()));
            files.extend(fingerprint(vec![
                key_file.path().to_owned(),
                secret_file.identity_path(),
            ]));
            // If a file is written twice in one tick of the kernel's clock, time and size can stay
            // the same.
            let same = |read: &Reading| {
                read.is_whole && read.files == files && (as_of.is_none() || read.as_of == as_of)
            };
            if let Some(before) = before.filter(same) {
                return before;
            }
            let refused = |problems: Vec<Problem>| Refusal::from_problems(&problems);
            let texts = Texts::from_dir(&directory).map_err(refused);
            let texts = texts.and_then(|mut texts| {
                let opened = secret_file.open_in(&mut texts);
                opened.map_err(|error| Refusal::invalid(chain(&error)))?;
                Ok(texts)
            });
            let is_whole = texts.is_ok();
            let outcome = texts.and_then(|texts| {
                // The documents were checked against host and bundle when they were written; a
                // bundle that has changed since must not make a running cluster unmanageable.
                let declaration = load(&texts, &Context::default()).map_err(refused)?;
                let keys = keys_for(&declaration, &key_file, &last_valid)
                    .map_err(|error| unusable_keys(&error))?;
                last_valid.store(&texts);
                Ok(Arc::new(Documents { declaration, keys }))
            });
            Reading {
                files,
                as_of,
                outcome,
                is_whole,
            }
        };
        let hung = || does_not_answer("the documents", &self.config_dir);
        self.documents.read((), read, hung).await?.outcome
    }

    /// The bundles of the current documents. Unused bundles are dropped.
    async fn in_use(&self, declaration: &Declaration) -> Contents {
        let contents = self.contents(declaration).await;
        let used: BTreeSet<PathBuf> = (declaration.bundles_in_use().into_iter())
            .map(|version| self.bundles.path(version))
            .chain(self.cluster_directory(declaration))
            .collect();
        self.readings()
            .retain(|directory, _| used.contains(directory));
        contents
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn bundles_in_memory(&self) -> usize {
        self.readings().len()
    }

    async fn contents(&self, declaration: &Declaration) -> Contents {
        let cluster = match self.cluster_directory(declaration) {
            Ok(directory) => self.read_bundle(directory).await,
            Err(refusal) => Err(refusal),
        };
        let of_cluster = declaration.bundle_for(MASTER);
        let mut others = BTreeMap::new();
        for version in declaration.bundles_in_use() {
            if Some(version) != of_cluster {
                let bundle = self.bundle(version).await;
                others.insert(version.clone(), Content::new(&self.config_dir, bundle));
            }
        }
        Contents {
            cluster: Content::new(&self.config_dir, cluster),
            others,
        }
    }

    fn cluster_directory(&self, declaration: &Declaration) -> Result<PathBuf, Refusal> {
        let configured = self.configured.as_deref();
        bundle::directory(&declaration.cluster, &self.bundles, configured)
    }

    /// A bundle of the site.
    ///
    /// # Errors
    /// The bundle is missing or damaged, or its disk does not answer.
    pub(super) async fn bundle(&self, version: &BundleVersion) -> Result<Arc<ReadBundle>, Refusal> {
        self.read_bundle(self.bundles.path(version)).await
    }

    fn readings(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Readings>> {
        // No code panics while it holds the lock.
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read_bundle(&self, directory: PathBuf) -> Result<Arc<ReadBundle>, Refusal> {
        let bundles = self.bundles.clone();
        let configured = self.configured.clone();
        let place = directory.clone();
        let read = move |before: Option<Result<Arc<ReadBundle>, Refusal>>| {
            let mut manifests = bundles.manifests();
            manifests.extend(configured.map(|bundle| bundle.join(FILE)));
            let files = fingerprint(manifests);
            // An unreadable bundle may become readable without a change of any file.
            if let Some(Ok(before)) = before
                && before.files == files
            {
                return Ok(before);
            }
            let (in_use, tree) = bundle::read(&place, &bundles)?;
            Ok(Arc::new(ReadBundle {
                files,
                in_use,
                tree: Arc::new(tree),
            }))
        };
        let hung = || does_not_answer("the bundle", &directory);
        let readings = Arc::clone(self.readings().entry(directory.clone()).or_default());
        readings.read((), read, hung).await?
    }
}

fn does_not_answer(what: &str, place: &Path) -> Refusal {
    Refusal::conflict(format!(
        "cannot read {what} in {}: the file system has not answered for {} s; `findmnt -T {0}` shows what is mounted there",
        place.display(),
        LIMIT.as_secs()
    ))
}

/// The directories of the documents; the first one contains the others.
fn directories(directory: &Path) -> [PathBuf; 3] {
    let below = |name| directory.join(name);
    [directory.to_owned(), below("nodes"), below("custom")]
}

/// Inspects each of the documents in a directory.
pub fn look(directory: &Path) -> Fingerprint {
    let mut files = vec![
        directory.join("cluster.yaml"),
        directory.join("custom/pillar.yaml"),
        directory.join(SEALED_FILE),
    ];
    let nodes = std::fs::read_dir(directory.join("nodes"));
    let nodes = nodes.into_iter().flatten().flatten();
    let mut nodes: Vec<PathBuf> = nodes.map(|entry| entry.path()).collect();
    nodes.sort();
    files.append(&mut nodes);
    fingerprint(files)
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
    let signer = |name: &&str| Some(((*name).to_owned(), cas.two(name)?[0].to_owned()));
    let stages = RECORDED.map(|name| (name, cas.stage_number(name)));
    let stages = stages.into_iter();
    Pki {
        certificates: ca::NAMES.iter().filter_map(certificate).collect(),
        signers: ca::NAMES.iter().filter_map(signer).collect(),
        service_account: Some(cas.sa_public_pem().to_owned()),
        stages: stages.collect(),
        encryption: None,
    }
}
