//! An upgrade that loses its master, a minion or a host at any of its steps ends like one without
//! an interruption.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use halite_api::UpgradeState;
use halite_proto::ids::JobId;
use serde_json::{Value, json};

use super::fixture::{
    applied, cut_off, killed, killed_in_job, newest_run, orchestrate, put_pod, resumed,
};
use super::upgrade_fixture::{NEXT, options, problems, progress, site, upgrade};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

/// The hosts of the site.
const HOSTS: [&str; 2] = ["bootstrap-1", "worker-1"];

/// A cluster whose nodes are drained, with a pod on the worker.
fn drained() -> Value {
    let mut options = options();
    options["drain"] = json!({"delete_emptydir_data": true, "force": false, "timeout": 60});
    options
}

fn prepared() -> Site {
    let site = site();
    put_pod(&site.api);
    site
}

fn minions() -> [ScriptedMinion; 2] {
    HOSTS.map(ScriptedMinion::new)
}

fn connected(site: &Site, minions: &[ScriptedMinion; 2]) -> Life {
    let life = site.live();
    for minion in minions {
        life.connect(minion);
    }
    life
}

/// The state that an upgrade leaves.
#[derive(Debug, PartialEq)]
struct Left {
    /// The documents of the cluster and of its hosts.
    documents: [String; 3],
    /// The nodes: none is cordoned, and none carries a mark of the drain.
    nodes: Vec<Value>,
    state: UpgradeState,
    problems: String,
    /// The number of times that each host has got the new bundle's highstate.
    highstates: [usize; 2],
    locked: bool,
}

fn left(site: &Site, life: &Life, minions: &[ScriptedMinion; 2]) -> Left {
    let read = |path: &str| fs::read_to_string(site.path().join("etc").join(path)).unwrap();
    let nodes = HOSTS.map(|name| {
        let mut node = site.api.object("Node", name).unwrap();
        let metadata = node["metadata"].as_object_mut().unwrap();
        metadata.retain(|field, _| field == "name" || field == "annotations");
        node
    });
    let other = JobId::from_number(1);
    let lock = life.store.take_lock("etcd-members", &other, 1);
    Left {
        documents: [
            read("cluster.yaml"),
            read("nodes/bootstrap-1.yaml"),
            read("nodes/worker-1.yaml"),
        ],
        nodes: nodes.to_vec(),
        state: progress(life).state,
        problems: problems(life),
        highstates: [0, 1].map(|at| {
            let marks = applied(&minions[at]);
            let mark = format!("from-{NEXT}");
            marks.iter().filter(|id| **id == mark).count()
        }),
        locked: life.runtime.block_on(lock).unwrap().is_some(),
    }
}

/// The state after an upgrade that nothing interrupts.
fn undisturbed() -> Left {
    let (site, minions) = (prepared(), minions());
    let life = connected(&site, &minions);
    let (code, said) = orchestrate(&life, upgrade(&life, &drained()));
    assert_eq!(code, 0, "{said}");
    let left = left(&site, &life, &minions);
    assert!(left.documents[0].contains(NEXT), "{left:#?}");
    assert_eq!(
        (&left.state, left.highstates, left.locked),
        (&UpgradeState::Done, [1, 1], false)
    );
    let writes = site.api.writes.lock().unwrap();
    assert!(
        writes.iter().any(|write| write.starts_with("evict")),
        "the worker was drained: {writes:?}"
    );
    life.kill();
    left
}

#[test]
fn a_master_that_dies_in_the_middle_of_an_upgrade_completes_it() {
    let wanted = undisturbed();
    // Every second event is enough to hit each step, and takes half the time.
    for after in (1..).step_by(2) {
        let (site, minions) = (prepared(), minions());
        let life = connected(&site, &minions);
        let request = upgrade(&life, &drained());
        let ended = killed(life, request, after);
        let life = connected(&site, &minions);
        let (code, said) = resumed(&life, &newest_run(&life));
        assert_eq!(code, 0, "killed after event {after}: {said}");
        assert_eq!(
            left(&site, &life, &minions),
            wanted,
            "killed after event {after}"
        );
        life.kill();
        if ended {
            assert!(after > 20, "an upgrade has more events than {after}");
            return;
        }
    }
}

#[test]
fn a_minion_that_is_killed_in_any_job_of_an_upgrade_gets_it_again() {
    let mut wanted = undisturbed();
    for at in [0, 1] {
        for nth in 0.. {
            let (site, mut minions, seen) = (prepared(), minions(), Arc::new(AtomicUsize::new(0)));
            minions[at] = killed_in_job(&minions[at], nth, &seen);
            let life = connected(&site, &minions);
            let (code, said) = orchestrate(&life, upgrade(&life, &drained()));
            assert_eq!(code, 0, "{} in its job {nth}: {said}", HOSTS[at]);
            let now = left(&site, &life, &minions);
            wanted.highstates = now.highstates;
            assert!(now.highstates.iter().all(|number| *number > 0));
            assert_eq!(now, wanted, "{} in its job {nth}", HOSTS[at]);
            life.kill();
            if seen.load(Ordering::SeqCst) <= nth {
                assert!(nth > 1, "{} had only {nth} jobs", HOSTS[at]);
                break;
            }
        }
    }
}

#[test]
fn an_upgrade_that_loses_a_host_at_any_step_is_completed_by_the_same_command() {
    let mut wanted = undisturbed();
    for at in [0, 1] {
        for after in 1.. {
            let (site, minions) = (prepared(), minions());
            let life = connected(&site, &minions);
            let (last, ended) = cut_off(&life, upgrade(&life, &drained()), &minions[at], after);
            life.reconnect(&minions[at]);
            let (code, again) = orchestrate(&life, upgrade(&life, &drained()));
            let said = last.data_json;
            let what = format!("{} was cut off at step {after}: {said}", HOSTS[at]);
            assert_eq!(code, 0, "{what}, then: {again}");
            let now = left(&site, &life, &minions);
            wanted.highstates = now.highstates;
            assert!(now.highstates.iter().all(|number| *number > 0), "{what}");
            assert_eq!(now, wanted, "{what}");
            life.kill();
            if ended {
                break;
            }
        }
    }
}
