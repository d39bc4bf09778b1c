//! Gates of a run that a restarted master resumes: they are asked again until the work behind them
//! has begun.

use std::sync::Arc;
use std::time::Duration;

use halite_etcd::fake::{FakeCluster, host};
use halite_store::{RunStatus, Step, StepStatus};
use serde_json::json;

use super::fixture::{applied, newest_run, orchestrate, ready_node, request, resumed};
use crate::backend::fixture::{ScriptedMinion, Site};

/// The turn of a host with a member of etcd. Its work is on another host, which has a minion here.
const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*': []\n"),
    (
        "one.sls",
        "one:\n  file.managed:\n    - name: /one\n    - contents: x\n",
    ),
    (
        "orchestrate/turn.sls",
        "may-restart:\n  halite.etcd_quorum_allows:\n    - node: cp-2\n    - timeout: 1\n\
         leader:\n  halite.etcd_leader_moved_off:\n    - node: cp-2\n    - timeout: 20\n    - require: [{halite: may-restart}]\n\
         drained:\n  halite.drain:\n    - node: worker-1\n    - timeout: 20\n    - require: [{halite: leader}]\n\
         etcd:\n  halite.state:\n    - tgt: worker-1\n    - sls: [one]\n    - require: [{halite: drained}]\n",
    ),
    (
        "orchestrate/drained.sls",
        "drained:\n  halite.drain:\n    - node: worker-1\n    - timeout: 20\n\
         may-restart:\n  halite.etcd_quorum_allows:\n    - node: worker-1\n    - timeout: 1\n    - require: [{halite: drained}]\n\
         etcd:\n  halite.state:\n    - tgt: worker-1\n    - sls: [one]\n    - require: [{halite: may-restart}]\n",
    ),
    (
        "orchestrate/before.sls",
        "may-restart:\n  halite.etcd_quorum_allows:\n    - node: worker-1\n    - timeout: 1\n\
         drained:\n  halite.drain:\n    - node: worker-1\n    - timeout: 20\n    - require: [{halite: may-restart}]\n\
         etcd:\n  halite.state:\n    - tgt: worker-1\n    - sls: [one]\n    - require: [{halite: drained}]\n",
    ),
];

/// The answer while all members serve, and while the member in question does not.
const ALL_SERVE: &str = "3 of 3 voting members of etcd serve";
const TWO_SERVE: &str = "2 of 3 voting members of etcd serve";

/// A run whose master has died, with everything that outlives the master.
struct Interrupted {
    site: Site,
    cluster: Arc<FakeCluster>,
    worker: ScriptedMinion,
}

impl Interrupted {
    /// A run whose work is recorded as `begun` makes it from the record of its end.
    fn at(begun: impl Fn(Step) -> Step) -> Self {
        Self::new(begun, None)
    }

    /// The same, after an operator's request to end the run.
    fn new(begun: impl Fn(Step) -> Step, cancelled_by: Option<&str>) -> Self {
        let mut site = Site::new(TREE);
        let cluster = Arc::new(FakeCluster::new(&["cp-1", "cp-2", "cp-3"]));
        site.etcd = Some((cluster.clone(), Duration::ZERO));
        site.api.put(ready_node("worker-1"));
        let worker = ScriptedMinion::new("worker-1");
        let life = site.live();
        life.connect(&worker);
        let (retcode, data) = orchestrate(&life, request("orchestrate.turn", &json!({})));
        assert_eq!(retcode, 0, "{data}");
        assert!(data.contains(ALL_SERVE), "{data}");
        let (run, store) = (newest_run(&life).id, &life.store);
        life.runtime.block_on(async {
            let mut steps = store.steps(&run).await.unwrap();
            let work = begun(steps.pop().unwrap());
            assert_eq!(work.name, "etcd");
            store.put_step(&work).await.unwrap();
            let open = store.update_run(&run, RunStatus::Running, 0, 1).await;
            open.unwrap();
            if let Some(operator) = cancelled_by {
                assert!(store.cancel_run(&run, operator, 1).await.unwrap());
            }
        });
        life.kill();
        Self {
            site,
            cluster,
            worker,
        }
    }

    /// Starts a master, which resumes the run, and follows the run to its end.
    fn resume(&self) -> (i32, String) {
        let life = self.site.live();
        life.connect(&self.worker);
        let ended = resumed(&life, &newest_run(&life));
        life.kill();
        ended
    }
}

fn waiting(step: Step) -> Step {
    Step {
        status: StepStatus::Waiting,
        detail_json: "{}".to_owned(),
        started: None,
        ended: None,
        ..step
    }
}

/// The master has died when the step had started, before it had a job.
fn without_job(step: Step) -> Step {
    Step {
        status: StepStatus::Running,
        detail_json: "{}".to_owned(),
        ended: None,
        ..step
    }
}

/// The master has died before the record of the step's end.
fn with_job(step: Step) -> Step {
    assert!(step.detail_json.contains("\"jobs\""), "{step:?}");
    Step {
        status: StepStatus::Running,
        ended: None,
        ..step
    }
}

