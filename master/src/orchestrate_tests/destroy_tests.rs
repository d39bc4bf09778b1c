//! The shipped orchestration that ends a cluster, on scripted minions.

use serde_json::{Value, json};

use super::fixture::{TREE, applied, key, killed, newest_run, orchestrate, request, resumed};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

const SLS: &str = "halite.orchestrate.destroy";

/// The names of the hosts, the master's host last.
const HOSTS: [&str; 4] = ["worker-1", "worker-2", "cp-2", "bootstrap-1"];

/// A site with another worker and another control plane.
fn site() -> Site {
    let site = Site::new(TREE);
    for (name, address, roles) in [
        ("worker-2", "10.10.1.13", "worker"),
        ("cp-2", "10.10.0.12", "control-plane, etcd"),
    ] {
        let text = format!(
            "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [{roles}]\naddress: {address}\n"
        );
        std::fs::write(site.path().join(format!("etc/nodes/{name}.yaml")), text).unwrap();
    }
    site
}

fn minions() -> [ScriptedMinion; 4] {
    HOSTS.map(ScriptedMinion::new)
}

fn confirmed() -> Value {
    json!({"force": true, "cluster": "test"})
}

fn destroy(life: &Life, pillar: &Value) -> (i32, String) {
    orchestrate(life, request(SLS, pillar))
}

fn has_key(life: &Life, id: &str) -> bool {
    key(life, id).is_some()
}

#[test]
fn all_hosts_leave_and_the_one_with_the_master_is_last() {
    let site = site();
    let life = site.live();
    let all = minions();
    all.iter().for_each(|minion| life.connect(minion));
    let (retcode, data) = destroy(&life, &confirmed());
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(applied(&all[0]), ["mounts", "host", "minion"]);
    assert_eq!(applied(&all[1]), ["mounts", "host", "minion"]);
    let with_address = ["mounts", "address", "host", "minion"];
    assert_eq!(applied(&all[2]), with_address);
    assert_eq!(applied(&all[3]), with_address);
    // A key means that its host has not left; the last host's key ends with the master.
    assert_eq!(
        HOSTS.map(|host| has_key(&life, host)),
        [false, false, false, true]
    );
    // One group after the other.
    let began = |minion: &ScriptedMinion, index: usize| {
        minion.journal.lock().unwrap().received[index].job.clone()
    };
    assert!(began(&all[0], 2) < began(&all[2], 1) && began(&all[2], 2) < began(&all[3], 1));
    assert_eq!(began(&all[0], 1), began(&all[1], 1));
}

#[test]
fn nothing_is_touched_without_the_clusters_name_or_while_a_host_is_offline() {
    let site = site();
    let life = site.live();
    let all = minions();
    for minion in [&all[0], &all[2], &all[3]] {
        life.connect(minion);
    }
    life.accept("worker-2");
    for (pillar, reason) in [
        (json!({}), "it takes --force --cluster test"),
        (
            json!({"force": true, "cluster": "prod"}),
            "--cluster prod is not this cluster, which is test",
        ),
        (confirmed(), "not connected: worker-2; start them"),
    ] {
        let (retcode, data) = destroy(&life, &pillar);
        assert_eq!(retcode, 1, "{data}");
        assert!(data.contains(reason), "{data}");
    }
    assert!(all.iter().all(|minion| applied(minion).is_empty()));

    let pillar = json!({"force": true, "cluster": "test", "skip_offline": true, "wipe_data": true, "packages": true});
    let (retcode, data) = destroy(&life, &pillar);
    assert_eq!(retcode, 0, "{data}");
    assert!(
        data.contains("worker-2 is not connected: what Halite put there stays"),
        "{data}"
    );
    assert_eq!(
        applied(&all[0]),
        [
            "mounts",
            "data_mounts",
            "host",
            "data",
            "packages",
            "minion"
        ]
    );
    assert!(applied(&all[1]).is_empty() && has_key(&life, "worker-2"));
}

#[test]
fn a_mount_on_one_host_keeps_all_as_they_are() {
    let site = site();
    let life = site.live();
    let all = minions();
    all.iter().for_each(|minion| life.connect(minion));
    all[1]
        .journal
        .lock()
        .unwrap()
        .failing
        .insert("mounts".into());
    let (retcode, data) = destroy(&life, &confirmed());
    assert_eq!(retcode, 1, "{data}");
    assert!(data.contains("worker-2"), "{data}");
    assert!(all.iter().all(|minion| applied(minion) == ["mounts"]));
}

#[test]
fn a_host_that_has_left_is_not_asked_when_the_command_is_repeated() {
    let site = site();
    let life = site.live();
    let all = minions();
    all.iter().for_each(|minion| life.connect(minion));
    all[1]
        .journal
        .lock()
        .unwrap()
        .failing
        .insert("minion".into());
    let (retcode, data) = destroy(&life, &confirmed());
    assert_eq!(retcode, 1, "{data}");
    assert_eq!(
        HOSTS.map(|host| has_key(&life, host)),
        [false, true, true, true]
    );
    assert!(applied(&all[2]) == ["mounts"] && applied(&all[3]) == ["mounts"]);

    all[1].journal.lock().unwrap().failing.clear();
    let (retcode, data) = destroy(&life, &confirmed());
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(applied(&all[0]), ["mounts", "host", "minion"]);
    assert_eq!(applied(&all[3]).last().unwrap(), "minion");
}

/// The master is killed after each event in turn.
#[test]
fn a_destruction_killed_at_any_event_continues_where_it_stopped() {
    for kill_after in 1.. {
        let site = site();
        let all = minions();
        let life = site.live();
        all.iter().for_each(|minion| life.connect(minion));
        let ended = killed(life, request(SLS, &confirmed()), kill_after);
        let life = site.live();
        let run = newest_run(&life);
        // A host that has left does not come back.
        for minion in all.iter().filter(|host| has_key(&life, &host.id)) {
            life.reconnect(minion);
        }
        let (retcode, data) = resumed(&life, &run);
        assert_eq!(retcode, 0, "killed after {kill_after}: {data}");
        assert_eq!(applied(&all[0]), ["mounts", "host", "minion"]);
        assert_eq!(
            applied(&all[3]),
            ["mounts", "address", "host", "minion"],
            "killed after {kill_after}"
        );
        assert_eq!(
            HOSTS.map(|host| has_key(&life, host)),
            [false, false, false, true],
            "killed after {kill_after}"
        );
        if ended {
            return;
        }
    }
}
