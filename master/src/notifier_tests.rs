//! Notifications over a whole master, with real servers on loopback.

use std::sync::atomic::{AtomicBool, Ordering};

use halite_api::{CheckResult, CheckState, Health, HealthFinding};
use halite_core::clock::{Clock as _, ManualClock};
use halite_secret_file::SecretFile;
use halite_testkit::{CannedAnswer, Server};

use super::*;
use crate::backend::contract::check_document;
use crate::backend::fixture::{CANARY, Life, Site};

const NOW: i64 = 1_800_000_000_000;
const MINUTE: i64 = 60_000;
/// The limit of an answer where a sink hangs; the others answer within it on a busy machine.
const SHORT: Duration = Duration::from_secs(15);

/// A site that declares these sinks.
fn site(sinks: &str) -> Site {
    let site = Site::new(&[("top.sls", "base:\n  '*': []\n")]);
    let path = site.path().join("etc/cluster.yaml");
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str(&format!("notify:\n  sinks:\n{sinks}"));
    std::fs::write(path, text).unwrap();
    site
}

/// The findings of the issue: an overdue backup, an ending certificate, a stopped containerd and a
/// node without a pod network.
fn found(names: &[&str]) -> Health {
    let check = |name: &&str| {
        let (state, host, message) = match *name {
            "backup" => (
                CheckState::Failure,
                None,
                "the last backup is of 2027-01-01",
            ),
            "certificates-ending" => (
                CheckState::Warning,
                Some("worker-1"),
                "a certificate on worker-1 ends in 20 days: /a.crt",
            ),
            "nodes" => (
                CheckState::Failure,
                Some("worker-1"),
                "worker-1 is not Ready",
            ),
            _ => (
                CheckState::Failure,
                Some("worker-1"),
                "a new pod on worker-1 gets no network",
            ),
        };
        CheckResult {
            name: (*name).to_owned(),
            title: format!("{name} is sound"),
            state,
            findings: vec![HealthFinding {
                message: message.to_owned(),
                host: host.map(str::to_owned),
                remedy: None,
            }],
        }
    };
    Health {
        healthy: names.is_empty(),
        checks: names.iter().map(check).collect(),
    }
}

/// A notifier without its endless loop.
struct Bench {
    life: Life,
    clock: Arc<ManualClock>,
    notifier: Notifier,
    under_way: UnderWay,
}

impl Bench {
    fn new(site: &Site) -> Self {
        let clock = Arc::new(ManualClock::at(NOW));
        Self::at(site, clock)
    }

    fn at(site: &Site, clock: Arc<ManualClock>) -> Self {
        let life = site.live_at(clock.clone());
        let notifier = Notifier::new(Arc::clone(life.backend.jobs()));
        let under_way = life.runtime.block_on(notifier.load());
        Self {
            life,
            clock,
            notifier,
            under_way,
        }
    }

    /// The next master, with what is stored.
    fn restarted(self, site: &Site) -> Self {
        let Self {
            life,
            clock,
            under_way,
            ..
        } = self;
        // Requests that are under way end with the process.
        life.runtime.block_on(async { drop(under_way) });
        life.kill();
        Self::at(site, clock)
    }

    /// Rounds with these findings, a minute apart; each sends what is due and takes the outcomes.
    fn rounds(&mut self, count: u32, names: &[&str]) {
        for _ in 0..count {
            let now = self.clock.now();
            self.notifier
                .ledger()
                .observe(notices(&found(names), now), now);
            self.step();
            self.clock.advance(MINUTE);
        }
    }

    fn step(&mut self) {
        let Self {
            life,
            notifier,
            under_way,
            ..
        } = self;
        life.runtime.block_on(async {
            notifier.send(under_way).await;
            while let Some(sent) = under_way.requests.join_next().await {
                notifier.finish(under_way, &sent.unwrap());
            }
            notifier.store(under_way).await;
        });
    }

    fn troubles(&self) -> Vec<String> {
        self.life.app.sinks.troubles()
    }
}

/// A server that answers with this status while it is up, and else with 503.
fn switched(is_up: &Arc<AtomicBool>) -> Server {
    let is_up = Arc::clone(is_up);
    Server::start(move |_| match is_up.load(Ordering::SeqCst) {
        true => CannedAnswer::new(200),
        false => CannedAnswer::new(503),
    })
}

