//! The rotation of a CA waits for each host that must take part, and does not begin in the middle
//! of an upgrade.

use std::sync::Arc;
use std::time::Duration;

use halite_core::declared::KeyStep;
use halite_core::roster::FollowState;
use halite_etcd::fake::FakeCluster;
use serde_json::json;

use super::ca_identities_tests::OWN;
use super::ca_tests::{TREE, file, plane, put_namespace, rotate, stored};
use super::encryption_fixture::{ENCRYPTED, WAIT, declare, declare_node, standbys};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

fn tree() -> Vec<(&'static str, String)> {
    let all = TREE.iter().chain(OWN);
    all.map(|(path, text)| (*path, text.replace(WAIT.0, WAIT.1)))
        .collect()
}

/// A site with two bundles and three members of etcd.
pub(super) fn site() -> Site {
    let tree = tree();
    let tree: Vec<(&str, &str)> = (tree.iter())
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    let mut site = Site::new(&tree);
    for version in ["0.1.0", "0.2.0"] {
        site.bundle(&format!("bundles/{version}"), version, &tree);
    }
    let members = FakeCluster::new(&["bootstrap-1", "cp-2", "cp-3"]);
    site.etcd = Some((Arc::new(members), Duration::from_secs(1)));
    put_namespace(&site);
    site
}

/// Declares a second control plane, which is a standby of the master.
pub(super) fn declare_plane(site: &Site, resolved: &str) {
    declare_node(site, "cp-2", "10.10.0.12", resolved);
}

/// The section of the second control plane's document once it has joined.
pub(super) const JOINED: &str = "resolved:\n  controlPlane: 10.10.0.12\n  workloadPlane: 10.10.0.12\n  etcd:\n    member: cp-2\n    \
     initialCluster: \"cp-2=https://10.10.0.12:2380\"\n";

pub(super) fn connect(life: &Life, minions: &[&ScriptedMinion]) {
    minions.iter().for_each(|minion| life.connect(minion));
}

#[test]
fn a_ca_does_not_rotate_without_a_control_plane() {
    let site = site();
    declare_plane(&site, "");
    let life = site.live();
    let (first, worker) = (plane(&site), ScriptedMinion::new("worker-1"));
    connect(&life, &[&first, &worker]);
    standbys(&life, &["cp-2"], FollowState::Following);
    let pillar = json!({"ca": "kubernetes"});
    let (retcode, data) = rotate(&life, &pillar);
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains(
            "cp-2 is declared as a control plane and has not joined: finish `ctl node add cp-2`"
        ),
        "{data}"
    );
    declare_plane(&site, JOINED);
    life.accept("cp-2");
    let compromised = json!({"ca": "kubernetes", "compromised": true});
    for (pillar, command) in [
        (&pillar, "run `ctl certs rotate kubernetes` again"),
        (
            &compromised,
            "run `ctl certs rotate kubernetes --compromised` again",
        ),
    ] {
        let (retcode, data) = rotate(&life, pillar);
        assert_eq!(retcode, 1, "{data}");
        for part in [
            "cp-2 is not connected",
            "ctl node remove cp-2 --dead",
            command,
        ] {
            assert!(data.contains(part), "{part}: {data}");
        }
        assert_eq!(stored(&site).rotation("kubernetes"), None);
    }
}

/// A standby that is away would become a master with the old CA.
#[test]
fn a_standby_that_does_not_follow_stops_the_rotation_of_a_ca() {
    let site = site();
    declare_plane(&site, JOINED);
    let life = site.live();
    let (first, worker) = (plane(&site), ScriptedMinion::new("worker-1"));
    // It leaves when the new CA arrives.
    let app = Arc::clone(&life.app);
    let second = ScriptedMinion::new("cp-2").on(move |job| {
        file(job, "/ca.crt")?;
        let number = app.standbys.enter("cp-2", Arc::default(), 1);
        app.standbys.set("cp-2", number, FollowState::Gone, "", 2);
        None
    });
    connect(&life, &[&first, &second, &worker]);
    let pillar = json!({"ca": "kubernetes"});
    for state in [FollowState::Gone, FollowState::Following] {
        standbys(&life, &["cp-2"], state);
        let (retcode, data) = rotate(&life, &pillar);
        assert_eq!(retcode, 1, "{data}");
        for part in [
            "a standby would lack the CA",
            "do not follow the master: cp-2 (gone)",
            "ctl master list",
        ] {
            assert!(data.contains(part), "{part}: {data}");
        }
        let stage = stored(&site).rotation("kubernetes");
        let begun = state == FollowState::Following;
        assert_eq!(stage.map(|stage| stage.name()), begun.then_some("trust"));
    }
}

#[test]
fn a_compromised_ca_is_not_rotated_in_stages_later() {
    let site = site();
    let life = site.live();
    let (first, worker) = (plane(&site), ScriptedMinion::new("worker-1"));
    connect(&life, &[&first, &worker]);
    let fail = |state: Option<&str>| {
        let failing = state.into_iter().map(str::to_owned);
        worker.journal.lock().unwrap().failing = failing.collect();
    };
    fail(Some("/node-ca.crt"));
    let compromised = json!({"ca": "kubernetes", "compromised": true});
    assert_eq!(rotate(&life, &compromised).0, 1);
    fail(None);
    let (retcode, data) = rotate(&life, &json!({"ca": "kubernetes"}));
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("ctl certs rotate kubernetes --compromised"),
        "{data}"
    );
    let (retcode, data) = rotate(&life, &compromised);
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(stored(&site).rotation("kubernetes"), None);
}

#[test]
fn no_rotation_begins_in_the_middle_of_an_upgrade() {
    let site = site();
    declare(
        &site,
        &format!("{ENCRYPTED}\nresolved: {{kubernetes: v1.36.3, bundle: \"0.2.0\"}}"),
    );
    let worker = site.path().join("etc/nodes/worker-1.yaml");
    let document = std::fs::read_to_string(&worker).unwrap();
    let set = |own: &str| {
        let resolved =
            format!("resolved: {{controlPlane: 10.10.1.12, workloadPlane: 10.10.1.12{own}}}\n");
        std::fs::write(&worker, format!("{document}{resolved}")).unwrap();
    };
    set(", kubernetes: v1.36.3, bundle: \"0.1.0\"");
    let life = site.live();
    let (first, minion) = (plane(&site), ScriptedMinion::new("worker-1"));
    connect(&life, &[&first, &minion]);
    let pillar = json!({"ca": "front-proxy"});
    let (retcode, data) = rotate(&life, &pillar);
    assert_eq!(retcode, 1, "{data}");
    let next_key = || {
        let declarations = life.backend.jobs().declarations();
        let step = declarations.step_keys(KeyStep::Next);
        let stepped = life.runtime.block_on(step);
        stepped.map(|_| ()).map_err(|refusal| refusal.message)
    };
    let refused = next_key().unwrap_err();
    for said in [&data, &refused] {
        for part in ["the bundles 0.1.0 and 0.2.0", "ctl upgrade resume"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    assert_eq!(stored(&site).rotation("front-proxy"), None);
    set("");
    let (retcode, data) = rotate(&life, &pillar);
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(next_key(), Ok(()));
}
