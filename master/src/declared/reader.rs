//! Reads documents and bundle.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use halite_manifest::Bundles;
use halite_manifest::manifest::FILE;
use halite_names::{BundleVersion, MASTER};
use halite_pillar::declaration::Declaration;
use halite_pillar::load::{Texts, load};
use halite_pillar::validate::Context;
use halite_pillar::view::Pki;

use super::changes::{Changes, Generation};
use super::contents::{Content, Contents, Fingerprint, ReadBundle};
use super::slow::{LIMIT, Slow};
use super::{Snapshot, bundle};
use crate::app::App;
use crate::ca;
use crate::ca::Cas;
use crate::refusal::Refusal;

/// A look at each of the documents in a directory.
pub(crate) type Look = Arc<dyn Fn(&Path) -> Fingerprint + Send + Sync>;

/// The operator's documents as they were read.
pub(super) struct Documents {
    files: Fingerprint,
    as_of: Option<Generation>,
    pub(super) declaration: Declaration,
}

/// The readings of one bundle.
type Readings = Arc<Slow<(), Result<Arc<ReadBundle>, Refusal>>>;

/// The last snapshot, and the moments of which it is known to be true.
#[derive(Default)]
struct Newest {
    snapshot: Option<Arc<Snapshot>>,
    /// The generation whose documents it has.
    has: Option<Generation>,
    /// The generation whose documents were read last, even if they were refused.
    tried: Option<Generation>,
}

/// Reads the files when they have changed.
pub(super) struct Reader {
    config_dir: PathBuf,
    look: Look,
    changes: Arc<Changes>,
    bundles: Bundles,
    /// The bundle of a cluster whose document records none.
    configured: Option<PathBuf>,
    /// The addresses of this master.
    own: Vec<IpAddr>,
    cas: Arc<Cas>,
    documents: Slow<(), Result<Arc<Documents>, Refusal>>,
    /// By directory. Those that are not in use any more are dropped with the next look at all
    /// files: a bundle takes megabytes.
    read: Mutex<BTreeMap<PathBuf, Readings>>,
    newest: Mutex<Newest>,
}

impl Reader {
    pub(super) fn new(app: &App, look: Look) -> Self {
        Self {
            config_dir: app.config.config_dir.clone(),
            look,
            changes: Arc::new(Changes::new()),
            bundles: Bundles::new(&app.config.bundles),
            configured: app.config.bundle.clone(),
            own: app.config.advertise.clone(),
            cas: Arc::clone(&app.cas),
            documents: Slow::default(),
            read: Mutex::default(),
            newest: Mutex::default(),
        }
    }

    /// The last snapshot that was read, whatever the files contain now.
    pub(super) fn newest(&self) -> Option<Arc<Snapshot>> {
        self.kept().snapshot.clone()
    }

    fn kept(&self) -> MutexGuard<'_, Newest> {
        // Nothing panics while holding the lock.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present snapshot. Looks at each file.
    ///
    /// # Errors
    /// All problems of all documents.
    pub(super) async fn load(&self) -> Result<Arc<Snapshot>, Refusal> {
        let (documents, as_of) = self.read_documents().await?;
        let contents = self.in_use(&documents.declaration).await;
        Ok(self.keep(documents, contents, as_of))
    }

    /// The snapshot with the present documents, and with the bundle as it was when it was last
    /// looked at. Costs one question to the kernel while no document has changed.
    ///
    /// # Errors
    /// All problems of all documents.
    pub(super) async fn current(&self) -> Result<Arc<Snapshot>, Refusal> {
        let now = self.changes.generation();
        if let Some(newest) = self.newest_if(|newest| newest.has == now && now.is_some()) {
            return Ok(newest);
        }
        let (documents, as_of) = self.read_documents().await?;
        let same = |newest: &Newest| {
            let of = newest.snapshot.as_ref().map(|newest| &newest.documents);
            of.is_some_and(|of| Arc::ptr_eq(of, &documents))
        };
        if let Some(newest) = self.newest_if(same) {
            self.kept().has = as_of;
            return Ok(newest);
        }
        let contents = self.in_use(&documents.declaration).await;
        Ok(self.keep(documents, contents, as_of))
    }

    /// As [`Reader::current`]; while documents are refused, the last snapshot, for which they are
    /// not read again until one of them changes.
    ///
    /// # Errors
    /// All problems of all documents, of which none could be read so far.
    pub(super) async fn current_or_newest(&self) -> Result<Arc<Snapshot>, Refusal> {
        let now = self.changes.generation();
        if let Some(newest) = self.newest_if(|newest| newest.tried == now && now.is_some()) {
            return Ok(newest);
        }
        match self.current().await {
            Ok(current) => Ok(current),
            Err(refusal) => self.newest().ok_or(refusal),
        }
    }