#[test]
fn the_findings_of_a_cluster_reach_a_webhook_and_resolve() {
    let server = Server::start(|_| CannedAnswer::new(200));
    let site = site(&format!("    ops: {{url: \"{}\"}}\n", server.url("/hook")));
    let mut bench = Bench::new(&site);
    let all = [
        "backup",
        "certificates-ending",
        "nodes",
        "pod-network-setup",
    ];
    bench.rounds(1, &all);
    assert_eq!(server.seen().len(), 0);
    bench.rounds(1, &all);
    assert_eq!(server.seen().len(), 1, "one request for all of them");
    let sent = |at: usize| {
        let body: serde_json::Value = serde_json::from_slice(&server.seen()[at].body).unwrap();
        let findings = body["findings"].as_array().unwrap().iter();
        let mut words: Vec<String> = findings
            .map(|one| format!("{} {}", one["news"], one["check"]).replace('"', ""))
            .collect();
        words.sort();
        words
    };
    assert_eq!(
        sent(0),
        [
            "new backup",
            "new certificates-ending",
            "new nodes",
            "new pod-network-setup"
        ]
    );
    bench.rounds(4, &["nodes"]);
    assert_eq!(
        sent(1),
        [
            "resolved backup",
            "resolved certificates-ending",
            "resolved pod-network-setup"
        ]
    );
    bench.rounds(4, &[]);
    assert_eq!(sent(2), ["resolved nodes"]);
    assert_eq!(server.seen().len(), 3);
    bench.life.kill();
}

#[test]
fn a_sink_that_hangs_or_fails_delays_no_other_and_is_a_finding() {
    let good = Server::start(|_| CannedAnswer::new(200));
    let bad = Server::start(|_| CannedAnswer::new(500).body(CANARY));
    let hangs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let site = site(&format!(
        "    a-hangs: {{url: \"http://{}/\"}}\n    b-bad: {{url: \"{}\"}}\n    good: {{url: \"{}\"}}\n",
        hangs.local_addr().unwrap(),
        bad.url("/key"),
        good.url("/")
    ));
    let mut bench = Bench::new(&site);
    bench.notifier.limit = SHORT;
    bench.rounds(2, &["backup"]);
    assert_eq!(good.seen().len(), 1);
    let troubles = bench.troubles();
    assert_eq!(troubles.len(), 2, "{troubles:?}");
    assert!(troubles[0].contains("a-hangs has taken no notification since 2027-01-15T08:01"));
    assert!(
        troubles[0].contains("did not answer within"),
        "{troubles:?}"
    );
    assert!(troubles[1].contains("b-bad"), "{troubles:?}");
    assert!(troubles[1].contains("it answers 500"), "{troubles:?}");
    let status = bench.life.runtime.block_on(bench.life.backend.status());
    let checks = status.unwrap().health.checks;
    let own = checks.iter().find(|check| check.name == "notify").unwrap();
    assert_eq!((&own.state, own.findings.len()), (&CheckState::Warning, 2));
    // No record has the path of an address, or what a server answered.
    let stored = bench.under_way.stored.clone();
    assert!(stored.contains("it answers 500"), "{stored}");
    assert!(
        !stored.contains("/key") && !stored.contains(CANARY),
        "{stored}"
    );
    bench.life.kill();
}

#[test]
fn a_webhook_that_is_down_for_an_hour_gets_what_it_lacks_also_from_the_next_master() {
    let is_up = Arc::new(AtomicBool::new(true));
    let server = switched(&is_up);
    let site = site(&format!("    ops: {{url: \"{}\"}}\n", server.url("/")));
    let mut bench = Bench::new(&site);
    bench.rounds(2, &["backup", "nodes"]);
    assert_eq!(server.seen().len(), 1);
    is_up.store(false, Ordering::SeqCst);
    bench.rounds(30, &["nodes", "pod-network-setup"]);
    let mut bench = bench.restarted(&site);
    bench.rounds(30, &["nodes", "pod-network-setup"]);
    let tried = server.seen().len();
    assert!((10..25).contains(&tried), "{tried} requests");
    assert_eq!(bench.troubles().len(), 1);
    is_up.store(true, Ordering::SeqCst);
    bench.rounds(7, &["nodes", "pod-network-setup"]);
    let seen = server.seen();
    assert_eq!(seen.len(), tried + 2, "a small request, and the rest");
    let text = |at: usize| String::from_utf8(seen[at].body.clone()).unwrap();
    let (small, rest) = (text(tried), text(tried + 1));
    assert!(small.contains("resolved backup: "), "{small}");
    assert!(rest.contains("failure pod-network-setup: "), "{rest}");
    for text in [small, rest] {
        assert!(!text.contains("nodes: "), "it knows that one: {text}");
    }
    assert!(bench.troubles().is_empty());
    bench.life.kill();
}

