//! The scheduled defragmentation on a whole master with members in memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use halite_core::clock::{Clock as _, ManualClock};
use halite_core::names::minion;
use halite_etcd::fake::{Database, FakeCluster, QUOTA};
use halite_fleet::jobs::NewJob;
use halite_fleet::jobs::job_id::JobIds;
use halite_proto::ids::JobId;
use halite_proto::v1;
use halite_states::shipped::DEFRAG_ETCD;
use halite_store::{AuditFilter, Job, JobStatus, Millis, Run};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::defragmentation::{Defragmentation, LOOK, SETTLE};
use super::history::OPERATOR;
use super::trials::AGAIN;
use crate::backend::fixture::{Life, Site};

const TREE: [(&str, &str); 3] = [
    ("top.sls", "base:\n  '*':\n    - a\n"),
    ("a.sls", "other:\n  test.succeed_with_changes: []\n"),
    (
        "halite/orchestrate/defrag_etcd.sls",
        include_str!("../../../states/tree/halite/orchestrate/defrag_etcd.sls"),
    ),
];
const MEMBERS: [&str; 3] = ["bootstrap-1", "cp-2", "cp-3"];
/// The seconds after which a run stops waiting.
const LIMIT: u64 = 3;
const HOUR: Millis = 60 * 60 * 1000;
const DAY: Millis = 24 * HOUR;

fn millis(text: &str) -> Millis {
    text.parse::<Timestamp>().unwrap().as_millisecond()
}

/// A database of which this percentage is free.
fn database(size: u64, free: u64) -> Database {
    Database {
        size,
        in_use: size / 100 * (100 - free),
        data: 1 << 20,
    }
}

/// A job that has ended.
fn ended(job_id: JobId, at: Millis) -> Job {
    Job {
        job_id,
        function: "test.ping".to_owned(),
        args_json: "{}".to_owned(),
        test: false,
        operator: "root".to_owned(),
        target: "worker-1".to_owned(),
        minions: Vec::new(),
        order: Vec::new(),
        created: at,
        deadline: None,
        steady_deadline: None,
        request_id: None,
        status: JobStatus::Finished,
        retcode: Some(0),
        finished: Some(at),
        bundle: None,
    }
}

struct World {
    life: Life,
    clock: Arc<ManualClock>,
    upkeep: Defragmentation,
}

impl World {
    fn new(site: &Site, clock: &Arc<ManualClock>) -> Self {
        let life = site.live_at(Arc::clone(clock) as Arc<_>);
        let (jobs, orchestrator) = (life.backend.jobs(), life.backend.orchestrator());
        let upkeep = Defragmentation::with(
            Arc::clone(jobs),
            Arc::clone(orchestrator),
            TimeZone::UTC,
            LIMIT,
        );
        Self {
            life,
            clock: Arc::clone(clock),
            upkeep,
        }
    }

    /// One check; returns the time until the next.
    fn step(&self) -> Millis {
        let next = self.life.runtime.block_on(self.upkeep.step()).unwrap();
        next - self.clock.now()
    }

    /// Makes an operator's run.
    fn operate(&self) {
        let request = v1::OrchestrateRequest {
            sls: DEFRAG_ETCD.to_owned(),
            ..Default::default()
        };
        let stream = self.life.backend.orchestrate("root", request);
        let stream = self.life.runtime.block_on(stream).unwrap();
        self.life.collect(stream);
    }

    /// Runs and jobs of operators that were made an hour ago and have ended.
    fn records(&self, runs: usize, jobs: usize) {
        let (store, then) = (&self.life.store, self.clock.now() - HOUR);
        let job_ids = JobIds::after(None);
        self.life.runtime.block_on(async {
            let own = store.runs(1).await.unwrap().remove(0);
            for _ in 0..runs {
                let run = Run {
                    id: job_ids.next(then),
                    sls: "halite.orchestrate.cordon_node".to_owned(),
                    operator: "root".to_owned(),
                    request_id: None,
                    created: then,
                    changed: then,
                    ..own.clone()
                };
                store.create_run(&run, &[]).await.unwrap();
            }
            for _ in 0..jobs {
                store
                    .create_job(&ended(job_ids.next(then), then), &[])
                    .await
                    .unwrap();
            }
        });
    }

    /// The master's own runs, oldest first.
    fn runs(&self) -> Vec<Run> {
        let runs = self.life.runtime.block_on(self.life.store.runs(50));
        let mut own = runs.unwrap();
        own.retain(|run| run.operator == OPERATOR);
        own.reverse();
        own
    }

