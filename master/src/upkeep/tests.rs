//! The upkeep on a whole master with scripted minions.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use halite_core::clock::ManualClock;
use halite_core::names::minion;
use halite_fleet::jobs::NewJob;
use halite_fleet::jobs::function::RENEW;
use halite_proto::ids::MinionId;
use halite_store::{AuditFilter, Job, Millis};
use serde_json::json;

use super::history::{self, OPERATOR};
use super::schedule::{AGAIN, BUSY, LOOK, RenewalBatch, SETTLE, SETTLING, SOON};
use super::{Next, Upkeep};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

/// The start of the CAs' validity in the fixture.
const NOW: Millis = 1_800_000_000_000;
const YEAR: i64 = 365 * 24 * 60 * 60;
const SERVER: &str = "/etc/kubernetes/pki/etcd/server.crt";
const CLIENT: &str = "/etc/kubernetes/admin.conf";

const TREE: [(&str, &str); 2] = [
    ("top.sls", "base:\n  '*':\n    - a\n"),
    (
        "a.sls",
        "other:\n  test.succeed_with_changes: []\ncertificate:\n  x509.certificate:\n    - name: /etc/a.crt\n    - ca: kubernetes\n    - common_name: a\n    - require:\n        - test: other\n",
    ),
];

/// A host with one certificate.
#[derive(Clone)]
struct Host {
    minion: ScriptedMinion,
    /// Its end, in seconds.
    ends: Arc<AtomicI64>,
}

impl Host {
    fn new(name: &str, path: &'static str, left: i64) -> Self {
        let ends = Arc::new(AtomicI64::new(NOW / 1000 + left));
        let own = Arc::clone(&ends);
        let minion = ScriptedMinion::new(name).on(move |job| {
            if job.function == "state.apply" {
                own.store(NOW / 1000 + YEAR, Ordering::SeqCst);
            }
            let ends = own.load(Ordering::SeqCst);
            (job.function == "halite.health").then(
                || json!({"certificates": [{"path": path, "begins": NOW / 1000, "ends": ends}]}),
            )
        });
        Self { minion, ends }
    }

    /// A host whose states fail, and whose certificate stays.
    fn failing(name: &str, path: &'static str, left: i64) -> Self {
        let host = Self::new(name, path, left);
        let (ends, own) = (host.ends.load(Ordering::SeqCst), Arc::clone(&host.ends));
        let script = Arc::clone(&host.minion.host);
        let minion = host.minion.on(move |job| {
            let answer = script(job);
            own.store(ends, Ordering::SeqCst);
            answer
        });
        let failing = "certificate".to_owned();
        minion.journal.lock().unwrap().failing.insert(failing);
        Self {
            minion,
            ends: host.ends,
        }
    }

    fn applied(&self) -> Vec<String> {
        self.minion.journal.lock().unwrap().applied.clone()
    }
}

struct World {
    life: Life,
    clock: Arc<ManualClock>,
    upkeep: Upkeep,
}

fn world(site: &Site) -> World {
    world_at(site, Arc::new(ManualClock::at(NOW)))
}

fn world_at(site: &Site, clock: Arc<ManualClock>) -> World {
    let life = site.live_at(Arc::clone(&clock) as Arc<_>);
    let upkeep = Upkeep::with_random(Arc::clone(life.backend.jobs()), Box::new(|_| 0));
    World {
        life,
        clock,
        upkeep,
    }
}

impl World {
    fn step(&self) -> Next {
        self.life.runtime.block_on(self.upkeep.step()).unwrap()
    }

    /// The trials, oldest first.
    fn trials(&self) -> Vec<Job> {
        let jobs = self.life.runtime.block_on(self.life.store.jobs(50));
        let own = jobs.unwrap().into_iter().rev();
        own.filter(|job| job.operator == OPERATOR).collect()
    }

    /// The outcomes in the audit log, oldest first.
    fn outcomes(&self) -> Vec<String> {
        let filter = AuditFilter::newest(50);
        let lines = self.life.store.audit(&filter);
        let lines = self.life.runtime.block_on(lines).unwrap();
        let own = lines
            .into_iter()
            .rev()
            .filter(|line| line.method == "upkeep");
        own.map(|line| line.outcome).collect()
    }

    fn findings(&self) -> Vec<String> {
        let status = self.life.runtime.block_on(self.life.backend.status());
        let status = status.unwrap();
        let mut checks = status.health.checks.into_iter();
        let own = checks.find(|check| check.name == "certificates-renewed");
        let findings = own.unwrap().findings.into_iter();
        findings.map(|finding| finding.message).collect()
    }
}

