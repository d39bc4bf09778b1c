//! Ordered jobs and orchestration steps that ask the members of etcd.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use halite_etcd::fake::{Database, FakeCluster, QUOTA, host};
use halite_etcd::{
    Alarm, Keys, Member, MemberHost, MemberId, Members, MembersFuture, Snapshot, Status,
};
use halite_proto::v1;
use serde_json::{Value, json};

use super::fixture::{Journal, Life, ScriptedMinion, Site};

pub(super) const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  'bootstrap-1':\n    - one\n"),
    (
        "one.sls",
        "one:\n  file.managed:\n    - name: /one\n    - contents: x\n",
    ),
    (
        "orchestrate/gate.sls",
        "only:\n  halite.lock:\n    - lock: etcd-members\n\
         gate:\n  halite.etcd_quorum_allows:\n    - node: bootstrap-1\n    - timeout: 0\n    - require: [{halite: only}]\n",
    ),
    (
        "orchestrate/leave.sls",
        "leave:\n  halite.etcd_remove:\n    - node: {{ pillar.node }}\n    - dead: {{ pillar.dead }}\n    - timeout: 20\n",
    ),
    (
        "orchestrate/join.sls",
        "join:\n  halite.etcd_add_learner:\n    - node: {{ pillar.node }}\n    - timeout: 20\n\
         vote:\n  halite.etcd_promote:\n    - node: {{ pillar.node }}\n    - timeout: 20\n    - require: [{halite: join}]\n",
    ),
    (
        "halite/orchestrate/defrag_etcd.sls",
        include_str!("../../../states/tree/halite/orchestrate/defrag_etcd.sls"),
    ),
    (
        "halite/orchestrate/recover_etcd.sls",
        include_str!("../../../states/tree/halite/orchestrate/recover_etcd.sls"),
    ),
    (
        "halite/base/etcd/init.sls",
        "etcd:\n  file.managed:\n    - name: /etcd\n    - contents: x\n",
    ),
    (
        "halite/base/etcd/alone.sls",
        "alone:\n  file.managed:\n    - name: /alone\n    - contents: x\n",
    ),
];

/// A member's database with free pages.
fn loose(size: u64) -> Database {
    Database {
        size,
        in_use: size / 2,
        data: 1 << 20,
    }
}

/// Members, one of which recovers after it has been asked about three times.
struct Recovering {
    cluster: FakeCluster,
    asked: AtomicUsize,
    /// The states that the host had applied at each question.
    journal: Arc<Mutex<Journal>>,
    applied: Mutex<Vec<usize>>,
}

impl Members for Recovering {
    fn list(&self) -> MembersFuture<'_, Vec<Member>> {
        let applied = self.journal.lock().unwrap().applied.len();
        self.applied.lock().unwrap().push(applied);
        if self.asked.fetch_add(1, Ordering::SeqCst) == 2 {
            self.cluster.start(&host("cp-2"));
        }
        self.cluster.list()
    }
    fn known(&self) -> MembersFuture<'_, Vec<Member>> {
        self.cluster.known()
    }
    fn status<'a>(&'a self, member: &'a Member) -> MembersFuture<'a, Status> {
        self.cluster.status(member)
    }
    fn alarms(&self) -> MembersFuture<'_, Vec<Alarm>> {
        self.cluster.alarms()
    }
    fn add_learner<'a>(&'a self, peer_url: &'a str) -> MembersFuture<'a, ()> {
        self.cluster.add_learner(peer_url)
    }
    fn promote(&self, id: MemberId) -> MembersFuture<'_, ()> {
        self.cluster.promote(id)
    }
    fn remove(&self, id: MemberId) -> MembersFuture<'_, ()> {
        self.cluster.remove(id)
    }
    fn move_leader<'a>(&'a self, leader: &'a Member, to: MemberId) -> MembersFuture<'a, ()> {
        self.cluster.move_leader(leader, to)
    }
    fn compact(&self, revision: i64) -> MembersFuture<'_, ()> {
        self.cluster.compact(revision)
    }
    fn defragment<'a>(&'a self, member: &'a Member) -> MembersFuture<'a, ()> {
        self.cluster.defragment(member)
    }
    fn disarm(&self, alarm: Alarm) -> MembersFuture<'_, ()> {
        self.cluster.disarm(alarm)
    }
    fn keys<'a>(&'a self, member: &'a Member, revision: i64) -> MembersFuture<'a, Keys> {
        self.cluster.keys(member, revision)
    }
    fn snapshot<'a>(&'a self, member: &'a Member) -> MembersFuture<'a, Snapshot> {
        self.cluster.snapshot(member)
    }
}

