//! The durable journal of jobs: what was started, what came of it, and what the master has stored.
//!
//! One directory, one file a job, each change one atomic and fsynced write. A job's file goes
//! `started` → `returned` → `stored`; the last one holds no answer and only remembers the id, so
//! that a job is started at most once, also by a minion that was killed and by a master that asks
//! again. What is `started` when the minion comes up was cut off: its answer is `interrupted`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::host::HostResult;
use crate::host::linux::files;

/// Return code of a job that was cut off.
pub const INTERRUPTED: i32 = 2;
/// Ids of stored jobs that are remembered.
const REMEMBERED: usize = 256;

/// Where the records lie. The real one is a directory; tests cut the power of a fake one.
pub trait Shelf: Send + Sync {
    /// Names of the records, sorted.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn names(&self) -> HostResult<Vec<String>>;
    /// One record.
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

/// Records as files of a directory, mode 0600; the directory is made with the first.
#[derive(Debug, Clone)]
pub struct Directory(pub PathBuf);

impl Shelf for Directory {
    fn names(&self) -> HostResult<Vec<String>> {
        files::list(&self.0)
    }

    fn get(&self, name: &str) -> HostResult<Option<Vec<u8>>> {
        files::read(&self.0.join(name))
    }

    fn put(&self, name: &str, content: &[u8]) -> HostResult<()> {
        if !self.0.is_dir() {
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

/// What a job came to, as it goes to the master.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// 0 done, 1 failed, 2 interrupted.
    pub retcode: i32,
    /// A run's return, or a function's value; JSON.
    pub return_json: String,
    /// Why there is no value; empty otherwise.
    pub error: String,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// Begun, no answer yet.
    Started,
    /// The answer is here, the master may not have it.
    Returned,
    /// The master has the answer.
    Stored,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    progress: Progress,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<Answer>,
}

/// Why the journal refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The disk fails.
    #[error("the journal cannot be kept: {0}")]
    Disk(String),
    /// Not an id that can name a file.
    #[error("`{0}` is no job id")]
    Id(String),
    /// It was started before: never twice.
    #[error("job {0} was started before")]
    Known(String),
}

impl From<crate::host::HostError> for JournalError {
    fn from(error: crate::host::HostError) -> Self {
        Self::Disk(error.0)
    }
}

/// The journal. Answers lie on the shelf only; memory holds ids.
pub struct Journal<S> {
    shelf: S,
    jobs: Mutex<BTreeMap<String, Progress>>,
}

impl<S: Shelf> Journal<S> {
    /// Reads what is there. Jobs that were cut off get the answer `interrupted`, durably, before
    /// anything else happens.
    ///
    /// # Errors
    /// The shelf cannot be read or written.
    pub fn open(shelf: S) -> Result<Self, JournalError> {
        let mut jobs = BTreeMap::new();
        for name in shelf.names()? {
            let Some(job) = name.strip_suffix(".json").filter(|job| is_id(job)) else {
                continue;
            };
            let content = shelf.get(&name)?.unwrap_or_default();
            let progress = match serde_json::from_slice::<Record>(&content) {
                Ok(Record {
                    progress: Progress::Started,
                    ..
                })
                | Err(_) => {
                    let answer = Answer {
                        retcode: INTERRUPTED,
                        return_json: "null".to_owned(),
                        error:
                            "interrupted: the minion or its host went down while the job ran; run it again"
                                .to_owned(),
                    };
                    put(&shelf, job, Progress::Returned, Some(answer))?;
                    Progress::Returned
                }
                Ok(record) => record.progress,
            };
            jobs.insert(job.to_owned(), progress);
        }
        Ok(Self {
            shelf,
            jobs: Mutex::new(jobs),
        })
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<String, Progress>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far a job is; `None` when it was never started here (or so long ago that it is
    /// forgotten).
    pub fn progress(&self, job: &str) -> Option<Progress> {
        self.jobs().get(job).copied()
    }

    /// Ids of the jobs that were started and have no answer yet.
    pub fn running(&self) -> Vec<String> {
        self.with(Progress::Started)
    }

    /// Ids of the jobs whose answer the master may not have.
    pub fn returned(&self) -> Vec<String> {
        self.with(Progress::Returned)
    }

    fn with(&self, wanted: Progress) -> Vec<String> {
        self.jobs()
            .iter()
            .filter(|(_, p)| **p == wanted)
            .map(|(job, _)| job.clone())
            .collect()
    }

    /// A job begins. Returns only when that is durable.
    ///
    /// # Errors
    /// It was started before, or the disk fails: then it must not be run.
    pub fn start(&self, job: &str) -> Result<(), JournalError> {
        if !is_id(job) {
            return Err(JournalError::Id(job.chars().take(80).collect()));
        }
        let mut jobs = self.jobs();
        if jobs.contains_key(job) {
            return Err(JournalError::Known(job.to_owned()));
        }
        put(&self.shelf, job, Progress::Started, None)?;
        jobs.insert(job.to_owned(), Progress::Started);
        Ok(())
    }

    /// A job has its answer. Returns only when that is durable.
    ///
    /// # Errors
    /// The disk fails.
    pub fn finish(&self, job: &str, answer: Answer) -> Result<(), JournalError> {
        let mut jobs = self.jobs();
        put(&self.shelf, job, Progress::Returned, Some(answer))?;
        jobs.insert(job.to_owned(), Progress::Returned);
        Ok(())
    }

    /// The answer of a job that has returned.
    ///
    /// # Errors
    /// The disk fails.
    pub fn answer(&self, job: &str) -> Result<Option<Answer>, JournalError> {
        let content = self.shelf.get(&file(job))?.unwrap_or_default();
        Ok(serde_json::from_slice::<Record>(&content)
            .ok()
            .and_then(|record| record.answer))
    }

    /// The master has stored the answer: only the id is kept from now on.
    ///
    /// # Errors
    /// The disk fails; nothing is lost, the answer will be handed in once more.
    pub fn stored(&self, job: &str) -> Result<(), JournalError> {
        let mut jobs = self.jobs();
        if jobs.get(job) != Some(&Progress::Returned) {
            return Ok(());
        }
        put(&self.shelf, job, Progress::Stored, None)?;
        jobs.insert(job.to_owned(), Progress::Stored);
        // Job ids begin with their time: the first are the oldest.
        let stored: Vec<String> = jobs
            .iter()
            .filter(|(_, p)| **p == Progress::Stored)
            .map(|(job, _)| job.clone())
            .collect();
        for old in stored.iter().take(stored.len().saturating_sub(REMEMBERED)) {
            self.shelf.remove(&file(old))?;
            jobs.remove(old);
        }
        Ok(())
    }
}

fn put(
    shelf: &impl Shelf,
    job: &str,
    progress: Progress,
    answer: Option<Answer>,
) -> Result<(), JournalError> {
    let content = serde_json::to_vec(&Record { progress, answer })
        .map_err(|e| JournalError::Disk(e.to_string()))?;
    Ok(shelf.put(&file(job), &content)?)
}

fn file(job: &str) -> String {
    format!("{job}.json")
}

fn is_id(job: &str) -> bool {
    (1..=128).contains(&job.len())
        && job
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && !job.starts_with('.')
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::host::HostError;
    use crate::host::effect::Meta;
    use crate::host::fake_disk::{CRASHED, Disk, Node};

    #[derive(Clone)]
    struct FakeShelf(Arc<Mutex<Disk>>);

    impl FakeShelf {
        fn new() -> Self {
            let mut disk = Disk::default();
            disk.put("/journal", Node::directory());
            Self(Arc::new(Mutex::new(disk)))
        }

        fn disk(&self) -> HostResult<MutexGuard<'_, Disk>> {
            let disk = self.0.lock().unwrap();
            if disk.crashed() {
                Err(HostError(CRASHED.into()))
            } else {
                Ok(disk)
            }
        }
    }

    impl Shelf for FakeShelf {
        fn names(&self) -> HostResult<Vec<String>> {
            Ok(self.disk()?.list("/journal"))
        }
        fn get(&self, name: &str) -> HostResult<Option<Vec<u8>>> {
            Ok(self
                .disk()?
                .read(&format!("/journal/{name}"))
                .map(<[u8]>::to_vec))
        }
        fn put(&self, name: &str, content: &[u8]) -> HostResult<()> {
            self.disk()?
                .write(&format!("/journal/{name}"), content, &Meta::default())
        }
        fn remove(&self, name: &str) -> HostResult<()> {
            self.disk()?.remove(&format!("/journal/{name}"))
        }
    }

    fn done() -> Answer {
        Answer {
            retcode: 0,
            return_json: "{\"states\":[]}".into(),
            error: String::new(),
        }
    }

    /// What the world outside saw before the power went.
    #[derive(Default, Debug)]
    struct Seen {
        ran: u32,
        acknowledged: bool,
    }

    /// A job from start to end, with the minion's order of doing things.
    fn serve(shelf: &FakeShelf, seen: &mut Seen) -> Result<(), JournalError> {
        let journal = Journal::open(shelf.clone())?;
        if journal.progress("20251120-1").is_none() {
            journal.start("20251120-1")?;
            seen.ran += 1;
            journal.finish("20251120-1", done())?;
        }
        for job in journal.returned() {
            let answer = journal.answer(&job)?.expect("a returned job has an answer");
            assert!(
                answer == done() || answer.retcode == INTERRUPTED,
                "{answer:?}"
            );
            seen.acknowledged = true;
            journal.stored(&job)?;
        }
        Ok(())
    }

    #[test]
    fn wherever_the_power_goes_a_job_runs_at_most_once_and_is_answered() {
        let mut points = 0;
        loop {
            let shelf = FakeShelf::new();
            let mut seen = Seen::default();
            shelf.0.lock().unwrap().crash_after(points);
            let first = serve(&shelf, &mut seen);
            shelf.0.lock().unwrap().reboot();
            serve(&shelf, &mut seen).unwrap();
            assert_eq!(seen.ran, 1, "cut off after {points} writes");
            assert!(
                seen.acknowledged,
                "cut off after {points} writes: the answer was lost"
            );
            let journal = Journal::open(shelf).unwrap();
            assert_eq!(journal.progress("20251120-1"), Some(Progress::Stored));
            if first.is_ok() {
                break;
            }
            points += 1;
        }
        assert_eq!(points, 18, "three atomic writes of six primitives each");
    }

    #[test]
    fn a_cut_off_job_is_interrupted_and_never_started_again() {
        let shelf = FakeShelf::new();
        Journal::open(shelf.clone()).unwrap().start("a").unwrap();
        let journal = Journal::open(shelf).unwrap();
        assert!(journal.running().is_empty());
        assert_eq!(journal.returned(), ["a"]);
        assert_eq!(journal.answer("a").unwrap().unwrap().retcode, INTERRUPTED);
        assert_eq!(journal.start("a"), Err(JournalError::Known("a".into())));
    }

    #[test]
    fn old_ids_are_forgotten_only_when_stored() {
        let journal = Journal::open(FakeShelf::new()).unwrap();
        journal.start("0000-open").unwrap();
        for number in 0..REMEMBERED + 3 {
            let job = format!("1-{number:04}");
            journal.start(&job).unwrap();
            journal.finish(&job, done()).unwrap();
            journal.stored(&job).unwrap();
        }
        assert_eq!(journal.progress("1-0002"), None);
        assert_eq!(journal.progress("1-0003"), Some(Progress::Stored));
        assert_eq!(journal.running(), ["0000-open"]);
    }

    #[test]
    fn ids_cannot_leave_the_directory() {
        let journal = Journal::open(FakeShelf::new()).unwrap();
        for bad in ["", "..", "a/b", ".hidden", "a b"] {
            assert!(
                matches!(journal.start(bad), Err(JournalError::Id(_))),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn a_real_directory_works_too() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(Directory(dir.path().to_owned())).unwrap();
        journal.start("j1").unwrap();
        journal.finish("j1", done()).unwrap();
        let again = Journal::open(Directory(dir.path().to_owned())).unwrap();
        assert_eq!(again.returned(), ["j1"]);
        assert_eq!(again.answer("j1").unwrap(), Some(done()));
    }
}
