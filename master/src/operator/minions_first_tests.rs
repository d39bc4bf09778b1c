use halite_core::names::minion;
use halite_host_reports::update::{GRAIN, PROGRAM, Reverted};
use halite_orchestrate::outdated_minions::BUNDLED;
use halite_states::low::LowState;
use halite_store::Facts;
use serde_json::Value;

use super::*;
use crate::backend::contract::check_event;
use crate::backend::fixture::{Life, ScriptedMinion, Site, WATCHDOG};

const OLD: &str = "the previous minion";
const NEW: &str = "the minion of the bundle";
const HOST: &str = "worker-1";

const TREE: &[(&str, &str)] = &[
    (
        "top.sls",
        "base:\n  '*':\n    - host\n    - halite.services.minion\n",
    ),
    (
        "host.sls",
        "motd:\n  file.managed:\n    - name: /etc/motd\n    - contents: welcome\n",
    ),
    (
        "halite/services/minion.sls",
        "program:\n  file.managed:\n    - name: /usr/local/bin/halite-minion\n    - source: bundle://bin/halite-minion\n\
         halite-minion-restart:\n  cmd.run:\n    - name: restart\n    - cwd: /\n    - order: last\n",
    ),
];

/// A site whose bundle has a minion.
fn site(tree: &[(&str, &str)]) -> Site {
    let site = Site::new(tree);
    let put = |path: &str, text: &str| {
        let path = site.path().join("bundle").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let manifest = std::fs::read(site.path().join("bundle/manifest.json")).unwrap();
    let mut manifest: Value = serde_json::from_slice(&manifest).unwrap();
    manifest["files"][BUNDLED] = json!({"sha256": sha256(NEW), "size": NEW.len()});
    let manifest = manifest.to_string();
    put(
        "manifest.json.sha256",
        &format!("{}  manifest.json\n", sha256(&manifest)),
    );
    put("manifest.json", &manifest);
    put(BUNDLED, NEW);
    site
}

fn sha256(text: &str) -> String {
    halite_proto::pki::sha256_hex(text.as_bytes())
}

/// Stores what the minion reports when it connects.
fn reports(life: &Life, program: Option<&str>, taken_back: Option<i64>) {
    let mut grains =
        json!({"id": HOST, "os": "Debian", "ip4_interfaces": {"host0": ["10.10.1.12"]}});
    if let Some(program) = program {
        grains[PROGRAM] = json!(sha256(program));
    }
    if let Some(time) = taken_back {
        let reverted = Reverted {
            time,
            program: sha256(NEW),
            seconds: 60,
            unit: "activating".into(),
        };
        grains[GRAIN] = serde_json::to_value(reverted).unwrap();
    }
    let facts = Facts {
        minion: minion(HOST),
        grains_json: grains.to_string(),
        version: "0.1.0".into(),
        last_seen: life.app.clock.now(),
    };
    life.runtime.block_on(life.store.put_facts(&facts)).unwrap();
}

/// A master, and a connected minion that runs this program.
fn begin(site: &Site, program: Option<&str>) -> (Life, ScriptedMinion) {
    let life = site.live();
    let host = ScriptedMinion::new(HOST);
    life.connect(&host);
    reports(&life, program, None);
    (life, host)
}

fn start(life: &Life, test: bool) -> Result<EventStream, Refusal> {
    let request = v1::RunRequest {
        target: HOST.into(),
        function: "state.highstate".into(),
        test,
        request_id: "one".into(),
        ..v1::RunRequest::default()
    };
    life.runtime.block_on(life.backend.run("root", request))
}

/// The ids of the states in each job that the minion received.
fn received(host: &ScriptedMinion) -> Vec<Vec<String>> {
    let journal = host.journal.lock().unwrap();
    let ids = |job: &v1::Job| {
        let low: LowState = serde_json::from_str(&job.low_json).unwrap();
        low.chunks.into_iter().map(|chunk| chunk.id).collect()
    };
    journal.received.iter().map(ids).collect()
}

fn functions(life: &Life) -> Vec<String> {
    let jobs = life.runtime.block_on(life.store.jobs(9)).unwrap();
    jobs.into_iter().rev().map(|job| job.function).collect()
}

/// Waits until the minion's update has ended: the job after the first `before` jobs.
fn updated(life: &Life, before: usize) {
    let ended = async {
        loop {
            let jobs = life.store.jobs(9).await.unwrap();
            let ended = jobs.iter().filter(|job| job.retcode.is_some());
            if ended.count() > before {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let ended = async { tokio::time::timeout(WATCHDOG, ended).await };
    life.runtime.block_on(ended).unwrap();
}

/// The reports on hosts, as pairs of reason and consequence.
fn said(events: &[v1::Event]) -> Vec<(String, String)> {
    let of = |event: &v1::Event| {
        let data: Value = serde_json::from_str(&event.data_json).unwrap();
        assert_eq!(data["hosts"], json!([HOST]));
        let text = |key: &str| data[key].as_str().unwrap().to_owned();
        (text("because"), text("then"))
    };
    let reports = events.iter().filter(|event| event.tag.ends_with("/minion"));
    reports.map(of).collect()
}

const UPDATE: [&str; 2] = ["program", RESTART];
const ALL: [&str; 3] = ["motd", "program", RESTART];

/// It would mistake the minion before its restart for the new one, and be interrupted by that
/// restart.
#[test]
fn a_second_highstate_begins_after_the_update_of_the_first() {
    let site = site(TREE);
    let (life, host) = begin(&site, Some(OLD));
    let first = start_as(&life, "a");
    updated(&life, 0);
    let mut second = start_as(&life, "b");
    // It reports its wait once its turn was refused.
    let first_word = life.runtime.block_on(async {
        let word = tokio::time::timeout(WATCHDOG, second.next()).await;
        word.expect("it says nothing").unwrap().unwrap()
    });
    assert!(said(&[first_word])[0].1.contains("another highstate"));
    // A highstate that did not wait would make its job within this time.
    life.run("test.ping", HOST, json!({}), false);
    assert_eq!(functions(&life), ["state.apply", "test.ping"]);
    reports(&life, Some(NEW), None);
    life.reconnect(&host);
    life.collect(first);
    life.collect(second);
    assert_eq!(
        functions(&life),
        [
            "state.apply",
            "test.ping",
            "state.highstate",
            "state.highstate"
        ]
    );
}

#[test]
fn another_program_is_replaced_before_any_other_state_is_sent() {
    let site = site(TREE);
    for program in [Some(OLD), None] {
        let (life, host) = begin(&site, program);
        let before = functions(&life).len();
        let stream = start_as(&life, &format!("{program:?}"));
        updated(&life, before);
        assert_eq!(
            received(&host),
            [UPDATE],
            "nothing before the new one has connected"
        );
        assert_eq!(functions(&life)[before..], ["state.apply"]);
        // The old process reconnects before it is restarted.
        life.reconnect(&host);
        assert_eq!(functions(&life)[before..], ["state.apply"]);
        reports(&life, Some(NEW), None);
        life.reconnect(&host);
        let events = life.collect(stream);
        assert_eq!(received(&host), [UPDATE.to_vec(), ALL.to_vec()]);
        assert_eq!(
            functions(&life)[before..],
            ["state.apply", "state.highstate"]
        );
        let last: Vec<i32> = events
            .iter()
            .filter(|event| event.last)
            .map(|event| event.retcode)
            .collect();
        assert_eq!(
            (last.as_slice(), events.last().unwrap().last),
            ([0].as_slice(), true)
        );
        let mut updates = events.iter().filter(|event| event.tag.ends_with("/minion"));
        check_event("event-job-minion", updates.next().unwrap());
        let said = said(&events);
        assert_eq!((said.len(), said[0].0.as_str()), (1, DIFFERS), "{said:?}");
        let returned = events.iter().filter(|event| event.tag.contains("/ret/"));
        assert_eq!(returned.count(), 2, "the returns of both jobs");
        life.kill();
    }
}

#[test]
fn a_minion_of_an_earlier_protocol_gets_no_other_change_than_its_update() {
    let site = site(TREE);
    let (life, host) = begin(&site, Some(OLD));
    life.app.connections.speaks(&minion(HOST), 1);
    let ended = |function: &str, args: Value, test: bool| {
        let events = life.run(function, HOST, args, test);
        let last = events.last().unwrap().retcode;
        let said: String = events
            .iter()
            .map(|event| event.data_json.as_str())
            .collect();
        (last, said)
    };
    let host_sls = json!({"sls": ["host"]});
    for (function, args) in [
        ("cmd.run", json!({"cmd": "true"})),
        ("state.apply", host_sls.clone()),
    ] {
        let (retcode, said) = ended(function, args, false);
        assert_eq!(retcode, 1, "{function}: {said}");
        let remedy = format!("`ctl highstate {HOST}` updates it");
        assert!(
            said.contains("the protocol 1") && said.contains(&remedy),
            "{said}"
        );
    }
    assert_eq!(received(&host), [[""; 0]; 0], "nothing was sent");
    // It answers questions.
    assert_eq!(ended("test.ping", json!({}), false).0, 0);
    host.journal.lock().unwrap().received.clear();
    assert_eq!(ended("state.apply", host_sls, true).0, 0);
    host.journal.lock().unwrap().received.clear();

    let before = functions(&life).len();
    let stream = start_as(&life, "highstate");
    updated(&life, before);
    assert_eq!(received(&host), [UPDATE]);
    reports(&life, Some(NEW), None);
    life.reconnect(&host);
    life.collect(stream);
    assert_eq!(received(&host), [UPDATE.to_vec(), ALL.to_vec()]);
}

fn start_as(life: &Life, id: &str) -> EventStream {
    let request = v1::RunRequest {
        target: HOST.into(),
        function: "state.highstate".into(),
        request_id: id.into(),
        ..v1::RunRequest::default()
    };
    life.runtime
        .block_on(life.backend.run("root", request))
        .unwrap()
}

#[test]
fn a_minion_of_the_bundle_gets_one_job() {
    let site = site(TREE);
    let (life, host) = begin(&site, Some(NEW));
    let events = life.collect(start(&life, false).unwrap());
    assert_eq!(received(&host), [ALL]);
    assert_eq!(said(&events), []);
    life.kill();
}

#[test]
fn a_prediction_updates_no_minion_and_says_that_it_would_be() {
    let site = site(TREE);
    let (life, host) = begin(&site, Some(OLD));
    let events = life.collect(start(&life, true).unwrap());
    assert_eq!(functions(&life), ["state.highstate"]);
    assert!(host.journal.lock().unwrap().received[0].test);
    let said = said(&events);
    assert!(
        said.len() == 1 && said[0].1.contains("would be updated first"),
        "{said:?}"
    );
    life.kill();
}

#[test]
fn a_request_repeated_after_a_crash_continues_where_the_first_stopped() {
    let site = site(TREE);
    let (life, host) = begin(&site, Some(OLD));
    let _watched = start(&life, false).unwrap();
    updated(&life, 0);
    life.kill();
    // The next master finds the previous minion, which is about to restart.
    let life = site.live();
    life.reconnect(&host);
    let stream = start(&life, false).unwrap();
    reports(&life, Some(NEW), None);
    life.reconnect(&host);
    let events = life.collect(stream);
    assert_eq!(events.last().unwrap().retcode, 0);
    assert_eq!(
        received(&host),
        [UPDATE.to_vec(), ALL.to_vec()],
        "each once"
    );
    // Once more, again with the previous minion: the highstate exists already.
    reports(&life, Some(OLD), None);
    life.collect(start(&life, false).unwrap());
    assert_eq!(received(&host).len(), 2);
    life.kill();
}

#[test]
fn an_update_that_is_taken_back_or_fails_does_not_keep_the_highstate_from_the_host() {
    let site = site(TREE);
    let (life, host) = begin(&site, Some(OLD));
    // The end of an earlier one does not end this one.
    reports(&life, Some(OLD), Some(1));
    let stream = start_as(&life, "back");
    updated(&life, 0);
    life.reconnect(&host);
    assert_eq!(functions(&life), ["state.apply"]);
    reports(&life, Some(OLD), Some(2));
    life.reconnect(&host);
    let events = life.collect(stream);
    assert_eq!(received(&host), [UPDATE.to_vec(), ALL.to_vec()]);
    let reported = said(&events);
    assert!(reported[1].0.contains("was rolled back"), "{reported:?}");

    host.journal
        .lock()
        .unwrap()
        .failing
        .insert("program".into());
    let events = life.collect(start_as(&life, "fails"));
    let reported = said(&events);
    assert!(
        reported[1]
            .0
            .contains("program (file.managed, halite.services.minion): it broke"),
        "{reported:?}"
    );
    assert_eq!(
        events.last().unwrap().retcode,
        1,
        "the highstate fails there, too"
    );
    life.kill();
}

#[test]
fn nothing_is_updated_for_a_highstate_that_does_not_compile() {
    let mut tree = TREE.to_vec();
    tree[1].1 = "motd:\n  file.mnaged:\n    - name: /etc/motd\n";
    let site = site(&tree);
    let (life, host) = begin(&site, Some(OLD));
    let refused = start(&life, false).map(drop).unwrap_err();
    assert!(refused.message.contains("nothing was sent"), "{refused}");
    assert_eq!(functions(&life).len() + received(&host).len(), 0);
    life.kill();
}

#[test]
fn a_cancelled_update_is_followed_by_nothing() {
    let site = site(TREE);
    let life = site.live();
    life.accept(HOST);
    reports(&life, Some(OLD), None);
    // A minion that is working, and answers a request to cancel.
    let (_connection, mut messages) = life.runtime.block_on(async {
        life.app
            .connections
            .join(&minion(HOST), std::net::Ipv4Addr::LOCALHOST.into())
    });
    let hello = v1::MinionHello::default();
    life.runtime
        .block_on(life.backend.on_connected(&minion(HOST), &hello))
        .unwrap();
    let stream = start(&life, false).unwrap();
    life.runtime.block_on(async {
        let sent = messages.recv().await.unwrap();
        let Some(v1::master_message::Body::Job(job)) = sent.body else {
            panic!("no job: {sent:?}");
        };
        let job_id: JobId = job.job.parse().unwrap();
        life.backend
            .cancel_job(&job_id, "alice", false)
            .await
            .unwrap();
        let answer = v1::JobReturn {
            job: job.job,
            retcode: 2,
            return_json: "null".into(),
            error: "cancelled by alice".into(),
        };
        let body = Some(v1::minion_message::Body::Returned(answer));
        life.backend
            .on_message(&minion(HOST), v1::MinionMessage { body })
            .await
            .unwrap();
    });
    let events = life.collect(stream);
    assert_eq!(events.last().unwrap().retcode, 1);
    assert_eq!(functions(&life), ["state.apply"]);
    life.kill();
}

#[test]
fn the_tree_has_the_states_that_are_named_here() {
    let tree = include_str!("../../../states/tree/halite/services/minion/init.sls");
    assert!(tree.contains(&format!("\n{RESTART}:\n")));
    assert!(tree.contains(&format!("bundle://{BUNDLED}\n")));
}
