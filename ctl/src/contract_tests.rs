//! The contract with the master: its real answers (`lib/api/contract`, written by its tests) pass
//! over the wire into the printers.

use std::path::{Path, PathBuf};

use halite_api::{Document, Event, EventData, from_text, to_text};
use halite_proto::v1;

use crate::commands::printed;
use crate::event_line::line;
use crate::output::Paint;

const PLAIN: Paint = Paint { colour: false };

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lib/api/contract")
}

fn stored(name: &str) -> String {
    let path = directory().join(format!("{name}.json"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The document of an answer of the master.
fn answer<T: Document>(name: &str) -> T {
    let json = stored(name);
    let answer = v1::Document { json: json.clone() };
    let answer = halite_proto::tonic::Response::new(answer);
    let document: T =
        crate::client::document(Ok(answer)).unwrap_or_else(|error| panic!("{name}: {error:#}"));
    // Nothing is lost between the master and the output of `-o json`.
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(value(&to_text(&document)), value(&json), "{name}");
    document
}

/// An event of the master, as it arrives over the wire.
fn event(name: &str) -> v1::Event {
    let event: Event = from_text(&stored(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    v1::Event {
        tag: event.tag,
        time: event.time,
        data_json: event.data.to_string(),
        last: event.last,
        retcode: event.retcode.unwrap_or_default(),
        seq: 0,
    }
}

#[test]
fn each_document_of_the_master_is_printed() {
    for (text, parts) in [
        (
            printed::status(&answer("status"), &PLAIN),
            &[
                "cluster     test\n",
                "master      10.10.0.11:0 (",
                "etcd        1 member",
                "worker-1 ",
                "Ready v1.36.3",
                "succeeded 2027-01-15T08:00:00.000Z",
            ][..],
        ),
        (
            printed::etcd(&answer("etcd"), &PLAIN),
            &["1 member, none may fail\n", "bootstrap-1 ", "leader"],
        ),
        (
            printed::certificates(&answer("certificates"), &PLAIN),
            &[
                "kubernetes   2027-",
                "bootstrap-1  /etc/halite/pki/server.crt",
                "300 days",
                "site",
                "master",
                "✗ worker-1 does not answer",
            ],
        ),
        (
            printed::ca_request(&answer("ca-request"), None),
            &["-----BEGIN CERTIFICATE REQUEST-----\n"],
        ),
        (
            printed::prepared_ca(&answer("prepared-ca")),
            &[
                "state    imported\n",
                "subject  CN=kubernetes\n",
                "note     its path length is 0",
            ],
        ),
        (
            printed::jobs(&answer("jobs")),
            &["JOB ", "state.highstate", "finished"],
        ),
        (
            printed::job(&answer("job"), &PLAIN),
            &[
                "function  state.highstate\n",
                "worker-1: 1 state, 1 change",
                "file.managed /etc/motd",
            ],
        ),
        (
            printed::job_cancellation(&answer("job-cancellation")),
            &["ended immediately on: worker-1\n"],
        ),
        (
            printed::runs(&answer("runs")),
            &["custom.roll", "succeeded"],
        ),
        (
            printed::job(&answer("run"), &PLAIN),
            &["sls       custom.roll\n", "first", "succeeded"],
        ),
        (
            printed::run_cancellation(&answer("run-cancellation")),
            &["(custom.enrolled) was cancelled by alice"],
        ),
        (
            printed::keys(&answer("keys")),
            &["worker-1  accepted", "worker-2  pending", "Debian-12"],
        ),
        (
            printed::key_change(&answer("key-change")),
            &["the key of worker-1 is deleted\n"],
        ),
        (
            printed::tokens(&answer("tokens")),
            &["valid", "worker-1", "root"],
        ),
        (
            printed::token_revocation(&answer("token-revocation")),
            &["is revoked\n"],
        ),
        (
            printed::operators(&answer("operators")),
            &["alice", "viewer", "valid"],
        ),
        (
            printed::operator_revocation(&answer("operator-revocation")),
            &["the operator alice is revoked\n"],
        ),
        (
            printed::kubeconfigs(&answer("kubeconfigs")),
            &["alice", "2027-01-15T08:00:00.000Z"],
        ),
        (
            printed::sinks(&answer("sinks")),
            &[
                "chat  plain         http://",
                "ops   alertmanager  http://",
                "failure",
                "it answers 500 Internal Server Error",
            ],
        ),
        (
            printed::sink_tests(&answer("sink-tests"), &PLAIN),
            &["✓ chat\n", "✗ ops: it answers 500"],
        ),
        (
            printed::audit(&answer("audit")),
            &["operator:alice", "Operator/Run", "test.ping on *", "ok"],
        ),
        (
            printed::rendered_files(&answer("files")).unwrap(),
            &[
                "/etc/motd\n  state   file.managed in host.sls:2\n",
                "  | welcome\n",
            ],
        ),
        (
            printed::upgrade(&answer("upgrade"), &PLAIN),
            &[
                "bundle 0.2.0 with Kubernetes v1.36.3 → 0.3.0",
                "order       bootstrap-1 (drained)\n",
                "! default/web-0 (StatefulSet web) on worker-1 cannot be evicted now",
            ],
        ),
        (
            printed::upgrade(&answer("upgrade-back"), &PLAIN),
            &[
                "back from bundle 0.3.0 with Kubernetes v1.36.3 → 0.2.0",
                "1 host changes\n",
            ],
        ),
        (
            printed::upgrade(&answer("upgrade-shown"), &PLAIN),
            &[
                "0.3.0 with v1.36.3; 1 host does not have it yet\n",
                "order       worker-1 (drained)\n",
            ],
        ),
        (
            printed::upgrade_status(&answer("upgrade-status")),
            &[
                "to the bundle 0.3.0 is paused (by root)\n",
                "left        worker-1\n",
            ],
        ),
    ] {
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }
    // These are printed as JSON or YAML, or control a command.
    let health = answer::<halite_api::ClusterStatus>("status").health;
    assert!(printed::health(&health, &PLAIN).contains("checks"));
    let leaving: halite_api::LeavingHost = answer("leaving");
    assert_eq!(
        (leaving.host.as_str(), leaving.enrolled),
        ("worker-1", true)
    );
    let plan: halite_api::MasterMove = answer("master-move");
    assert_eq!((plan.to.as_deref(), plan.moved), (Some("cp-2"), false));
    let pillar: halite_api::MinionPillar = answer("pillar");
    assert!(pillar.pillar.contains_key("halite"));
    let grains: halite_api::Grains = answer("grains");
    assert!(grains.grains.contains_key("worker-1"));
    let top: halite_api::TopStates = answer("top");
    assert_eq!(top.sls, ["host"]);
    let notification: halite_api::Notification = answer("notification");
    assert_eq!(notification.findings.len(), 1);
    let low: halite_api::RenderedLow = answer("low");
    assert_eq!(low.low.chunks.len(), 1);
}

#[test]
fn each_event_of_the_master_is_known_and_printed() {
    for (name, expected) in [
        ("event-job-new", "state.highstate on worker-1"),
        ("event-job-start", "worker-1 has started"),
        ("event-job-prog", "file.managed /etc/motd"),
        ("event-job-log", "worker-1: 2 lines of its journal"),
        ("event-job-ret", "worker-1 succeeded: 1 state, 1 change"),
        ("event-job-ret-failed", "worker-1 failed"),
        (
            "event-job-wait",
            "waiting for 10 s until worker-1 has returned",
        ),
        ("event-job-repair", "etcd has no quorum"),
        (
            "event-job-minion",
            "worker-1: the minion differs from the bundle",
        ),
        ("event-job-done", "has ended: 1 succeeded"),
        ("event-run-new", "custom.roll"),
        ("event-run-step", "first succeeded"),
        ("event-run-job", "first has created the job"),
        ("event-run-wait", "second"),
        ("event-run-cancel", "cancelled by alice"),
        ("event-run-done", "succeeded"),
        ("event-key", "the key of worker-1 is deleted"),
    ] {
        let event = event(name);
        let data = EventData::read(&event.tag, &event.data_json);
        assert!(!matches!(data, EventData::Other(_)), "{name}: {data:?}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&data.to_text()), value(&event.data_json), "{name}");
        let text = line(&event);
        assert!(text.contains(expected), "{name}: {text}");
    }
}

#[test]
fn each_stored_document_and_event_is_tested() {
    let own = concat!(
        include_str!("contract_tests.rs"),
        include_str!("local_contract_tests.rs"),
        include_str!("outcome_contract_tests.rs"),
        include_str!("reply_contract_tests.rs")
    );
    for entry in std::fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(
            own.contains(&format!("\"{name}\"")),
            "{name} is not tested here"
        );
    }
}