fn names(list: &[&str]) -> Vec<MinionId> {
    list.iter().map(|name| minion(name)).collect()
}

#[test]
fn certificates_are_renewed_before_they_end_and_nothing_else_is_applied() {
    let site = Site::new(&TREE);
    let world = world(&site);
    let first = Host::new("bootstrap-1", SERVER, YEAR / 4);
    let worker = Host::new("worker-1", CLIENT, YEAR / 5);
    for host in [&first, &worker] {
        world.life.connect(&host.minion);
    }
    assert_eq!(world.step(), Next::Look);
    assert_eq!((first.applied().len(), worker.applied().len()), (1, 0));
    assert_eq!(world.step(), Next::Look);
    assert_eq!(world.step(), Next::LookAt(NOW + LOOK));
    for host in [&first, &worker] {
        assert_eq!(host.applied(), ["certificate"]);
        assert_eq!(host.ends.load(Ordering::SeqCst), NOW / 1000 + YEAR);
    }
    let trials = world.trials();
    let orders: Vec<_> = trials.iter().map(|job| job.order.clone()).collect();
    assert_eq!(orders, [vec![names(&["bootstrap-1"])], vec![]]);
    assert!(trials.iter().all(|job| job.function == RENEW));
    assert_eq!(world.outcomes(), ["begins", "ok", "begins", "ok"]);
    assert_eq!(world.findings(), [""; 0]);
    world.life.kill();
}

#[test]
fn a_trial_that_failed_is_reported_and_made_again_later() {
    for (left, pause) in [(YEAR / 5, AGAIN), (-9, SOON)] {
        let site = Site::new(&TREE);
        let world = world(&site);
        let first = Host::new("bootstrap-1", SERVER, YEAR);
        let worker = Host::failing("worker-1", CLIENT, left);
        for host in [&first, &worker] {
            world.life.connect(&host.minion);
        }
        assert_eq!(world.step(), Next::Look);
        assert_eq!(world.step(), Next::LookAt(NOW + BUSY));
        world.clock.advance(pause - BUSY / 2);
        assert_eq!(world.step(), Next::LookAt(NOW + pause), "not before");
        let found = world.findings();
        let [text] = found.as_slice() else {
            panic!("{found:?}");
        };
        let wanted = "renewal failed: worker-1: certificate (x509.certificate, a): it broke; next attempt 2027-01-15T";
        assert!(text.contains(wanted), "{text}");
        assert_eq!(world.outcomes().len(), 2);
        world.clock.advance(BUSY / 2);
        worker.minion.journal.lock().unwrap().failing.clear();
        assert_eq!(world.step(), Next::Look);
        assert_eq!(worker.applied(), ["certificate"; 2]);
        // Its age is unchanged, although its states succeeded.
        world.step();
        assert!(world.findings()[0].contains("the certificate is unchanged"));
        assert_eq!(world.outcomes().last().unwrap(), "ok");
        world.life.kill();
    }
}

#[test]
fn a_job_that_cannot_be_made_is_a_trial_that_failed() {
    let site = Site::new(&[("top.sls", "base:\n  '*':\n    - missing\n")]);
    let world = world(&site);
    let first = Host::new("bootstrap-1", SERVER, YEAR / 5);
    world.life.connect(&first.minion);
    world
        .life
        .connect(&Host::new("worker-1", CLIENT, YEAR).minion);
    assert_eq!(world.step(), Next::Look);
    assert_eq!(world.step(), Next::LookAt(NOW + BUSY));
    assert!(world.findings()[0].contains("nothing was sent"));
    assert!(world.trials().is_empty());
    let outcomes = world.outcomes();
    assert!(outcomes[1].starts_with("refused: "), "{outcomes:?}");
    world.life.kill();
}

#[test]
fn with_report_an_operator_renews() {
    let site = Site::new(&TREE);
    let path = site.path().join("etc/cluster.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}certificates: {{renew: report}}\n")).unwrap();
    let world = world(&site);
    let first = Host::new("bootstrap-1", SERVER, -5);
    world.life.connect(&first.minion);
    world
        .life
        .connect(&Host::new("worker-1", CLIENT, YEAR).minion);
    assert_eq!(world.step(), Next::LookAt(NOW + BUSY));
    assert!(first.applied().is_empty() && world.trials().is_empty());
    let found = world.findings();
    assert!(
        found[0].contains("`certificates.renew` is `report`"),
        "{found:?}"
    );
    assert!(world.outcomes().is_empty());
    // The operator has renewed it; it is reported at most until the next check.
    first.ends.store(NOW / 1000 + YEAR, Ordering::SeqCst);
    assert_eq!(world.step(), Next::LookAt(NOW + LOOK));
    assert_eq!(world.findings(), [""; 0]);
    world.life.kill();
}