/// Three members, `bootstrap-1` first; the second does not run.
pub(super) fn degraded() -> FakeCluster {
    let cluster = FakeCluster::new(&["bootstrap-1", "cp-2", "cp-3"]);
    cluster.stop("cp-2");
    cluster
}

pub(super) fn last(events: &[v1::Event]) -> (i32, String) {
    let last = events.last().unwrap();
    (last.retcode, last.data_json.clone())
}

pub(super) fn orchestrate(life: &Life, sls: &str, pillar: &Value) -> (i32, String) {
    let request = v1::OrchestrateRequest {
        sls: sls.into(),
        pillar_json: pillar.to_string(),
        ..Default::default()
    };
    let stream = life
        .runtime
        .block_on(life.backend.orchestrate("root", request));
    last(&life.collect(stream.unwrap()))
}

#[test]
fn an_ordered_job_waits_until_etcd_can_miss_its_host() {
    let mut site = Site::new(TREE);
    let first = ScriptedMinion::new("bootstrap-1");
    let members = Arc::new(Recovering {
        cluster: degraded(),
        asked: AtomicUsize::new(0),
        journal: Arc::clone(&first.journal),
        applied: Mutex::default(),
    });
    site.etcd = Some((members.clone(), Duration::from_secs(60)));
    let life = site.live();
    life.connect(&first);
    let (retcode, data) = last(&life.run("state.highstate", "", json!({}), false));
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(first.journal.lock().unwrap().applied, ["one"]);
    // Nothing was sent before the third answer.
    assert_eq!(*members.applied.lock().unwrap(), [0, 0, 0]);
}

#[test]
fn a_host_that_etcd_cannot_miss_stops_an_ordered_job() {
    let mut site = Site::new(TREE);
    site.etcd = Some((Arc::new(degraded()), Duration::ZERO));
    let life = site.live();
    let first = ScriptedMinion::new("bootstrap-1");
    life.connect(&first);
    let events = life.run("state.highstate", "", json!({}), false);
    let (retcode, data) = last(&events);
    assert_eq!(retcode, 1, "{data}");
    let text = "cannot continue with bootstrap-1: 2 of 3 voting members of etcd serve";
    assert!(
        events.iter().any(|event| event.data_json.contains(text)),
        "{data}"
    );
    assert!(first.journal.lock().unwrap().applied.is_empty());
    // A test run changes nothing, so it asks nothing.
    let (retcode, data) = last(&life.run("state.highstate", "", json!({}), true));
    assert_eq!(retcode, 0, "{data}");
}

