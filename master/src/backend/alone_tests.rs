//! A master that has lost its standbys and most of its minions.

use std::sync::Arc;

use halite_core::clock::Steady;
use halite_core::isolation::{AFTER, Surroundings};
use halite_core::refusal::RefusalKind;
use halite_core::roster::FollowState;
use halite_proto::v1;
use serde_json::{Value, json};

use super::fixture::{ScriptedMinion, Site};
use super::hand_over_tests::site;
use super::wire::Wire;

/// It notices this, answers questions, and `ctl status` gives the reason why it starts no new work
/// (docs/decisions/0044-a-master-that-is-cut-off.md).
#[test]
fn a_master_that_has_lost_its_standbys_and_most_minions_says_so() {
    let (site, members) = site();
    members.stop("cp-2");
    members.stop("cp-3");
    let life = site.live();
    for name in ["cp-2", "cp-3"] {
        life.accept(name);
        let number = life.app.standbys.enter(name, Arc::default(), 1);
        life.app
            .standbys
            .set(name, number, FollowState::Following, "", 2);
        life.app
            .standbys
            .set(name, number, FollowState::Gone, "cut off", 3);
    }
    life.accept("worker-1");
    life.connect(&ScriptedMinion::new("bootstrap-1"));
    let seen = life.runtime.block_on(life.backend.surroundings()).unwrap();
    let lost = Surroundings {
        standbys: 2,
        alone_since: Some(3),
        accepted: 4,
        connected: 1,
    };
    assert_eq!(seen, lost);
    life.app.isolation.look(Steady(0), seen);
    life.app.isolation.look(Steady(AFTER), seen);
    let events = life.run("test.ping", "bootstrap-1", json!({}), false);
    let last = events.last().unwrap();
    assert_eq!(last.retcode, 0, "{}", last.data_json);

    let status = life.runtime.block_on(life.backend.status()).unwrap();
    let status = halite_api::to_value(&status);
    let masters = &status["masters"];
    assert_eq!(masters["aloneSince"], "1970-01-01T00:00:00.003Z");
    for standby in masters["standbys"].as_array().unwrap() {
        assert_eq!(
            (&standby["state"], &standby["reason"]),
            (&json!("gone"), &json!("cut off"))
        );
    }
    assert_eq!(status["health"]["healthy"], false);
    let found = |name: &str| {
        let checks = status["health"]["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["name"] == name).unwrap();
        (check["state"].clone(), check["findings"].to_string())
    };
    for (check, state, texts) in [
        (
            "standbys",
            "warning",
            &[
                "the master starts no new work: ",
                "this master has had no standby since",
                "cp-2 has been gone",
                "cp-3 has been gone",
            ][..],
        ),
        ("minions", "failure", &["cp-2", "cp-3", "worker-1"]),
        ("etcd-quorum", "failure", &["0 of them serve: no quorum"]),
    ] {
        let (found_state, findings) = found(check);
        assert_eq!(found_state, Value::from(state), "{check}: {findings}");
        for text in texts {
            assert!(findings.contains(text), "{check}, {text}: {findings}");
        }
    }
}

#[test]
fn an_isolated_master_answers_and_begins_nothing() {
    let site = Site::new(&[
        ("top.sls", "base:\n  '*':\n    - host\n"),
        ("host.sls", "motd:\n  test.nop: []\n"),
    ]);
    let life = site.live();
    for name in ["bootstrap-1", "worker-1"] {
        life.connect(&ScriptedMinion::new(name));
    }
    let lost = Surroundings {
        standbys: 1,
        alone_since: Some(0),
        accepted: 5,
        connected: 2,
    };
    life.app.isolation.look(Steady(0), lost);
    life.app.isolation.look(Steady(AFTER), lost);
    let pinged = life.run("test.ping", "*", json!({}), false);
    assert_eq!(pinged.last().unwrap().retcode, 0);
    let planned = life.run("state.highstate", "worker-1", json!({}), true);
    assert_eq!(planned.last().unwrap().retcode, 0, "a test changes nothing");
    let request = v1::RunRequest {
        function: "state.highstate".to_owned(),
        target: "worker-1".to_owned(),
        ..v1::RunRequest::default()
    };
    let begun = life.runtime.block_on(life.backend.run("root", request));
    let refused = begun.err().unwrap();
    assert_eq!(refused.kind, RefusalKind::Conflict);
    let said = refused.message;
    assert!(said.contains("cannot begin state.highstate"), "{said}");
    let orchestration = v1::OrchestrateRequest {
        sls: "host".to_owned(),
        ..v1::OrchestrateRequest::default()
    };
    let begun = life.backend.orchestrate("root", orchestration);
    let refused = life.runtime.block_on(begun).err().unwrap();
    assert!(
        refused.message.contains("2 of 5 minions"),
        "{}",
        refused.message
    );
}

/// A site with four accepted hosts, two of them declared standbys, whose master was killed.
fn killed() -> Site {
    let (site, _) = site();
    let life = site.live();
    for name in ["bootstrap-1", "cp-2", "cp-3", "worker-1"] {
        life.accept(name);
    }
    life.kill();
    site
}

fn command(target: &str) -> v1::RunRequest {
    v1::RunRequest {
        function: "cmd.run".to_owned(),
        args_json: json!({"cmd": "true"}).to_string(),
        target: target.to_owned(),
        ..v1::RunRequest::default()
    }
}

#[test]
fn an_order_shortly_after_the_start_waits_until_half_of_the_hosts_are_connected() {
    let site = killed();
    let life = site.live();
    life.app.isolation.serves();
    life.reconnect(&ScriptedMinion::new("bootstrap-1"));
    let backend = Arc::clone(&life.backend);
    let order = async move { backend.run("root", command("bootstrap-1")).await.map(drop) };
    let order = life.runtime.spawn(order);
    // Questions are answered.
    let pinged = life.run("test.ping", "bootstrap-1", json!({}), false);
    assert_eq!(pinged.last().unwrap().retcode, 0);
    let reason = life.app.isolation.reason().unwrap();
    assert!(reason.contains("no standby follows it yet"), "{reason}");
    assert!(reason.contains("1 of 4 minions"), "{reason}");
    assert!(!order.is_finished());
    life.reconnect(&ScriptedMinion::new("worker-1"));
    life.runtime.block_on(order).unwrap().unwrap();
    life.kill();
}

#[test]
fn a_master_that_starts_alone_sends_nothing_that_has_waited_for_a_host() {
    let site = killed();
    let life = site.live();
    life.app.isolation.all_have_answered(true);
    let begun = life.backend.run("root", command("worker-1"));
    drop(life.runtime.block_on(begun).unwrap());
    life.kill();

    let life = site.live();
    let mut wire = Wire::connect(&life, "worker-1");
    for _ in 0..2 {
        life.runtime.block_on(life.backend.probe()).unwrap();
    }
    assert!(wire.messages.try_recv().is_err(), "it was sent a job");
    let _other = Wire::connect(&life, "bootstrap-1");
    wire.job();
    life.kill();
}

#[test]
fn a_master_that_starts_and_cannot_read_what_is_declared_begins_nothing_and_says_why() {
    let site = killed();
    let state = site.path().join("state/last-valid");
    std::fs::remove_dir_all(state).unwrap();
    std::fs::write(site.path().join("etc/cluster.yaml"), "kind: [").unwrap();
    let life = site.live();
    let reason = life.app.isolation.reason().unwrap();
    assert!(reason.contains("cluster.yaml"), "{reason}");
    life.reconnect(&ScriptedMinion::new("bootstrap-1"));
    let begun = life.backend.run("root", command("bootstrap-1"));
    let refused = life.runtime.block_on(begun).err().unwrap();
    assert!(refused.message.contains("cluster.yaml"), "{refused}");
    life.kill();
}
