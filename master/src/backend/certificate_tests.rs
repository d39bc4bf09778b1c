//! `ctl certs` on a whole master with scripted minions.

use std::sync::Arc;

use halite_api::{CertificateList, from_text};
use halite_core::clock::ManualClock;
use halite_core::names::minion;
use halite_proto::v1;
use halite_states::low::LowState;
use serde_json::json;

use super::contract::check_answer;
use super::fixture::{Life, ScriptedMinion, Site};

/// The start of the CAs' validity in the fixture.
const NOW: i64 = 1_800_000_000_000;
const DAY: i64 = 24 * 60 * 60;

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*':\n    - a\n"),
    (
        "a.sls",
        "other:\n  test.succeed_with_changes: []\ncertificate:\n  x509.certificate:\n    - name: /etc/a.crt\n    - ca: kubernetes\n    - common_name: a\n    - require:\n        - test: other\n",
    ),
];

fn host(name: &str) -> ScriptedMinion {
    ScriptedMinion::new(name).on(|job| {
        let certificate = |path: &str, days: i64, subject: &str, issuer: &str| {
            let ends = NOW / 1000 + days * DAY;
            json!({"path": path, "begins": 0, "ends": ends, "subject": subject, "issuer": issuer})
        };
        (job.function == "halite.health").then(|| {
            json!({"certificates": [
                certificate("/etc/halite/pki/server.crt", 300, "CN=a", "CN=site-ca test"),
                certificate("/var/lib/halite/minion/identity.crt", 200, "O=halite:minion, CN=a", "CN=halite-ca test"),
            ]})
        })
    })
}

fn life(site: &Site) -> Life {
    site.live_at(Arc::new(ManualClock::at(NOW)))
}

fn listed(life: &Life, target: &str) -> v1::Document {
    let request = v1::ShowRequest {
        what: "certificates".to_owned(),
        target: target.to_owned(),
        ..v1::ShowRequest::default()
    };
    life.runtime.block_on(life.backend.show(request)).unwrap()
}

#[test]
fn the_list_has_cas_and_hosts_and_names_silent_hosts() {
    let site = Site::new(TREE);
    let life = life(&site);
    life.connect(&host("bootstrap-1"));
    life.accept("worker-1");
    let answer = listed(&life, "");
    check_answer("certificates", &answer);
    let all: CertificateList = from_text(&answer.json).unwrap();
    assert_eq!(all.authorities.len(), 5);
    assert_eq!(all.silent, [minion("worker-1")]);
    let one: CertificateList = from_text(&listed(&life, "boot*").json).unwrap();
    assert_eq!((one.authorities.len(), one.silent.len()), (0, 0));
    assert_eq!(one.hosts, all.hosts);
    life.kill();
}

#[test]
fn a_renewal_at_once_takes_one_host_after_the_other_and_nothing_else() {
    let site = Site::new(TREE);
    let life = life(&site);
    let hosts = ["bootstrap-1", "worker-1"].map(host);
    for host in &hosts {
        life.connect(host);
    }
    life.run("state.certificates", "*", json!({"at_once": true}), false);
    for host in &hosts {
        let journal = host.journal.lock().unwrap();
        assert_eq!(journal.applied, ["certificate"], "{}", host.id);
        let job = journal
            .received
            .iter()
            .find(|job| job.function == "state.apply");
        let low: LowState = serde_json::from_str(&job.unwrap().low_json).unwrap();
        assert_eq!(low.chunks[0].args["renew_days"], 364);
    }
    let jobs = life.runtime.block_on(life.store.jobs(1)).unwrap();
    let order: Vec<Vec<&str>> = (jobs[0].order.iter())
        .map(|group| group.iter().map(|host| host.as_str()).collect())
        .collect();
    assert_eq!(order, [["bootstrap-1"], ["worker-1"]]);
    life.kill();
}