    fn newest_if(&self, holds: impl FnOnce(&Newest) -> bool) -> Option<Arc<Snapshot>> {
        let newest = self.kept();
        let wanted = holds(&newest);
        newest.snapshot.clone().filter(|_| wanted)
    }

    /// Keeps what was read as the newest snapshot.
    fn keep(
        &self,
        documents: Arc<Documents>,
        contents: Contents,
        as_of: Option<Generation>,
    ) -> Arc<Snapshot> {
        let mut newest = self.kept();
        let same = newest.snapshot.clone().filter(|newest| {
            Arc::ptr_eq(&newest.documents, &documents) && newest.contents.are(&contents)
        });
        newest.has = as_of;
        if let Some(same) = same {
            return same;
        }
        let snapshot = self.snapshot(documents, contents);
        newest.snapshot = Some(Arc::clone(&snapshot));
        snapshot
    }

    fn snapshot(&self, documents: Arc<Documents>, contents: Contents) -> Arc<Snapshot> {
        Arc::new(Snapshot {
            documents,
            contents,
            bundles: self.bundles.clone(),
            pki: public_halves(&self.cas),
            cas: Arc::clone(&self.cas),
            own: self.own.clone(),
        })
    }

    /// A snapshot of another declaration than the one on disk, with the bundles that it uses.
    pub(super) async fn of(&self, declaration: Declaration) -> Arc<Snapshot> {
        let contents = self.contents(&declaration).await;
        let documents = Documents {
            files: Fingerprint::new(),
            as_of: None,
            declaration,
        };
        self.snapshot(Arc::new(documents), contents)
    }

    /// The documents, and a generation that they are not older than.
    async fn read_documents(&self) -> Result<(Arc<Documents>, Option<Generation>), Refusal> {
        // Before the look at the files: what changes from now on is of a later one.
        let as_of = self.changes.generation();
        self.kept().tried = as_of;
        Ok((self.read_files(as_of).await?, as_of))
    }

    async fn read_files(&self, as_of: Option<Generation>) -> Result<Arc<Documents>, Refusal> {
        let directory = self.config_dir.clone();
        let (look, changes) = (Arc::clone(&self.look), Arc::clone(&self.changes));
        let read = move |before: Option<Result<Arc<Documents>, Refusal>>| {
            changes.watch(&directories(&directory));
            let files = look(&directory);
            changes.found(files.iter().map(|(path, _)| path.as_path()));
            // Time and size are those of before, too, when a file is written twice in one tick of
            // the kernel's clock.
            let same =
                |read: &Documents| read.files == files && (as_of.is_none() || read.as_of == as_of);
            if let Some(Ok(before)) = before
                && same(&before)
            {
                return Ok(before);
            }
            let texts = Texts::from_dir(&directory)
                .map_err(|problems| Refusal::from_problems(&problems))?;
            // The documents were checked against host and bundle when they were written; a bundle
            // that has changed since must not make a running cluster unmanageable.
            let declaration = load(&texts, &Context::default())
                .map_err(|problems| Refusal::from_problems(&problems))?;
            Ok(Arc::new(Documents {
                files,
                as_of,
                declaration,
            }))
        };
        let hung = || does_not_answer("the documents", &self.config_dir);
        self.documents.read((), read, hung).await?
    }

    /// The bundles of the present documents. What is no more in use is dropped.
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

    #[cfg(test)]
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

    /// One of the site's bundles.
    ///
    /// # Errors
    /// It is missing or damaged, or its disk does not answer.
    pub(super) async fn bundle(&self, version: &BundleVersion) -> Result<Arc<ReadBundle>, Refusal> {
        self.read_bundle(self.bundles.path(version)).await
    }

    fn readings(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Readings>> {
        // Nothing panics while holding the lock.
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
            // One that could not be read may return without a change of any file.
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

/// The directories of the documents, the one with the others in it first.
fn directories(directory: &Path) -> [PathBuf; 3] {
    let below = |name| directory.join(name);
    [directory.to_owned(), below("nodes"), below("custom")]
}

/// Looks at each of the documents in a directory.
pub(crate) fn look(directory: &Path) -> Fingerprint {
    let mut files = vec![
        directory.join("cluster.yaml"),
        directory.join("custom/pillar.yaml"),
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
    Pki {
        certificates: ca::NAMES.iter().filter_map(certificate).collect(),
        service_account: Some(cas.sa_public_pem().to_owned()),
    }
}
