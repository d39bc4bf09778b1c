//! The shipped rotation of the keys of objects in etcd.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use halite_core::names::minion;
use halite_core::refusal::RefusalKind;
use halite_core::roster::FollowState;
use halite_pillar::encryption_keys::{EncryptionKeys, KEYS_FILE, key_path};
use halite_proto::ids::JobId;
use halite_store::RunStatus;
use serde_json::{Value, json};

use super::encryption_fixture::{
    ENCRYPTED, Planes, ROTATE, apply, declare, declare_node, keys, load, names, rotate, site,
    standbys,
};
use super::fixture::{
    cut_off_in_each_step, findings, killed_in_each_step, killed_in_job, newest_run, request,
};
use crate::backend::fixture::{Life, Site};

const THREE: [&str; 3] = ["bootstrap-1", "cp-2", "cp-3"];

/// A site with three control planes that encrypt, and a master whose standbys follow.
fn three() -> (Site, Planes) {
    let site = site(&["cp-2", "cp-3"]);
    declare(&site, ENCRYPTED);
    (site, Planes::default())
}

fn live(site: &Site, planes: &Planes) -> Life {
    let life = site.live();
    standbys(&life, &THREE[1..], FollowState::Following);
    load(&life);
    planes.connect(&life, &THREE);
    life
}

#[test]
fn a_new_cluster_encrypts_at_once_and_a_running_one_after_a_rotation() {
    let new = site(&[]);
    declare(&new, ENCRYPTED);
    let life = new.live();
    load(&life);
    assert_eq!(names(&new).writer, Some(names(&new).names[0].clone()));
    assert_eq!(findings(&life, "encryption"), "[]");

    let (running, planes) = (site(&["cp-2", "cp-3"]), Planes::default());
    let life = live(&running, &planes);
    assert_eq!(keys(&running), None);
    let (retcode, data) = rotate(&life);
    assert_eq!(retcode, 1, "{data}");
    assert!(data.contains("declares no encryption"), "{data}");
    declare(&running, ENCRYPTED);
    load(&life);
    assert_eq!(names(&running).writer, None);
    let found = findings(&life, "encryption");
    assert!(
        found.contains("still write plain text; `ctl certs rotate encryption` begins"),
        "{found}"
    );
    let first = names(&running).names;
    let (retcode, data) = rotate(&life);
    assert_eq!(retcode, 0, "{data}");
    // The rotation takes no second key.
    assert_eq!(names(&running).names, first);
    assert_eq!(names(&running).writer, Some(first[0].clone()));
    planes.assert_all_have(&THREE, &keys(&running).unwrap(), "the beginning");
    assert_eq!(
        *running.api.writes.lock().unwrap(),
        ["replace Secret default/a"]
    );
    assert_eq!(findings(&life, "encryption"), "[]");
}

/// The hosts get the keys, and nothing that the master keeps or shows has them.
#[test]
fn a_rotation_reaches_each_control_plane_before_the_next_stage() {
    let (site, planes) = three();
    let life = live(&site, &planes);
    assert_eq!(apply(&life, &THREE), [0, 0, 0]);
    planes.history.lock().unwrap().clear();
    let older = keys(&site).unwrap();
    let (retcode, data) = rotate(&life);
    assert_eq!(retcode, 0, "{data}");
    let own = keys(&site).unwrap();
    planes.assert_all_have(&THREE, &own, "the end");
    let (one, two) = (&older.names().names[0], &own.names().names[0]);
    assert!(
        one.starts_with("key1-") && two.starts_with("key2-"),
        "{own:?}"
    );
    let mut wanted = Vec::new();
    for (stage, writer) in [(2, one), (3, two), (4, two)] {
        for host in THREE {
            wanted.push(format!(
                "{host}: # Stage {stage} of the keys, {writer} encrypts"
            ));
        }
    }
    assert_eq!(*planes.history.lock().unwrap(), wanted);
    let record = format!("{:?}{data}", newest_run(&life));
    let stored = life.everything_stored(&site);
    for key in [&older, &own] {
        let secret = key.secret(&key.paths().next().unwrap()).unwrap();
        assert!(!record.contains(secret), "{record}");
        assert!(!stored.contains(secret));
    }
    // The next rotation takes a third key.
    let (retcode, data) = rotate(&life);
    assert_eq!(retcode, 0, "{data}");
    assert!(names(&site).names[0].starts_with("key3-"));
    planes.assert_all_have(&THREE, &keys(&site).unwrap(), "the second");
}

/// The master is killed in each step. The run that it resumes ends with the same keys.
#[test]
fn a_rotation_whose_master_is_killed_in_each_step_ends_with_one_new_key() {
    let (site, planes) = three();
    let life = live(&site, &planes);
    assert_eq!(apply(&life, &THREE), [0, 0, 0]);
    life.kill();
    let request = request(ROTATE, &json!({}));
    let (_life, retcode, data) = killed_in_each_step(|| live(&site, &planes), request);
    assert_eq!(retcode, 0, "{data}");
    check_end(&site, &planes, "killed in each step");
}