#[test]
fn an_unused_notifier_stores_and_sends_nothing() {
    let site = Site::new(&[("top.sls", "base:\n  '*': []\n")]);
    let mut bench = Bench::new(&site);
    bench.rounds(3, &[]);
    let life = &bench.life;
    let stored = life.runtime.block_on(life.store.notifications()).unwrap();
    assert_eq!(stored, None);
    let refused = life.runtime.block_on(bench.notifier.test("alice", "ops"));
    assert!(refused.unwrap_err().message.contains("notify.sinks"));
    let tests = life.runtime.block_on(bench.notifier.test("alice", ""));
    assert!(tests.unwrap().sinks.is_empty());
    bench.life.kill();
}

#[test]
fn the_sinks_and_their_tests() {
    let (good, bad) = (
        Server::start(|_| CannedAnswer::new(200)),
        Server::start(|_| CannedAnswer::new(500)),
    );
    let site = site(&format!(
        "    chat: {{url: \"{}\", severity: failure}}\n    ops: {{form: alertmanager, url: \"{}\"}}\n",
        good.url("/hook"),
        bad.url("")
    ));
    let mut bench = Bench::new(&site);
    bench.rounds(2, &["backup", "certificates-ending"]);
    let life = &bench.life;
    let mut sinks = life.runtime.block_on(bench.notifier.list()).unwrap();
    assert_eq!(sinks.sinks[0].findings, 1);
    assert_eq!(sinks.sinks[1].findings, 2);
    for (sink, server) in sinks.sinks.iter_mut().zip([&good, &bad]) {
        assert_eq!(sink.origin, format!("http://{}", server.host()));
        // The port differs from run to run.
        sink.origin = format!("http://{}.example.com", sink.name);
    }
    check_document("sinks", &sinks);
    let tests = life.runtime.block_on(bench.notifier.test("alice", ""));
    let tests = tests.unwrap();
    check_document("sink-tests", &tests);
    let seen = good.seen();
    let body = String::from_utf8(seen.last().unwrap().body.clone()).unwrap();
    assert!(body.contains("this is a test by alice"), "{body}");
    assert_eq!(bad.seen().last().unwrap().path, "/api/v2/alerts");
    let one = life.runtime.block_on(bench.notifier.test("alice", "ops"));
    assert_eq!(one.unwrap().sinks.len(), 1);
    let refused = life.runtime.block_on(bench.notifier.test("alice", "mail"));
    let refused = refused.unwrap_err().message;
    assert!(refused.contains("the sinks are chat, ops"), "{refused}");
    bench.life.kill();
}

#[test]
fn a_changed_address_gets_everything_and_without_rounds_nothing_unknown_stays() {
    let (first, second) = (
        Server::start(|_| CannedAnswer::new(200)),
        Server::start(|_| CannedAnswer::new(200)),
    );
    let at = |server: &Server| site(&format!("    ops: {{url: \"{}\"}}\n", server.url("/")));
    let (before, after) = (at(&first), at(&second));
    let mut bench = Bench::new(&before);
    bench.rounds(2, &["backup"]);
    assert_eq!(first.seen().len(), 1);
    let stored = bench.under_way.stored.clone();
    bench.life.kill();
    let mut bench = Bench::new(&after);
    *bench.notifier.ledger() = Ledger::read(&stored).unwrap();
    bench.rounds(1, &["backup"]);
    assert_eq!(second.seen().len(), 1);
    let now = bench.clock.now();
    for _ in 0..2 {
        let both = notices(&found(&["backup", "nodes"]), now);
        bench.notifier.ledger().observe(both, now);
    }
    bench.notifier.take(&LatestHealth::default());
    let life = &bench.life;
    let sinks = life.runtime.block_on(bench.notifier.list()).unwrap();
    assert_eq!(sinks.sinks[0].findings, 1);
    bench.life.kill();
}

