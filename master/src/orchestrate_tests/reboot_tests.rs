//! The shipped orchestration that reboots a host, on minions that boot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use halite_cluster::kubernetes::fake::FakeApi;
use serde_json::{Value, json};

use super::fixture::{TREE, killed, newest_run, orchestrate, put_pod, request, resumed};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

const SLS: &str = "halite.orchestrate.reboot_node";

fn site() -> Site {
    let site = Site::new(TREE);
    site.api.put(
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"}, "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    put_pod(&site.api);
    lease(&site.api, 0);
    site
}

fn lease(api: &FakeApi, renewed: u32) {
    api.put(
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "worker-1", "namespace": "kube-node-lease"},
        "spec": {"renewTime": format!("2026-01-01T00:00:00.{renewed:06}Z")}}),
    );
}

/// A minion on a host that reboots when ordered, if its present boot is the one in the order.
fn worker(boots: &Arc<AtomicU32>) -> ScriptedMinion {
    let boots = Arc::clone(boots);
    ScriptedMinion::new("worker-1").on(move |job| {
        let boot = format!("boot-{}", boots.load(Ordering::SeqCst));
        if job.args_json.contains("systemctl reboot") {
            if job.args_json.contains(&format!("!= '{boot}'")) {
                boots.fetch_add(1, Ordering::SeqCst);
            }
            return Some(Value::Null);
        }
        (job.function == "halite.health").then(|| json!({"boot": boot}))
    })
}

/// Starts a master, and a kubelet that renews its lease forever.
fn live(site: &Site) -> Life {
    let life = site.live();
    let api = Arc::clone(&site.api);
    life.runtime.spawn(async move {
        for renewed in 1.. {
            lease(&api, renewed);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    life
}

fn reboot(life: &Life, pillar: &Value) -> (i32, String) {
    orchestrate(life, request(SLS, pillar))
}

fn spec(site: &Site) -> Value {
    site.api.object("Node", "worker-1").unwrap()["spec"].clone()
}

#[test]
fn a_worker_is_drained_boots_once_and_takes_pods_again() {
    let site = site();
    let life = live(&site);
    let boots = Arc::default();
    life.connect(&worker(&boots));
    let (retcode, data) = reboot(&life, &json!({"node": "worker-1", "drain": {}}));
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(boots.load(Ordering::SeqCst), 1);
    assert!(site.api.object("Pod", "web").is_none());
    assert_eq!(spec(&site), json!({}));

    // Each request is another boot. Without a drain the pods stay, and so does an operator's
    // cordon.
    let mut cordoned = site.api.object("Node", "worker-1").unwrap();
    cordoned["spec"] = json!({"unschedulable": true});
    site.api.put(cordoned);
    let evictions = || {
        site.api
            .writes
            .lock()
            .unwrap()
            .iter()
            .filter(|write| write.starts_with("evict"))
            .count()
    };
    let before = evictions();
    let (retcode, data) = reboot(&life, &json!({"node": "worker-1"}));
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(boots.load(Ordering::SeqCst), 2);
    assert_eq!(evictions(), before);
    assert_eq!(spec(&site), json!({"unschedulable": true}));
}

#[test]
fn a_minion_that_does_not_name_its_boot_is_not_rebooted() {
    let site = site();
    let life = live(&site);
    let silent = ScriptedMinion::new("worker-1").on(|job| {
        assert!(!job.args_json.contains("systemctl reboot"));
        (job.function == "halite.health").then(|| json!({}))
    });
    life.connect(&silent);
    let (retcode, data) = reboot(&life, &json!({"node": "worker-1"}));
    assert_eq!(retcode, 1, "{data}");
    assert!(data.contains("ctl highstate worker-1"), "{data}");
}

#[test]
fn an_order_that_was_interrupted_is_given_again() {
    let site = site();
    let life = live(&site);
    let (boots, orders) = (Arc::default(), AtomicU32::default());
    let host = worker(&boots).host;
    let minion = ScriptedMinion::new("worker-1").on(move |job| {
        let is_order = job.args_json.contains("systemctl reboot");
        if is_order && orders.fetch_add(1, Ordering::SeqCst) == 0 {
            return None;
        }
        host(job)
    });
    minion.journal.lock().unwrap().interrupt_next = true;
    life.connect(&minion);
    let (retcode, data) = reboot(&life, &json!({"node": "worker-1"}));
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(boots.load(Ordering::SeqCst), 1);
}

/// The master is killed after each event of a reboot in turn: the host boots once.
#[test]
fn a_reboot_that_was_killed_at_any_event_is_done_once() {
    for kill_after in 1.. {
        let site = site();
        let boots = Arc::default();
        let minion = worker(&boots);
        let life = live(&site);
        life.connect(&minion);
        let booting = request(SLS, &json!({"node": "worker-1", "drain": {}}));
        let ended = killed(life, booting, kill_after);
        let life = live(&site);
        let run = newest_run(&life);
        life.connect(&minion);
        let (retcode, data) = resumed(&life, &run);
        assert_eq!(retcode, 0, "killed after {kill_after}: {data}");
        let count = boots.load(Ordering::SeqCst);
        assert_eq!(count, 1, "killed after {kill_after}");
        assert_eq!(spec(&site), json!({}), "killed after {kill_after}");
        if ended {
            return;
        }
    }
}