#[test]
fn steps_ask_and_change_the_members_and_only_one_run_holds_the_lock() {
    let mut site = Site::new(TREE);
    let cluster = Arc::new(degraded());
    site.etcd = Some((cluster.clone(), Duration::ZERO));
    let life = site.live();
    let (retcode, data) = orchestrate(&life, "orchestrate.gate", &json!({}));
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("cannot continue with bootstrap-1: 2 of 3"),
        "{data}"
    );

    let remove = |dead: bool| {
        let pillar = json!({"node": "cp-2", "dead": dead});
        orchestrate(&life, "orchestrate.leave", &pillar)
    };
    let (retcode, data) = remove(false);
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("if its host is gone for good, remove it as dead"),
        "{data}"
    );
    let (retcode, data) = remove(true);
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(cluster.changes(), ["remove cp-2"]);

    let overview = |life: &Life| {
        let request = v1::ShowRequest {
            what: "etcd".into(),
            ..v1::ShowRequest::default()
        };
        let shown = life.runtime.block_on(life.backend.show(request)).unwrap();
        halite_api::from_text::<halite_api::EtcdStatus>(&shown.json).unwrap()
    };
    let shown = overview(&life);
    assert_eq!(shown.quorum.as_deref(), Some("2 members, none may fail"));
    assert_eq!(shown.members[0].role, halite_api::EtcdMemberRole::Leader);
    assert_eq!(shown.problems, [""; 0]);

    // The failed run's lock is free; two members need no gate.
    let (retcode, data) = orchestrate(&life, "orchestrate.gate", &json!({}));
    assert_eq!(retcode, 0, "{data}");
    assert!(data.contains("fewer than three members"), "{data}");

    // Only a host with the role becomes a member.
    let (retcode, data) = orchestrate(&life, "orchestrate.join", &json!({"node": "worker-1"}));
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("worker-1 does not have the role etcd"),
        "{data}"
    );
}

#[test]
fn a_declared_host_becomes_a_learner_with_its_flags_recorded_and_gets_its_vote() {
    let mut site = Site::new(TREE);
    let cluster = Arc::new(FakeCluster::new(&["cp-9"]));
    site.etcd = Some((cluster.clone(), Duration::ZERO));
    let life = site.live();
    // Its addresses are recorded when it connects.
    life.connect(&ScriptedMinion::new("bootstrap-1"));
    let host = MemberHost {
        name: "bootstrap-1".to_owned(),
        peer_url: "https://10.10.0.11:2380".to_owned(),
    };
    let run = std::thread::scope(|scope| {
        // The host starts its etcd when the document says how.
        let document = site.path().join("etc/nodes/bootstrap-1.yaml");
        let cluster = &cluster;
        scope.spawn(move || {
            while !std::fs::read_to_string(&document)
                .unwrap()
                .contains("initialCluster")
            {
                std::thread::yield_now();
            }
            cluster.start(&host);
            cluster.tick();
        });
        orchestrate(&life, "orchestrate.join", &json!({"node": "bootstrap-1"}))
    });
    assert_eq!(run.0, 0, "{}", run.1);
    assert_eq!(
        cluster.changes(),
        ["add https://10.10.0.11:2380", "promote bootstrap-1"]
    );
    let text = std::fs::read_to_string(site.path().join("etc/nodes/bootstrap-1.yaml")).unwrap();
    assert!(
        text.contains("cp-9=https://cp-9:2380,bootstrap-1=https://10.10.0.11:2380"),
        "{text}"
    );
    // The ids by which the host recognises data that are not its own.
    let members = life.runtime.block_on(cluster.list()).unwrap();
    let joined = members
        .iter()
        .find(|own| own.name == "bootstrap-1")
        .unwrap();
    let ids = format!("    clusterId: \"1\"\n    memberId: \"{}\"\n", joined.id);
    assert!(text.contains(&ids), "no {ids} in:\n{text}");
}