#[test]
fn other_work_ends_first() {
    let site = Site::new(&TREE);
    let world = world(&site);
    let first = Host::new("bootstrap-1", SERVER, YEAR / 5);
    world.life.connect(&first.minion);
    world.life.accept("worker-1");
    let job = NewJob {
        function: "state.highstate".to_owned(),
        operator: "root".to_owned(),
        minions: names(&["worker-1"]),
        ..NewJob::default()
    };
    let job_id = world
        .life
        .runtime
        .block_on(world.life.backend.jobs().create(job));
    let job_id = job_id.unwrap();
    assert_eq!(world.step(), Next::LookAt(NOW + BUSY));
    let found = world.findings();
    let wanted = format!("their renewal waits: job {job_id} (state.highstate) has not ended");
    assert!(found[0].ends_with(&wanted), "{found:?}");
    assert!(world.trials().is_empty() && world.outcomes().is_empty());
    world.life.kill();
}

/// Hosts come back one after the other when all were off.
#[test]
fn after_a_start_the_master_waits_a_while_for_absent_hosts() {
    let site = Site::new(&TREE);
    let world = world(&site);
    let first = Host::new("bootstrap-1", SERVER, -1);
    world.life.connect(&first.minion);
    world.life.accept("worker-1");
    assert_eq!(world.step(), Next::LookAt(NOW + SETTLING));
    world.clock.advance(SETTLE);
    assert_eq!(world.step(), Next::Look);
    assert_eq!(first.applied(), ["certificate"]);
    let trials = world.trials();
    assert!(trials[0].order.is_empty(), "no member could be asked");
    assert_eq!(world.step(), Next::LookAt(NOW + SETTLE + SOON));
    world.life.kill();
}

#[test]
fn a_killed_master_continues_what_it_started() {
    let site = Site::new(&TREE);
    let clock = Arc::new(ManualClock::at(NOW));
    let before = world_at(&site, Arc::clone(&clock));
    before.life.accept("worker-1");
    let trial = RenewalBatch {
        hosts: names(&["worker-1"]),
        order: Vec::new(),
    };
    let job_id = before.life.backend.jobs().next_job_id();
    let begun = before
        .life
        .runtime
        .block_on(before.upkeep.begin(&job_id, &trial));
    assert!(begun.unwrap());
    assert_eq!(before.step(), Next::LookAt(NOW + SOON), "the host is away");
    drop(before.upkeep);
    before.life.kill();

    let world = world_at(&site, clock);
    let first = Host::new("bootstrap-1", SERVER, YEAR);
    let worker = Host::new("worker-1", CLIENT, YEAR / 5);
    world.life.connect(&first.minion);
    world.life.connect(&worker.minion);
    let ended = world.life.backend.jobs().wait(&job_id);
    world.life.runtime.block_on(ended).unwrap();
    assert_eq!(world.step(), Next::LookAt(NOW + LOOK));
    assert_eq!(world.step(), Next::LookAt(NOW + LOOK));
    assert_eq!(worker.applied(), ["certificate"], "once");
    assert_eq!(world.trials().len(), 1);
    assert_eq!(world.outcomes(), ["begins", "ok"]);
    world.life.kill();
}

/// A record that a trial starts, and no job: the master was killed in between.
#[test]
fn a_trial_of_which_only_the_beginning_was_recorded_is_made() {
    let site = Site::new(&TREE);
    let world = world(&site);
    let worker = Host::new("worker-1", CLIENT, YEAR / 5);
    world
        .life
        .connect(&Host::new("bootstrap-1", SERVER, YEAR).minion);
    world.life.connect(&worker.minion);
    let job_id = world.life.backend.jobs().next_job_id();
    let hosts = names(&["worker-1"]);
    let line = history::begins(&world.life.app, &job_id, &hosts);
    world.life.runtime.block_on(line).unwrap();
    assert_eq!(world.step(), Next::Look);
    world.step();
    assert_eq!(worker.applied(), ["certificate"]);
    assert_eq!(world.outcomes(), ["begins", "begins", "ok"]);
    world.life.kill();
}
