//! The journal on a disk that loses power: a job runs at most once and is always answered.

use std::sync::{Arc, Mutex, MutexGuard};

use halite_minion::host::effect::Meta;
use halite_minion::host::{HostError, HostResult};
use halite_minion::journal::{
    Directory, INTERRUPTED, JobAnswer, Journal, JournalError, Progress, REMEMBERED, RecordStore,
};
use halite_minion_fake::disk::{CRASHED, Disk, Node};
use halite_proto::ids::JobId;

#[derive(Clone)]
struct FakeStore(Arc<Mutex<Disk>>);

impl FakeStore {
    fn new() -> Self {
        let mut disk = Disk::default();
        disk.put("/journal", Node::directory());
        Self(Arc::new(Mutex::new(disk)))
    }

    fn disk(&self) -> HostResult<MutexGuard<'_, Disk>> {
        let disk = self.0.lock().unwrap();
        if disk.crashed() {
            Err(HostError::refused(CRASHED))
        } else {
            Ok(disk)
        }
    }
}

impl RecordStore for FakeStore {
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

fn id(number: u64) -> JobId {
    JobId::from_number(number)
}

fn done() -> JobAnswer {
    JobAnswer {
        retcode: 0,
        return_json: "{\"states\":[]}".into(),
        error: String::new(),
    }
}

/// The effects that were visible from outside before the power failed.
#[derive(Default, Debug)]
struct Seen {
    ran: u32,
    acknowledged: bool,
}

/// Runs a job from start to end, in the minion's order.
fn serve(store: &FakeStore, seen: &mut Seen) -> Result<(), JournalError> {
    let journal = Journal::open(store.clone())?;
    if journal.progress(&id(1)).is_none() {
        journal.start(&id(1))?;
        seen.ran += 1;
        journal.finish(&id(1), done())?;
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
fn a_job_runs_at_most_once_and_is_answered_after_a_power_cut_at_any_write() {
    let mut points = 0;
    loop {
        let store = FakeStore::new();
        let mut seen = Seen::default();
        store.0.lock().unwrap().crash_after(points);
        let first = serve(&store, &mut seen);
        store.0.lock().unwrap().reboot();
        serve(&store, &mut seen).unwrap();
        assert_eq!(seen.ran, 1, "power cut after {points} writes");
        assert!(
            seen.acknowledged,
            "power cut after {points} writes: the answer was lost"
        );
        let journal = Journal::open(store).unwrap();
        assert_eq!(journal.progress(&id(1)), Some(Progress::Stored));
        if first.is_ok() {
            break;
        }
        points += 1;
    }
    assert_eq!(points, 18, "three atomic writes of six primitives each");
}

#[test]
fn an_interrupted_job_is_answered_and_never_started_again() {
    let store = FakeStore::new();
    Journal::open(store.clone()).unwrap().start(&id(1)).unwrap();
    let journal = Journal::open(store).unwrap();
    assert!(journal.running().is_empty());
    assert_eq!(journal.returned(), [id(1)]);
    assert_eq!(
        journal.answer(&id(1)).unwrap().unwrap().retcode,
        INTERRUPTED
    );
    assert!(matches!(journal.start(&id(1)), Err(JournalError::Known(job)) if job == id(1)));
}

#[test]
fn old_ids_are_forgotten_only_when_stored() {
    let journal = Journal::open(FakeStore::new()).unwrap();
    journal.start(&id(0)).unwrap();
    for number in 1..REMEMBERED as u64 + 4 {
        let job = id(number);
        journal.start(&job).unwrap();
        journal.finish(&job, done()).unwrap();
        journal.stored(&job).unwrap();
    }
    assert_eq!(journal.progress(&id(3)), None);
    assert_eq!(journal.progress(&id(4)), Some(Progress::Stored));
    assert_eq!(journal.running(), [id(0)]);
}

#[test]
fn a_file_not_named_by_a_job_id_is_not_a_record() {
    let store = FakeStore::new();
    for name in [".json", "1.json", "a.json", "00000000000000000001"] {
        store.put(name, b"{}").unwrap();
    }
    let journal = Journal::open(store).unwrap();
    assert!(journal.returned().is_empty() && journal.running().is_empty());
}

#[test]
fn a_real_directory_works_too() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(Directory(dir.path().to_owned())).unwrap();
    journal.start(&id(1)).unwrap();
    journal.finish(&id(1), done()).unwrap();
    let again = Journal::open(Directory(dir.path().to_owned())).unwrap();
    assert_eq!(again.returned(), [id(1)]);
    assert_eq!(again.answer(&id(1)).unwrap(), Some(done()));
}
