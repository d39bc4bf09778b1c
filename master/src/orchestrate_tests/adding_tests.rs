//! The shipped orchestration that adds a host, while another host is being added.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::fixture::{
    ADD_NODE, adding, all_checks, applied, killed, newest_run, orchestrate, request, resumed,
};
use crate::backend::fixture::{ScriptedMinion, Site};

const SLS: &str = "halite.orchestrate.add_node";

fn site() -> Site {
    let site = adding("worker-1");
    std::fs::write(
        site.path().join("etc/nodes/worker-2.yaml"),
        "apiVersion: halite/v1\nkind: Node\nmetadata: {name: worker-2}\nroles: [worker]\nresolved:\n  \
         controlPlane: 10.10.1.13\n  workloadPlane: 10.10.1.13\n",
    )
    .unwrap();
    site
}

/// A minion on a host that is bare while this is true.
fn on_host(name: &str, bare: &Arc<AtomicBool>) -> ScriptedMinion {
    let bare = Arc::clone(bare);
    ScriptedMinion::new(name).on(move |job| match job.function.as_str() {
        "halite.health" => Some(json!({"bare": bare.load(Ordering::SeqCst)})),
        "halite.preflight" => Some(json!({})),
        _ => None,
    })
}

/// The minion of the added host. It has finished its own first states, and spent their time, before
/// it gets its container runtime; the other host has `beside` from then on.
fn added(beside: &Arc<AtomicBool>, later: bool) -> ScriptedMinion {
    let (own, beside) = (AtomicBool::new(true), Arc::clone(beside));
    ScriptedMinion::new("worker-1").on(move |job| {
        match job.function.as_str() {
            "halite.health" => return Some(json!({"bare": own.load(Ordering::SeqCst)})),
            "halite.preflight" => return Some(json!({})),
            _ => {}
        }
        if job.low_json.contains("/containerd") {
            own.store(false, Ordering::SeqCst);
            beside.store(later, Ordering::SeqCst);
        }
        None
    })
}

fn pillar(ignored: bool) -> Value {
    json!({"node": "worker-1", "ignore_preflight": if ignored { all_checks() } else { Vec::new() }})
}

const OWN: [&str; 6] = [
    "host",
    "containerd",
    "images",
    "kubelet",
    "hosts",
    "firewall",
];
const PEERS: [&str; 2] = ["hosts", "firewall"];

#[test]
fn a_host_that_is_still_bare_is_changed_by_no_run_of_another_host() {
    let (site, bare) = (site(), Arc::new(AtomicBool::new(true)));
    let life = site.live();
    let first = on_host("bootstrap-1", &Arc::default());
    let (own, beside) = (added(&bare, true), on_host("worker-2", &bare));
    for minion in [&first, &own, &beside] {
        life.connect(minion);
    }
    // Its own preflight refuses it: it stays unchanged, and so does the other one.
    let (retcode, data) = orchestrate(&life, request(SLS, &pillar(false)));
    assert_eq!(retcode, 1, "{data}");
    assert!(data.contains("nothing was changed there"), "{data}");
    assert!(applied(&own).is_empty() && applied(&beside).is_empty());
    // The query for its reachable peers has changed the existing host.
    assert_eq!(applied(&first), PEERS);

    let (retcode, data) = orchestrate(&life, request(SLS, &pillar(true)));
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(applied(&own), OWN);
    assert_eq!(applied(&first), [PEERS, PEERS].concat());
    assert!(applied(&beside).is_empty());
    let left_out = "still bare, so left out: worker-2";
    assert_eq!(data.matches(left_out).count(), 2, "{data}");
    // It does not count as a disconnected host.
    assert!(!data.contains("leftOut\""), "{data}");
}