    /// The audit log, oldest first.
    fn audit(&self) -> Vec<String> {
        let filter = AuditFilter::newest(50);
        let lines = self.life.store.audit(&filter);
        let lines = self.life.runtime.block_on(lines).unwrap().into_iter().rev();
        let own = lines.filter(|line| line.method == "upkeep");
        own.map(|line| line.outcome).collect()
    }

    fn findings(&self) -> Vec<String> {
        let status = self.life.runtime.block_on(self.life.backend.status());
        let status = status.unwrap();
        let mut checks = status.health.checks.into_iter();
        let own = checks.find(|check| check.name == "etcd-defrag");
        let findings = own.unwrap().findings.into_iter();
        findings.map(|finding| finding.message).collect()
    }
}

fn site(cluster: &Arc<FakeCluster>) -> Site {
    let mut site = Site::new(&TREE);
    site.etcd = Some((cluster.clone(), Duration::ZERO));
    site
}

#[test]
fn databases_are_defragmented_once_at_the_declared_time() {
    let cluster = Arc::new(FakeCluster::new(&MEMBERS));
    let clock = Arc::new(ManualClock::at(millis("2026-11-28T12:00:00Z")));
    let site = site(&cluster);
    let world = World::new(&site, &clock);
    clock.advance(SETTLE);
    world.operate();
    cluster.set_database("bootstrap-1", database(100 << 20, 60));
    cluster.set_database("cp-2", database(100 << 20, 46));
    cluster.set_database("cp-3", database(100 << 20, 45));
    assert_eq!(world.step(), LOOK, "the last Sunday is before the cluster");
    assert!(cluster.changes().is_empty());
    clock.advance(DAY);
    assert_eq!(world.step(), 0);
    // The leader is last, and a database with at most 45 % free is left out.
    let changes = ["defragment cp-2", "defragment bootstrap-1"];
    assert_eq!(cluster.changes(), changes);
    cluster.set_database("cp-2", database(100 << 20, 90));
    clock.advance(DAY);
    assert_eq!(world.step(), LOOK);
    world.life.kill();

    let world = World::new(&site, &clock);
    clock.advance(SETTLE);
    assert_eq!(world.step(), LOOK, "not again after a restart");
    assert_eq!(cluster.changes(), changes);
    assert_eq!(world.audit(), ["begins", "ok"]);
    world.life.kill();
}

/// A site with more runs and jobs than a list of the newest holds.
#[test]
fn other_runs_and_jobs_decide_nothing_however_many_they_are() {
    let cluster = Arc::new(FakeCluster::new(&MEMBERS));
    let clock = Arc::new(ManualClock::at(millis("2026-11-28T12:00:00Z")));
    let site = site(&cluster);
    let world = World::new(&site, &clock);
    world.operate();
    world.records(0, 1);
    clock.advance(DAY);
    cluster.set_database("cp-2", database(100 << 20, 90));
    assert_eq!(world.step(), 0);
    clock.advance(2 * HOUR);
    world.records(60, 0);
    world.life.kill();

    cluster.set_database("cp-2", database(100 << 20, 90));
    let world = World::new(&site, &clock);
    clock.advance(SETTLE);
    assert_eq!(world.step(), LOOK, "not again after a restart");
    assert_eq!(cluster.changes(), ["defragment cp-2"]);
    clock.advance(7 * DAY);
    world.records(60, 210);
    assert_eq!(world.step(), 0, "the next time is not missed");
    assert_eq!(cluster.changes(), ["defragment cp-2", "defragment cp-2"]);
    assert_eq!(world.audit(), ["begins", "ok", "begins", "ok"]);
    world.life.kill();
}

