//! The shipped rotation of Halite's own CAs: `halite`, for which minions and operators take part,
//! and `site`.

use std::sync::Arc;
use std::time::Duration;

use halite_core::ca::{HALITE, SITE};
use halite_fleet::keys;
use halite_fleet::keys::NewOperator;
use halite_pillar::ca_rotation::{CaRotation, RotationStage};
use halite_proto::pki::PrivateKey;
use halite_proto::v1;
use serde_json::json;

use super::ca_tests::{TREE, contents, joined, rotate, stored};
use super::fixture::{findings, newest_run};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

/// The states have the form of the shipped ones: the CA on each host, and on servers the script
/// with both CAs.
pub(super) const OWN: &[(&str, &str)] = &[
    (
        "halite/host/repository.sls",
        "/site-ca.crt:\n  file.managed:\n    - contents: {{ pillar.halite.pki.site.cert | json }}\n",
    ),
    (
        "halite/services/bundle_server.sls",
        "/enrol.sh:\n  file.managed:\n    - contents: {{ (pillar.halite.pki.halite.cert ~ pillar.halite.pki.site.cert) | json }}\n",
    ),
    (
        "halite/services/operator.sls",
        "/operator-ca.crt:\n  file.managed:\n    - contents: {{ pillar.halite.pki.halite.cert | json }}\n",
    ),
    (
        "halite/services/site_registry.sls",
        "registry:\n  test.nop: []\n",
    ),
    (
        "halite/services/master/metrics.sls",
        "metrics:\n  test.nop: []\n",
    ),
];

/// The limit of a wait for holders of identities in the shipped orchestration, and in these tests:
/// the pillar `silent` names the holders for which a run waits in vain, so it waits only a second.
const WAIT: (&str, &str) = (
    "- timeout: {{ timeout }}\n",
    "- timeout: {{ 1 if of == pillar.get('silent') else timeout }}\n",
);

pub(super) fn site() -> Site {
    let all = TREE.iter().chain(OWN);
    let all: Vec<(&str, String)> = all
        .map(|(path, text)| (*path, text.replace(WAIT.0, WAIT.1)))
        .collect();
    let tree: Vec<(&str, &str)> = (all.iter())
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    Site::new(&tree)
}

fn ca(site: &Site, name: &str) -> String {
    stored(site).certificate_pem(name).unwrap().to_owned()
}

/// The CAs of identities that a minion has trusted, in order.
pub(super) fn cas(minion: &ScriptedMinion) -> Vec<String> {
    minion.journal.lock().unwrap().cas.clone()
}

fn hosts() -> [ScriptedMinion; 2] {
    ["bootstrap-1", "worker-1"].map(ScriptedMinion::new)
}

/// Checks the stages that both hosts have seen, and that the rotation of `halite` has ended.
pub(super) fn check_stages(site: &Site, old: &str, hosts: [&ScriptedMinion; 2], case: &str) {
    let new = ca(site, HALITE);
    assert_ne!(new, old, "{case}");
    let wanted = [joined(old, &new), joined(&new, old), new];
    for host in hosts {
        assert_eq!(cas(host), wanted, "{case}: {}", host.id);
    }
    assert_eq!(contents(hosts[0], "/operator-ca.crt"), wanted, "{case}");
    let script: Vec<String> = contents(hosts[0], "/enrol.sh");
    assert!(
        script
            .iter()
            .zip(&wanted)
            .all(|(text, cas)| text.starts_with(cas)),
        "{case}"
    );
    assert_eq!(script.len(), 3, "{case}");
    let record = site.path().join("state").join(CaRotation::path(HALITE));
    assert!(!record.exists(), "{case}");
    let dropped = stored(site);
    assert_eq!(dropped.dropped(HALITE).collect::<Vec<_>>(), [old], "{case}");
}

/// Each minion trusts both CAs before the new one signs, and loses the old one last.
#[test]
fn the_ca_of_identities_reaches_all_minions_stage_by_stage() {
    let site = site();
    let life = site.live();
    let [first, worker] = hosts();
    life.connect(&first);
    life.connect(&worker);
    let old = ca(&site, HALITE);
    let (retcode, data) = rotate(&life, &json!({"ca": HALITE}));
    assert_eq!(retcode, 0, "{data}");
    check_stages(&site, &old, [&first, &worker], "whole");
    assert_eq!(stored(&site).stage_number(HALITE), 3);
    let key = stored(&site).key_pem(HALITE).unwrap().to_owned();
    let body = key.lines().nth(1).unwrap();
    assert!(!format!("{:?}{data}", newest_run(&life)).contains(body));
    assert!(!life.everything_stored(&site).contains(body));
}

