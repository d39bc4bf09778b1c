//! The durable journal of jobs: the started ones, their answers, and the answers that the master
//! has stored.
//!
//! One directory, one file for each job, each change one atomic and fsynced write. A job's record
//! goes `started` → `returned` → `stored`; the last one has no answer and only retains the id, so
//! that a job is started at most once, even if the minion is killed or the master sends the job
//! again. A job that is `started` when the minion comes up was interrupted: that becomes its
//! answer.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use halite_proto::ids::JobId;
use serde::{Deserialize, Serialize};

use crate::host::linux::files;
use crate::host::{HostError, HostResult};

/// Return code of an interrupted job.
pub const INTERRUPTED: i32 = 2;
/// Number of stored jobs whose ids are remembered.
pub const REMEMBERED: usize = 256;
/// Initial capacity for jobs that have not ended, or whose answers the master has not stored.
const UNSTORED: usize = 64;

/// Storage for small named records: a directory, or in tests a disk that loses power.
pub trait RecordStore: Send + Sync {
    /// Names of all records, sorted.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn names(&self) -> HostResult<Vec<String>>;
    /// Reads a record; `None` if it does not exist.
    ///
    /// # Errors
    /// It cannot be read.
    fn get(&self, name: &str) -> HostResult<Option<Vec<u8>>>;
    /// Writes a record atomically and durably.
    ///
    /// # Errors
    /// It cannot be written.
    fn put(&self, name: &str, content: &[u8]) -> HostResult<()>;
    /// Removes a record.
    ///
    /// # Errors
    /// It cannot be removed.
    fn remove(&self, name: &str) -> HostResult<()>;
}

/// Records as files of a directory, mode 0600. The first write makes the directory.
#[derive(Debug, Clone)]
pub struct Directory(pub PathBuf);

impl RecordStore for Directory {
    fn names(&self) -> HostResult<Vec<String>> {
        files::utf8_names(&self.0)
    }

    fn get(&self, name: &str) -> HostResult<Option<Vec<u8>>> {
        files::read(&self.0.join(name))
    }

    fn put(&self, name: &str, content: &[u8]) -> HostResult<()> {
        if files::stat(&self.0)?.is_none() {
            files::mkdir_private(&self.0)?;
        }
        let owner = files::Owner {
            mode: Some(0o600),
            ..files::Owner::default()
        };
        files::write(&self.0.join(name), content, owner)
    }

    fn remove(&self, name: &str) -> HostResult<()> {
        files::remove(&self.0.join(name))
    }
}

/// The outcome of a job, in the form that the master receives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAnswer {
    /// 0 done, 1 failed, 2 interrupted.
    pub retcode: i32,
    /// A run's return, or a function's value; JSON.
    pub return_json: String,
    /// The reason for a missing value; empty otherwise.
    pub error: String,
}

/// Progress of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// Started, no answer yet.
    Started,
    /// Answered; the master may not have the answer.
    Returned,
    /// The master has the answer.
    Stored,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    progress: Progress,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<JobAnswer>,
}

/// The journal cannot record a job.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk fails.
    #[error("cannot keep the journal")]
    Disk(#[from] HostError),
    /// A record cannot be written as JSON.
    #[error("cannot encode a record of the journal")]
    Encode(#[from] serde_json::Error),
    /// It was started before, and must not be started twice.
    #[error("job {0} was started before")]
    Known(JobId),
}

/// The journal. Answers are in the store only; memory has the ids.
pub struct Journal<S> {
    store: S,
    jobs: Mutex<KnownJobs>,
}

/// The jobs in the order of their ids, in one allocation that is older than they are: an allocation
/// that a job leaves at the end of the heap would keep all memory below it from being returned.
struct KnownJobs(Vec<(JobId, Progress)>);

impl KnownJobs {
    fn new() -> Self {
        Self(Vec::with_capacity(REMEMBERED + UNSTORED))
    }

    fn place(&self, job: &JobId) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(job))
    }

    fn get(&self, job: &JobId) -> Option<Progress> {
        self.place(job).ok().map(|at| self.0[at].1)
    }

    fn insert(&mut self, job: JobId, progress: Progress) {
        match self.place(&job) {
            Ok(at) => self.0[at].1 = progress,
            Err(at) => self.0.insert(at, (job, progress)),
        }
    }

    fn with(&self, progress: Progress) -> Vec<JobId> {
        let found = self.0.iter().filter(|(_, own)| *own == progress);
        found.map(|(job, _)| job.clone()).collect()
    }
}

