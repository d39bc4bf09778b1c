//! `ctl certs` on a whole master with scripted minions.

use std::sync::Arc;

use halite_api::{CertificateList, PreparedState, from_text};
use halite_core::ca::request_fingerprint;
use halite_core::clock::ManualClock;
use halite_core::names::minion;
use halite_proto::v1;
use halite_states::low::LowState;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

use super::contract::{check_answer, check_document};
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

/// A certificate for a request, and the one of the root that has signed it (PEM).
fn signed(csr: &str) -> [String; 2] {
    let root_key = KeyPair::generate().unwrap();
    let mut root = CertificateParams::default();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    root.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let root_pem = root.self_signed(&root_key).unwrap().pem();
    let mut request = CertificateSigningRequestParams::from_pem(csr).unwrap();
    request.params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    request.params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    request.params.not_before = rcgen::date_time_ymd(2026, 12, 1);
    request.params.not_after = rcgen::date_time_ymd(2037, 1, 13);
    let issuer = Issuer::new(root, root_key);
    let certificate = request.signed_by(&issuer).unwrap();
    [certificate.pem(), root_pem]
}

fn import(life: &Life, request: v1::ImportCaRequest) -> Result<halite_api::PreparedCa, String> {
    let imported = life.backend.import_ca(request);
    let imported = life.runtime.block_on(imported);
    imported.map_err(|refusal| refusal.message)
}

#[test]
fn a_ca_is_requested_imported_listed_and_discarded() {
    let site = Site::new(TREE);
    let life = life(&site);
    let prepared = |life: &Life| {
        let list: CertificateList = from_text(&listed(life, "").json).unwrap();
        list.prepared
    };
    assert_eq!(prepared(&life), []);
    let request = |name: &str| life.runtime.block_on(life.backend.request_ca(name));
    let csr = request("kubernetes").unwrap();
    check_document("ca-request", &csr);
    let [first, second] = [csr.request.clone(), request("kubernetes").unwrap().request];
    let key = request_fingerprint(&first).unwrap();
    assert_eq!(key, request_fingerprint(&second).unwrap());
    assert_eq!(prepared(&life)[0].state, PreparedState::Requested);
    let [certificate_pem, chain_pem] = signed(&csr.request);
    let wrong = v1::ImportCaRequest {
        name: "kubernetes".to_owned(),
        certificate_pem: chain_pem.clone(),
        ..v1::ImportCaRequest::default()
    };
    let said = import(&life, wrong.clone()).unwrap_err();
    assert!(said.contains("the key of the request"), "{said}");
    let right = v1::ImportCaRequest {
        certificate_pem,
        chain_pem,
        ..wrong
    };
    let imported = import(&life, right).unwrap();
    check_document("prepared-ca", &imported);
    let found = prepared(&life);
    assert_eq!((found[0].name.as_str(), found.len()), ("kubernetes", 1));
    assert_eq!(
        (&found[0].state, found[0].days_left),
        (&imported.state, Some(3650))
    );
    for name in ["halite", "site", "x"] {
        let said = request(name).unwrap_err().message;
        assert!(
            said.contains("name kubernetes, etcd or front-proxy"),
            "{said}"
        );
    }
    let discard = v1::ImportCaRequest {
        name: "kubernetes".to_owned(),
        discard: true,
        ..v1::ImportCaRequest::default()
    };
    let discarded = import(&life, discard.clone()).unwrap();
    assert_eq!(discarded.state, PreparedState::Discarded);
    let said = import(&life, discard).unwrap_err();
    assert!(said.contains("none was requested or imported"), "{said}");
    assert_eq!(prepared(&life), []);
    life.kill();
}

/// Its key is in the directory of the CAs, and nowhere else.
#[test]
fn an_imported_key_is_in_no_record_and_outlives_the_master() {
    let site = Site::new(TREE);
    let first = life(&site);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let request = v1::ImportCaRequest {
        name: "etcd".to_owned(),
        certificate_pem: params.self_signed(&key).unwrap().pem(),
        key_pem: key.serialize_pem(),
        ..v1::ImportCaRequest::default()
    };
    let text = key.serialize_pem();
    let body = text.lines().nth(1).unwrap();
    let said = format!("{request:?}");
    let imported = import(&first, request).unwrap();
    let stored = first.everything_stored(&site);
    for text in [said, format!("{imported:?}"), stored] {
        assert!(!text.contains(body), "{text}");
    }
    first.kill();
    let second = life(&site);
    let list: CertificateList = from_text(&listed(&second, "").json).unwrap();
    assert_eq!(list.prepared.len(), 1);
    let saved = halite_core::saved::keys(&second.app.config).unwrap();
    let (mode, content) = &saved["state/ca/etcd.next.json"];
    assert_eq!(*mode, 0o600);
    assert!(String::from_utf8_lossy(content).contains(body));
    second.kill();
}