/// Checks that the second key has replaced the first one on all hosts, and that nothing of the
/// rotation is left.
fn check_end(site: &Site, planes: &Planes, case: &str) {
    let own = keys(site).unwrap();
    assert_eq!(own.names().names.len(), 1, "{case}: {own:?}");
    assert!(own.names().names[0].starts_with("key2-"), "{case}: {own:?}");
    assert!(!own.names().rotates, "{case}");
    planes.assert_all_have(&THREE, &own, case);
    let writes = site.api.writes.lock().unwrap();
    assert!(
        writes.contains(&"replace Secret default/a".to_owned()),
        "{case}"
    );
}

/// The minion of each control plane is killed in each of its jobs.
#[test]
fn a_minion_that_is_killed_in_any_job_gets_the_keys_again() {
    for host in THREE {
        for after in 0.. {
            let (site, planes) = three();
            let life = live(&site, &planes);
            assert_eq!(apply(&life, &THREE), [0, 0, 0]);
            let jobs = Arc::new(AtomicUsize::new(0));
            life.reconnect(&killed_in_job(&planes.minion(host), after, &jobs));
            let (retcode, data) = rotate(&life);
            let case = format!("{host} in its job {after}");
            assert_eq!(retcode, 0, "{case}: {data}");
            check_end(&site, &planes, &case);
            life.kill();
            if jobs.load(Ordering::SeqCst) <= after {
                assert!(after > 3, "{host} had only {after} jobs");
                break;
            }
        }
    }
}

/// A control plane is cut off in each step. If the run ends without it, the same command completes
/// the rotation: another one would take a third key.
#[test]
fn a_rotation_that_loses_a_control_plane_is_completed_by_the_same_command() {
    for host in THREE {
        let (site, planes) = three();
        let life = live(&site, &planes);
        assert_eq!(apply(&life, &THREE), [0, 0, 0]);
        let request = request(ROTATE, &json!({}));
        let (retcode, data) = cut_off_in_each_step(&life, &request, &planes.minion(host));
        let case = format!("{host} in each step");
        assert_eq!(retcode, 0, "{case}: {data}");
        check_end(&site, &planes, &case);
        life.kill();
    }
}

/// A host fails at each stage in turn: the run stops with its locks free, and the same command
/// continues with the same keys.
#[test]
fn a_rotation_that_stopped_at_any_stage_continues_with_the_same_keys() {
    for stage in 2..=4 {
        let (site, planes) = three();
        let life = live(&site, &planes);
        assert_eq!(apply(&life, &THREE), [0, 0, 0]);
        planes.fail_at("cp-2", Some(stage));
        let (retcode, data) = rotate(&life);
        assert_eq!(retcode, 1, "stage {stage}: {data}");
        let found = findings(&life, "encryption");
        assert!(found.contains("has not ended"), "stage {stage}: {found}");
        let stopped = keys(&site).unwrap();
        assert_eq!(stopped.names().stage, stage);
        let other = JobId::from_number(1);
        for lock in ["etcd-members", "encryption-keys"] {
            let held = life.store.take_lock(lock, &other, 1);
            assert_eq!(life.runtime.block_on(held).unwrap(), None, "{lock}");
            let released = life.store.release_lock(lock, &other);
            life.runtime.block_on(released).unwrap();
        }
        planes.fail_at("cp-2", None);
        let (retcode, data) = rotate(&life);
        assert_eq!(retcode, 0, "stage {stage}: {data}");
        let own = keys(&site).unwrap();
        assert_eq!(own.names().names.last(), stopped.names().names.last());
        planes.assert_all_have(&THREE, &own, &format!("stage {stage}"));
        assert_eq!(findings(&life, "encryption"), "[]");
    }
}

/// A control plane dies for good in the middle. Nothing continues without it until it is removed.
#[test]
fn a_lost_control_plane_stops_the_rotation_until_it_is_removed() {
    let (site, planes) = three();
    let life = live(&site, &planes);
    assert_eq!(apply(&life, &THREE), [0, 0, 0]);
    planes.fail_at("cp-3", Some(3));
    assert_eq!(rotate(&life).0, 1);
    life.kill();
    let life = site.live();
    standbys(&life, &THREE[1..], FollowState::Following);
    planes.connect(&life, &THREE[..2]);
    life.accept("cp-3");
    let before = keys(&site);
    let (retcode, data) = rotate(&life);
    assert_eq!(retcode, 1, "{data}");
    for part in [
        "cp-3 is not connected",
        "ctl node replace cp-3 --force --cluster test",
        "ctl node remove cp-3 --dead",
        "run `ctl certs rotate encryption` again",
    ] {
        assert!(data.contains(part), "{part}: {data}");
    }
    assert_eq!(keys(&site), before);

    std::fs::remove_file(site.path().join("etc/nodes/cp-3.yaml")).unwrap();
    planes.forget("cp-3");
    let (retcode, data) = rotate(&life);
    assert_eq!(retcode, 0, "{data}");
    let own = keys(&site).unwrap();
    assert!(own.names().names[0].starts_with("key2-"), "{own:?}");
    planes.assert_all_have(&THREE[..2], &own, "without the lost one");
}