impl<S: RecordStore> Journal<S> {
    /// Reads the records. Interrupted jobs get the answer `interrupted`, durably, before anything
    /// else happens.
    ///
    /// # Errors
    /// The store cannot be read or written.
    pub fn open(store: S) -> Result<Self, JournalError> {
        let mut jobs = KnownJobs::new();
        for name in store.names()? {
            let Some(Ok(job)) = name.strip_suffix(".json").map(str::parse::<JobId>) else {
                continue;
            };
            let content = store.get(&name)?.unwrap_or_default();
            let progress = match serde_json::from_slice::<Record>(&content) {
                Ok(Record {
                    progress: Progress::Started,
                    ..
                })
                | Err(_) => {
                    let answer = JobAnswer {
                        retcode: INTERRUPTED,
                        return_json: "null".to_owned(),
                        error:
                            "interrupted: the minion or its host went down while the job ran; run it again"
                                .to_owned(),
                    };
                    put(&store, &job, Progress::Returned, Some(answer))?;
                    Progress::Returned
                }
                Ok(record) => record.progress,
            };
            jobs.insert(job, progress);
        }
        Ok(Self {
            store,
            jobs: Mutex::new(jobs),
        })
    }

    fn jobs(&self) -> MutexGuard<'_, KnownJobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Progress of a job; `None` if it was never started here, or so long ago that the journal has
    /// forgotten it.
    pub fn progress(&self, job: &JobId) -> Option<Progress> {
        self.jobs().get(job)
    }

    /// Ids of the jobs that were started and have no answer yet.
    pub fn running(&self) -> Vec<JobId> {
        self.jobs().with(Progress::Started)
    }

    /// Ids of the jobs whose answer the master may not have.
    pub fn returned(&self) -> Vec<JobId> {
        self.jobs().with(Progress::Returned)
    }

    /// Records that a job starts. Returns only when that is durable.
    ///
    /// # Errors
    /// It was started before, or the disk fails: then it must not be run.
    pub fn start(&self, job: &JobId) -> Result<(), JournalError> {
        let mut jobs = self.jobs();
        if jobs.get(job).is_some() {
            return Err(JournalError::Known(job.clone()));
        }
        put(&self.store, job, Progress::Started, None)?;
        jobs.insert(job.clone(), Progress::Started);
        Ok(())
    }

    /// Records a job's answer. Returns only when that is durable.
    ///
    /// # Errors
    /// The disk fails.
    pub fn finish(&self, job: &JobId, answer: JobAnswer) -> Result<(), JournalError> {
        let mut jobs = self.jobs();
        put(&self.store, job, Progress::Returned, Some(answer))?;
        jobs.insert(job.clone(), Progress::Returned);
        Ok(())
    }

    /// The answer of a returned job.
    ///
    /// # Errors
    /// The disk fails.
    pub fn answer(&self, job: &JobId) -> Result<Option<JobAnswer>, JournalError> {
        let content = self.store.get(&file(job))?.unwrap_or_default();
        Ok(serde_json::from_slice::<Record>(&content)
            .ok()
            .and_then(|record| record.answer))
    }

    /// Records that the master has stored the answer: from then on only the id is retained.
    ///
    /// # Errors
    /// The disk fails; nothing is lost, the minion resends the answer.
    pub fn stored(&self, job: &JobId) -> Result<(), JournalError> {
        let mut jobs = self.jobs();
        if jobs.get(job) != Some(Progress::Returned) {
            return Ok(());
        }
        put(&self.store, job, Progress::Stored, None)?;
        jobs.insert(job.clone(), Progress::Stored);
        // Job ids start with their time: the first are the oldest.
        let stored = jobs.with(Progress::Stored);
        for old in stored.iter().take(stored.len().saturating_sub(REMEMBERED)) {
            self.store.remove(&file(old))?;
            jobs.0.retain(|(job, _)| job != old);
        }
        Ok(())
    }
}

fn put(
    store: &impl RecordStore,
    job: &JobId,
    progress: Progress,
    answer: Option<JobAnswer>,
) -> Result<(), JournalError> {
    let content = serde_json::to_vec(&Record { progress, answer })?;
    Ok(store.put(&file(job), &content)?)
}

fn file(job: &JobId) -> String {
    format!("{job}.json")
}