#[test]
fn a_sink_whose_secret_cannot_be_decrypted_keeps_its_record() {
    let site = site("    ops: {url: \"https://127.0.0.1:9/\", header: {secret: canary}}\n");
    let bench = Bench::new(&site);
    let file = SecretFile::new(&site.path().join("etc"), &site.path().join("state"));
    let document = site.path().join("etc/cluster.yaml");
    bench.life.runtime.block_on(async {
        let declarations = bench.life.backend.jobs().declarations();
        let snapshot = declarations.load().await.unwrap();
        let plain = format!("canary: {CANARY}\n");
        file.write(&plain, snapshot.declaration()).unwrap();
        let text = std::fs::read_to_string(&document).unwrap();
        let text = text.replace(&format!("value: {CANARY}, "), "");
        std::fs::write(&document, text).unwrap();
        declarations.load().await.unwrap();
    });
    std::fs::remove_file(file.identity_path()).unwrap();
    let mut bench = bench.restarted(&site);
    bench.life.runtime.block_on(async {
        let declarations = bench.life.backend.jobs().declarations();
        assert!(declarations.load().await.is_err());
        let in_force = declarations.in_force().await.unwrap();
        assert!(in_force.declaration().cluster.sink_targets().is_empty());
    });
    bench.notifier.ledger().succeeded("ops", NOW);
    bench.notifier.ledger().succeeded("another", NOW);
    bench.step();
    assert!(bench.notifier.ledger().record("ops").is_some());
    assert!(bench.notifier.ledger().record("another").is_none());
    bench.life.kill();
}

#[test]
fn an_isolated_master_sends_nothing() {
    use halite_core::isolation::{AFTER, Surroundings};
    let server = Server::start(|_| CannedAnswer::new(200));
    let site = site(&format!("    ops: {{url: \"{}\"}}\n", server.url("/")));
    let mut bench = Bench::new(&site);
    let alone = Surroundings {
        standbys: 1,
        alone_since: Some(0),
        accepted: 2,
        connected: 0,
    };
    let app = &bench.life.app;
    let now = app.clock.steady();
    app.isolation.look(now, alone);
    app.isolation.look(now + AFTER, alone);
    bench.rounds(3, &["backup"]);
    assert!(server.seen().is_empty());
    bench.life.kill();
}

#[test]
fn a_finding_that_a_sink_refuses_for_its_content_delays_no_other_and_is_displayed() {
    let server = Server::start(|request| {
        let body = String::from_utf8_lossy(&request.body);
        CannedAnswer::new(if body.contains("containerd") {
            400
        } else {
            200
        })
    });
    let site = site(&format!("    ops: {{url: \"{}\"}}\n", server.url("/")));
    let mut bench = Bench::new(&site);
    let health = |names: &[&str]| {
        let mut health = found(names);
        for check in health
            .checks
            .iter_mut()
            .filter(|check| check.name == "nodes")
        {
            check.findings[0].message = "containerd is stopped".to_owned();
        }
        health
    };
    let mut rounds = |count: u32, names: &[&str]| {
        for _ in 0..count {
            let now = bench.clock.now();
            let notices = notices(&health(names), now);
            bench.notifier.ledger().observe(notices, now);
            bench.step();
            bench.clock.advance(MINUTE);
        }
    };
    rounds(5, &["nodes"]);
    rounds(3, &["nodes", "backup"]);
    let bodies: Vec<String> = server
        .seen()
        .into_iter()
        .map(|request| String::from_utf8(request.body).unwrap())
        .collect();
    let is_alone = |body: &String| body.contains("backup: ") && !body.contains("containerd");
    assert!(bodies.iter().any(is_alone), "{bodies:?}");
    let troubles = bench.troubles();
    assert_eq!(
        troubles,
        [
            "the sink ops refuses findings, which `ctl notify list` shows: it answers 400 Bad Request; check its `form`"
        ]
    );
    let life = &bench.life;
    let sinks = life.runtime.block_on(bench.notifier.list()).unwrap();
    assert_eq!(sinks.sinks[0].failure, None);
    let refused = &sinks.sinks[0].refused;
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].message, "containerd is stopped");
    bench.life.kill();
}