#[test]
fn a_control_plane_that_has_not_joined_stops_the_rotation() {
    let (site, planes) = three();
    let life = live(&site, &planes);
    declare_node(&site, "cp-4", "10.10.0.14", "");
    let before = keys(&site);
    let (retcode, data) = rotate(&life);
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains(
            "cp-4 is declared as a control plane and has not joined: finish `ctl node add cp-4`"
        ),
        "{data}"
    );
    assert_eq!(keys(&site), before);
}

/// States that a job compiled for an earlier stage are refused, on the master when a key has left,
/// and on the host in any case.
#[test]
fn states_of_an_earlier_stage_are_refused() {
    let (site, planes) = three();
    let life = live(&site, &planes);
    assert_eq!(apply(&life, &THREE), [0, 0, 0]);
    let older = keys(&site).unwrap();
    let reference = |keys: &EncryptionKeys| {
        let path = key_path(keys.names().names.last().unwrap());
        json!({"contents": format!("halite-secret::{path}::")})
    };
    let fill = |host: &str, mut value: Value| {
        let declarations = life.backend.jobs().declarations();
        let host = minion(host);
        let filled = declarations.fill(&host, &mut value);
        life.runtime.block_on(filled).map(|()| value)
    };
    let secret = fill("cp-2", reference(&older)).unwrap();
    assert_eq!(rotate(&life).0, 0);
    let refused = fill("cp-2", reference(&older)).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Conflict);
    assert!(
        refused.message.contains("earlier stage of the rotation")
            && refused.message.contains("key1-"),
        "{refused}"
    );
    let newer = fill("cp-2", reference(&keys(&site).unwrap())).unwrap();
    assert_ne!(newer, secret);
    // No other host gets a key.
    let refused = fill("worker-1", reference(&keys(&site).unwrap()));
    assert_eq!(refused.unwrap_err().kind, RefusalKind::Denied);
}

/// A standby that had not followed is promoted: its keys are older than the cluster's.
#[test]
fn a_master_with_earlier_keys_changes_no_control_plane() {
    let (site, planes) = three();
    let life = live(&site, &planes);
    assert_eq!(apply(&life, &THREE), [0, 0, 0]);
    let path = site.path().join("state").join(KEYS_FILE);
    let stale = std::fs::read_to_string(&path).unwrap();
    assert_eq!(rotate(&life).0, 0);
    let good = std::fs::read_to_string(&path).unwrap();
    life.kill();

    std::fs::write(&path, &stale).unwrap();
    let life = live(&site, &planes);
    let before = planes.first_line("cp-2");
    assert_eq!(apply(&life, &THREE), [1, 1, 1]);
    let (retcode, data) = rotate(&life);
    assert_eq!(retcode, 1, "{data}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), stale);
    assert_eq!(planes.first_line("cp-2"), before);
    // The remedy.
    std::fs::write(&path, &good).unwrap();
    assert_eq!(rotate(&life).0, 0);
    planes.assert_all_have(&THREE, &keys(&site).unwrap(), "the remedy");
    assert!(names(&site).names[0].starts_with("key3-"));
}

#[test]
fn lost_keys_are_an_error_and_are_never_replaced() {
    let (site, planes) = three();
    let life = live(&site, &planes);
    assert_eq!(apply(&life, &THREE), [0, 0, 0]);
    let path = site.path().join("state").join(KEYS_FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    let is_refused = |life: Life| {
        let said = load(&life);
        assert!(
            said.contains("keys.json is missing") && said.contains("put it back"),
            "{said}"
        );
        assert!(!path.exists());
        life.kill();
    };
    std::fs::remove_file(&path).unwrap();
    is_refused(life);
    is_refused(site.live());
    std::fs::write(&path, &text).unwrap();
    // The document no longer declares encryption, and then does again: the master cannot know, but
    // no host takes another key.
    let document = site.path().join("etc/cluster.yaml");
    let declared = std::fs::read_to_string(&document).unwrap();
    std::fs::write(&document, declared.replace(ENCRYPTED, "")).unwrap();
    let life = live(&site, &planes);
    std::fs::remove_file(&path).unwrap();
    load(&life);
    std::fs::write(&document, declared).unwrap();
    load(&life);
    assert_ne!(std::fs::read_to_string(&path).unwrap(), text);
    assert_eq!(apply(&life, &THREE), [1, 1, 1]);
}

/// A standby that is away would become a master without the new key.
#[test]
fn a_standby_that_does_not_follow_stops_the_rotation() {
    let (site, planes) = three();
    let life = live(&site, &planes);
    standbys(&life, &["cp-3"], FollowState::Gone);
    let before = keys(&site);
    let (retcode, data) = rotate(&life);
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("do not follow the master: cp-3 (gone)") && data.contains("ctl master list"),
        "{data}"
    );
    assert_eq!(keys(&site), before);
    assert_eq!(newest_run(&life).status, RunStatus::Failed);
    standbys(&life, &["cp-3"], FollowState::Following);
    assert_eq!(rotate(&life).0, 0);
}