#[test]
fn the_ca_of_identities_waits_for_each_host_in_each_stage_and_names_it() {
    let site = site();
    let life = site.live();
    let [first, worker] = hosts();
    life.connect(&first);
    life.accept("worker-1");
    let old = ca(&site, HALITE);
    let without_worker = json!({"ca": HALITE, "silent": "hosts"});
    let (retcode, data) = rotate(&life, &without_worker);
    assert_eq!(retcode, 1, "{data}");
    for part in ["worker-1 (not connected)", "halite-minion enrol --force"] {
        assert!(data.contains(part), "{part}: {data}");
    }
    assert_eq!(stored(&site).rotation(HALITE), Some(RotationStage::Trust));
    let found = findings(&life, "ca-rotation");
    assert!(
        found.contains("the rotation of the CA halite has not ended"),
        "{found}"
    );
    let earlier = ScriptedMinion {
        keeps_its_ca: true,
        ..worker.clone()
    };
    life.connect(&earlier);
    let (retcode, data) = rotate(&life, &without_worker);
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("worker-1 (its minion is of an earlier version"),
        "{data}"
    );
    assert_eq!(stored(&site).rotation(HALITE), Some(RotationStage::Trust));
    life.connect(&worker);
    let (retcode, data) = rotate(&life, &json!({"ca": HALITE}));
    assert_eq!(retcode, 0, "{data}");
    check_stages(&site, &old, [&first, &worker], "continued");
}

/// Creates an operator; returns the certificate request of their key.
fn operator(life: &Life, name: &str) -> String {
    let csr_pem = PrivateKey::generate().unwrap().request(name).unwrap();
    let wanted = NewOperator {
        name: name.to_owned(),
        role: "viewer".to_owned(),
        days: 0,
        csr_pem: csr_pem.clone(),
    };
    let made = keys::create_operator(&life.app, "root", &wanted);
    life.runtime.block_on(made).unwrap();
    csr_pem
}

#[test]
fn the_old_ca_leaves_when_each_operator_has_another_certificate() {
    let site = site();
    let life = site.live();
    let [first, worker] = hosts();
    life.connect(&first);
    life.connect(&worker);
    let old = ca(&site, HALITE);
    let alice = operator(&life, "alice");
    operator(&life, "bob");
    let without_operators = json!({"ca": HALITE, "silent": "operators"});
    let (retcode, data) = rotate(&life, &without_operators);
    assert_eq!(retcode, 1, "{data}");
    for part in ["alice, bob", "ctl operator revoke"] {
        assert!(data.contains(part), "{part}: {data}");
    }
    assert_eq!(stored(&site).rotation(HALITE), Some(RotationStage::Sign));
    let request = v1::ShowRequest {
        what: "certificates".to_owned(),
        ..v1::ShowRequest::default()
    };
    let shown = life.runtime.block_on(life.backend.show(request));
    let shown = shown.unwrap().json;
    assert_eq!(shown.matches("halite (previous)").count(), 2, "{shown}");
    let revoked = keys::revoke_operator(&life.app, "root", "bob");
    life.runtime.block_on(revoked).unwrap();
    // Alice calls while the run waits.
    let app = Arc::clone(&life.app);
    life.runtime.spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        keys::renew_operator(&app, "alice", &alice).await.unwrap();
    });
    let (retcode, data) = rotate(&life, &json!({"ca": HALITE}));
    assert_eq!(retcode, 0, "{data}");
    check_stages(&site, &old, [&first, &worker], "operators");
}

/// Connected minions get the new CA before the old one leaves, so that they are not lost.
#[test]
fn a_compromised_ca_of_identities_leaves_without_a_wait_for_hosts_that_are_off() {
    let site = site();
    let life = site.live();
    let [first, worker] = hosts();
    life.connect(&first);
    life.accept("worker-1");
    operator(&life, "alice");
    let old = ca(&site, HALITE);
    let compromised = json!({"ca": HALITE, "compromised": true});
    let mut without_worker = compromised.clone();
    without_worker["silent"] = json!("hosts");
    let (retcode, data) = rotate(&life, &without_worker);
    assert_eq!(retcode, 1, "{data}");
    assert!(data.contains("worker-1 (not connected)"), "{data}");
    let new = ca(&site, HALITE);
    assert!(!new.contains(old.trim()));
    assert_eq!(cas(&first), [joined(&old, &new), new.clone()]);
    let (retcode, data) = rotate(&life, &json!({"ca": HALITE}));
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("ctl certs rotate halite --compromised"),
        "{data}"
    );
    // It has enrolled again.
    life.connect(&worker);
    let (retcode, data) = rotate(&life, &compromised);
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(cas(&worker), std::slice::from_ref(&new));
    assert_eq!(ca(&site, HALITE), new);
    assert_eq!(stored(&site).rotation(HALITE), None);
}

#[test]
fn the_ca_of_servers_reaches_all_hosts_stage_by_stage() {
    let site = site();
    let life = site.live();
    let [first, worker] = hosts();
    life.connect(&first);
    life.connect(&worker);
    let old = ca(&site, SITE);
    let (retcode, data) = rotate(&life, &json!({"ca": SITE}));
    assert_eq!(retcode, 0, "{data}");
    let new = ca(&site, SITE);
    let wanted = [joined(&old, &new), joined(&new, &old), new];
    for host in [&first, &worker] {
        assert_eq!(contents(host, "/site-ca.crt"), wanted, "{}", host.id);
    }
    let script = contents(&first, "/enrol.sh");
    assert!(
        script
            .iter()
            .zip(&wanted)
            .all(|(text, cas)| text.ends_with(cas))
    );
    assert_eq!(script.len(), 3);
    assert!(contents(&worker, "/enrol.sh").is_empty() && cas(&worker).is_empty());
}