/// Without a control plane beside it, only this record says that the API servers may use the
/// member.
#[test]
fn the_vote_of_a_host_of_etcd_alone_is_recorded() {
    let mut site = Site::new(TREE);
    let file = site.path().join("etc/cluster.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let section = "etcd: {placement: dedicated, mode: host-service}\n";
    std::fs::write(&file, format!("{text}{section}")).unwrap();
    let document = site.path().join("etc/nodes/worker-1.yaml");
    let text = std::fs::read_to_string(&document).unwrap();
    std::fs::write(&document, text.replace("worker]", "etcd]")).unwrap();
    let cluster = Arc::new(FakeCluster::new(&["bootstrap-1"]));
    site.etcd = Some((cluster.clone(), Duration::ZERO));
    let life = site.live();
    life.connect(&ScriptedMinion::new("worker-1"));
    let host = MemberHost {
        name: "worker-1".to_owned(),
        peer_url: "https://10.10.1.12:2380".to_owned(),
    };
    let read = || std::fs::read_to_string(&document).unwrap();
    let run = std::thread::scope(|scope| {
        let (cluster, read) = (&cluster, &read);
        scope.spawn(move || {
            while !read().contains("initialCluster") {
                std::thread::yield_now();
            }
            assert!(!read().contains("joined"), "{}", read());
            cluster.start(&host);
            cluster.tick();
        });
        orchestrate(&life, "orchestrate.join", &json!({"node": "worker-1"}))
    });
    assert_eq!(run.0, 0, "{}", run.1);
    assert!(read().contains("  joined: true\n"), "{}", read());
}

#[test]
fn free_pages_are_given_back_and_a_reached_quota_is_resolved() {
    const SLS: &str = "halite.orchestrate.defrag_etcd";
    let mut site = Site::new(TREE);
    let cluster = Arc::new(FakeCluster::new(&["bootstrap-1", "cp-2"]));
    site.etcd = Some((cluster.clone(), Duration::ZERO));
    let life = site.live();
    for name in ["bootstrap-1", "cp-2"] {
        cluster.set_database(name, loose(100 << 20));
    }
    let (retcode, data) = orchestrate(&life, SLS, &json!({"member": "cp-2"}));
    assert_eq!(retcode, 0, "{data}");
    assert!(data.contains("cp-2: 100 MiB → 50 MiB"), "{data}");
    assert_eq!(cluster.changes(), ["defragment cp-2"]);
    let (retcode, data) = orchestrate(&life, SLS, &json!({"member": "cp-9"}));
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("it is not a member of etcd; the members are bootstrap-1, cp-2"),
        "{data}"
    );
    let (retcode, data) = orchestrate(&life, SLS, &json!({}));
    assert_eq!(retcode, 0, "{data}");
    let (retcode, data) = orchestrate(&life, SLS, &json!({}));
    assert_eq!(retcode, 0, "{data}");
    assert!(data.contains("nothing is free"), "{data}");

    cluster.set_database("cp-2", loose(QUOTA + (1 << 20)));
    let (retcode, data) = orchestrate(&life, SLS, &json!({}));
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(
        cluster.changes()[1..],
        [
            "defragment bootstrap-1",
            "compact",
            "defragment cp-2",
            "disarm cp-2"
        ]
    );
}

#[test]
fn a_cluster_of_one_is_made_only_without_a_quorum() {
    const SLS: &str = "halite.orchestrate.recover_etcd";
    let pillar = json!({"node": "bootstrap-1", "force": true, "cluster": "test"});
    let mut site = Site::new(TREE);
    site.etcd = Some((Arc::new(degraded()), Duration::ZERO));
    let life = site.live();
    let first = ScriptedMinion::new("bootstrap-1");
    life.connect(&first);
    for (pillar, reason) in [
        (pillar.clone(), "etcd has a quorum"),
        (
            json!({"node": "bootstrap-1", "force": true, "cluster": "prod"}),
            "--cluster prod is not this cluster, which is test",
        ),
        (
            json!({"node": "bootstrap-1"}),
            "it takes --force --cluster test",
        ),
    ] {
        let (retcode, data) = orchestrate(&life, SLS, &pillar);
        assert_eq!(retcode, 1, "{data}");
        assert!(data.contains(reason), "{data}");
    }
    assert!(first.journal.lock().unwrap().applied.is_empty());
    life.kill();

    // Already alone after an interrupted run: the flag is removed.
    site.etcd = Some((Arc::new(FakeCluster::new(&["bootstrap-1"])), Duration::ZERO));
    let life = site.live();
    life.connect(&first);
    let (retcode, data) = orchestrate(&life, SLS, &pillar);
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(first.journal.lock().unwrap().applied, ["alone", "etcd"]);
    assert!(data.contains("bootstrap-1 is alone already"), "{data}");
}