#[test]
fn a_time_at_which_the_master_was_off_is_made_up_for() {
    let cluster = Arc::new(FakeCluster::new(&MEMBERS));
    let clock = Arc::new(ManualClock::at(millis("2026-11-28T12:00:00Z")));
    let site = site(&cluster);
    let world = World::new(&site, &clock);
    world.operate();
    world.life.kill();
    clock.advance(3 * DAY);
    cluster.set_database("cp-2", database(100 << 20, 90));
    cluster.stop("cp-3");
    let world = World::new(&site, &clock);
    assert_eq!(world.step(), LOOK, "hosts have time to come back");
    clock.advance(SETTLE);
    let job = NewJob {
        function: "state.highstate".to_owned(),
        operator: "root".to_owned(),
        minions: vec![minion("worker-1")],
        ..NewJob::default()
    };
    world.life.accept("worker-1");
    let job_id = world
        .life
        .runtime
        .block_on(world.life.backend.jobs().create(job));
    let job_id = job_id.unwrap();
    assert_eq!(world.step(), LOOK, "other work ends first");
    let cancelled = world.life.backend.jobs().cancel(&job_id, "root", false);
    world.life.runtime.block_on(cancelled).unwrap();
    // A member is away: the trial fails, and is reported.
    assert_eq!(world.step(), 0);
    assert_eq!(world.step(), LOOK);
    let found = world.findings();
    assert!(found[0].contains("waited 3 s"), "{found:?}");
    assert!(cluster.changes().is_empty());
    cluster.start(&halite_etcd::fake::host("cp-3"));
    clock.advance(AGAIN - 1);
    assert_eq!(world.step(), LOOK);
    clock.advance(1);
    assert_eq!(world.step(), 0);
    assert_eq!(cluster.changes(), ["defragment cp-2"]);
    world.step();
    assert_eq!(world.findings(), [""; 0]);
    world.life.kill();
}

/// A site whose cluster document has this `etcd`.
fn declared(cluster: &Arc<FakeCluster>, etcd: &str) -> Site {
    let site = site(cluster);
    let path = site.path().join("etc/cluster.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}etcd: {etcd}\n")).unwrap();
    site
}

#[test]
fn with_never_an_operator_defragments() {
    for (etcd, runs) in [
        ("{defrag: {at: never}}", 0),
        ("{defrag: {at: \"03:30\"}}", 1),
    ] {
        let cluster = Arc::new(FakeCluster::new(&MEMBERS));
        let clock = Arc::new(ManualClock::at(millis("2026-11-28T12:00:00Z")));
        let site = declared(&cluster, etcd);
        let world = World::new(&site, &clock);
        world.operate();
        clock.advance(14 * DAY);
        cluster.set_database("cp-2", database(100 << 20, 90));
        world.step();
        assert_eq!(world.runs().len(), runs, "{etcd}");
        world.life.kill();
    }
}

#[test]
fn without_a_quorum_or_at_the_quota_nothing_begins() {
    let cluster = Arc::new(FakeCluster::new(&MEMBERS));
    let clock = Arc::new(ManualClock::at(millis("2026-11-28T12:00:00Z")));
    let site = site(&cluster);
    let world = World::new(&site, &clock);
    world.operate();
    clock.advance(DAY);
    cluster.set_database("cp-2", database(100 << 20, 90));
    cluster.stop("cp-2");
    cluster.stop("cp-3");
    assert_eq!(world.step(), LOOK);
    for name in ["cp-2", "cp-3"] {
        cluster.start(&halite_etcd::fake::host(name));
    }
    cluster.set_database("cp-3", database(QUOTA + (1 << 20), 1));
    assert_eq!(world.step(), LOOK);
    assert!(world.runs().is_empty());
    // Space is freed.
    world.operate();
    assert_eq!(world.step(), 0);
    assert_eq!(world.runs().len(), 1);
    assert_eq!(cluster.changes().last().unwrap(), "defragment cp-2");
    world.life.kill();
}

#[test]
fn an_external_etcd_is_not_touched() {
    let cluster = Arc::new(FakeCluster::new(&MEMBERS));
    let clock = Arc::new(ManualClock::at(millis("2026-11-28T12:00:00Z")));
    let site = site(&cluster);
    let declared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pillar/tests/good/external-etcd");
    let etc = site.path().join("etc");
    std::fs::remove_dir_all(etc.join("nodes")).unwrap();
    std::fs::create_dir(etc.join("nodes")).unwrap();
    std::fs::copy(declared.join("cluster.yaml"), etc.join("cluster.yaml")).unwrap();
    for node in std::fs::read_dir(declared.join("nodes")).unwrap() {
        let node = node.unwrap();
        std::fs::copy(node.path(), etc.join("nodes").join(node.file_name())).unwrap();
    }
    let world = World::new(&site, &clock);
    world.operate();
    clock.advance(DAY);
    cluster.set_database("cp-2", database(100 << 20, 90));
    assert_eq!(world.step(), LOOK);
    assert!(world.runs().is_empty() && cluster.changes().is_empty());
    world.life.kill();
}