#[test]
fn a_host_that_was_bare_lets_the_new_one_in_when_it_is_no_longer() {
    let (site, bare) = (site(), Arc::new(AtomicBool::new(true)));
    let life = site.live();
    let first = on_host("bootstrap-1", &Arc::default());
    let (own, beside) = (added(&bare, false), on_host("worker-2", &bare));
    for minion in [&first, &own, &beside] {
        life.connect(minion);
    }
    let (retcode, data) = orchestrate(&life, request(SLS, &pillar(true)));
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(applied(&own), OWN);
    // Each once, by one of the two steps.
    assert_eq!(applied(&first), PEERS);
    assert_eq!(applied(&beside), PEERS);
}

#[test]
fn killed_at_any_event_each_host_lets_the_new_one_in_once() {
    for kill_after in 1.. {
        let (site, bare) = (site(), Arc::new(AtomicBool::new(true)));
        let first = on_host("bootstrap-1", &Arc::default());
        let (own, beside) = (added(&bare, false), on_host("worker-2", &bare));
        let life = site.live();
        for minion in [&first, &own, &beside] {
            life.connect(minion);
        }
        let ended = killed(life, request(SLS, &pillar(true)), kill_after);
        let life = site.live();
        let run = newest_run(&life);
        for minion in [&first, &own, &beside] {
            life.connect(minion);
        }
        let (retcode, data) = resumed(&life, &run);
        assert_eq!(retcode, 0, "killed after {kill_after}: {data}");
        assert_eq!(applied(&own), OWN, "killed after {kill_after}");
        assert_eq!(applied(&first), PEERS, "killed after {kill_after}");
        assert_eq!(applied(&beside), PEERS, "killed after {kill_after}");
        if ended {
            return;
        }
    }
}

#[test]
fn a_host_whose_minion_knows_no_answer_has_joined_long_ago() {
    let site = site();
    let life = site.live();
    let mut first = ScriptedMinion::new("bootstrap-1");
    first.unknown = Some("halite.health");
    let own = added(&Arc::default(), false);
    life.connect(&first);
    life.connect(&own);
    let (retcode, data) = orchestrate(&life, request(SLS, &pillar(true)));
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(applied(&first), PEERS);
}

#[test]
fn an_answer_that_is_not_understood_fails_the_step_before_a_host_is_changed() {
    let site = site();
    let life = site.live();
    let (asked, other) = ("bootstrap-1", "worker-2");
    let odd = |name: &str| {
        ScriptedMinion::new(name)
            .on(|job| (job.function == "halite.health").then(|| json!({"bare": "perhaps"})))
    };
    let (first, beside) = (odd(asked), odd(other));
    for minion in [&first, &added(&Arc::default(), false), &beside] {
        life.connect(minion);
    }
    let (retcode, data) = orchestrate(&life, request(SLS, &pillar(true)));
    assert_eq!(retcode, 1, "{data}");
    for name in [asked, other] {
        let wanted = format!("cannot determine whether the host of {name} is bare");
        assert!(data.contains(&wanted), "{data}");
    }
    assert!(data.contains("perhaps"), "{data}");
    assert!(applied(&first).is_empty() && applied(&beside).is_empty());
}

#[test]
fn arguments_that_are_not_understood_fail_the_step() {
    let step = |more: &str| {
        format!(
            "peers:\n  halite.state:\n    - tgt: '*'\n    - sls: [halite.host.hosts]\n    - {more}\n"
        )
    };
    let (maybe, nowhere) = (step("bare: maybe"), step("but_done_by: nowhere"));
    let mut tree = ADD_NODE.to_vec();
    tree.extend([
        ("orchestrate/maybe.sls", maybe.as_str()),
        ("orchestrate/nowhere.sls", nowhere.as_str()),
    ]);
    let site = Site::new(&tree);
    let life = site.live();
    life.connect(&on_host("bootstrap-1", &Arc::default()));
    for (sls, wanted) in [
        ("orchestrate.maybe", "neither `apply` nor `skip`"),
        ("orchestrate.nowhere", "is not a step of this orchestration"),
    ] {
        let (retcode, data) = orchestrate(&life, request(sls, &json!({})));
        assert_eq!(retcode, 1, "{data}");
        assert!(data.contains(wanted), "{data}");
    }
}