#[test]
fn a_resumed_run_stops_where_etcd_can_no_longer_miss_the_host() {
    for begun in [waiting, without_job] {
        let run = Interrupted::at(begun);
        run.cluster.stop("cp-3");
        let (retcode, data) = run.resume();
        assert_eq!(retcode, 1, "{data}");
        assert!(
            data.contains("cannot continue with cp-2: 2 of 3 voting members"),
            "{data}"
        );
        assert_eq!(applied(&run.worker), ["one"], "only the first run");
    }
}

#[test]
fn a_resumed_run_continues_where_etcd_can_miss_the_host() {
    for begun in [waiting, without_job] {
        let run = Interrupted::at(begun);
        // The member in question: it need not serve.
        run.cluster.stop("cp-2");
        let (retcode, data) = run.resume();
        assert_eq!(retcode, 0, "{data}");
        assert!(
            data.contains(TWO_SERVE) && !data.contains(ALL_SERVE),
            "{data}"
        );
        assert_eq!(applied(&run.worker), ["one", "one"]);
    }
}

/// The host may have changed, and is completed: its member may be the one that is missing.
#[test]
fn work_that_has_begun_is_completed_without_a_question() {
    let run = Interrupted::at(with_job);
    run.cluster.stop("cp-3");
    let (retcode, data) = run.resume();
    assert_eq!(retcode, 0, "{data}");
    assert!(data.contains(ALL_SERVE), "{data}");
    assert_eq!(applied(&run.worker), ["one"], "its job is not repeated");
}

/// The leader may have come back to the host since.
#[test]
fn the_leader_is_moved_off_again() {
    let run = Interrupted::at(waiting);
    for name in ["cp-1", "cp-3"] {
        run.cluster.stop(name);
    }
    for name in ["cp-1", "cp-3"] {
        run.cluster.start(&host(name));
    }
    assert_eq!(run.cluster.leader().as_deref(), Some("cp-2"));
    let (retcode, data) = run.resume();
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(run.cluster.leader().as_deref(), Some("cp-3"), "{data}");
}

/// Another member has failed during the drain.
#[test]
fn a_gate_that_refuses_after_the_drain_names_the_drained_host() {
    let mut site = Site::new(TREE);
    let cluster = FakeCluster::new(&["cp-1", "cp-2", "worker-1"]);
    cluster.stop("cp-2");
    site.etcd = Some((Arc::new(cluster), Duration::ZERO));
    site.api.put(ready_node("worker-1"));
    let worker = ScriptedMinion::new("worker-1");
    let life = site.live();
    life.connect(&worker);
    let (retcode, data) = orchestrate(&life, request("orchestrate.drained", &json!({})));
    assert_eq!(retcode, 1, "{data}");
    for part in [
        "cannot continue with worker-1: 2 of 3 voting members",
        "worker-1 stays cordoned; run the same command again to continue",
    ] {
        assert!(data.contains(part), "{part:?} is not in {data}");
    }
    assert!(applied(&worker).is_empty(), "the work has not started");
}

/// Another member has failed while no master ran.
#[test]
fn a_gate_that_refuses_in_an_interrupted_drain_names_the_cordoned_host() {
    let mut site = Site::new(TREE);
    let cluster = Arc::new(FakeCluster::new(&["cp-1", "cp-2", "worker-1"]));
    site.etcd = Some((cluster.clone(), Duration::ZERO));
    site.api.put(ready_node("worker-1"));
    let worker = ScriptedMinion::new("worker-1");
    let life = site.live();
    life.connect(&worker);
    let (retcode, data) = orchestrate(&life, request("orchestrate.before", &json!({})));
    assert_eq!(retcode, 0, "{data}");
    let (run, store) = (newest_run(&life).id, &life.store);
    life.runtime.block_on(async {
        let mut steps = store.steps(&run).await.unwrap();
        let work = waiting(steps.pop().unwrap());
        let drain = without_job(steps.pop().unwrap());
        assert_eq!(
            (work.name.as_str(), drain.name.as_str()),
            ("etcd", "drained")
        );
        for step in [&work, &drain] {
            store.put_step(step).await.unwrap();
        }
        let open = store.update_run(&run, RunStatus::Running, 0, 1).await;
        open.unwrap();
    });
    life.kill();
    cluster.stop("cp-2");
    let life = site.live();
    life.connect(&worker);
    let (retcode, data) = resumed(&life, &newest_run(&life));
    assert_eq!(retcode, 1, "{data}");
    assert!(data.contains("worker-1 stays cordoned"), "{data}");
    life.kill();
}

#[test]
fn a_cancelled_run_ends_without_a_question() {
    let run = Interrupted::new(waiting, Some("alice"));
    run.cluster.stop("cp-3");
    let (retcode, data) = run.resume();
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("\"status\":\"cancelled\"") && data.contains(ALL_SERVE),
        "{data}"
    );
    assert_eq!(applied(&run.worker), ["one"]);
}
