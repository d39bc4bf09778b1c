//! The common set-up of the tests of shipped orchestrations: the tree with a state of one file in
//! place of each shipped state, a run to its end, and a master that is killed in the middle of one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use halite_cluster::kubernetes::fake::FakeApi;
use halite_core::event_stream::EventStream;
use halite_core::names::minion;
use halite_orchestrate::follow;
use halite_preflight::checks::CHECKS;
use halite_proto::v1;
use halite_store::{KeyState, Run};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::backend::fixture::{Life, ScriptedMinion, Site};

/// The longest time until a run has ended or has sent a number of its events.
const LONGEST: Duration = Duration::from_secs(300);

/// The time without an event after which a host that was cut off comes back.
const BOOT: Duration = Duration::from_millis(300);
/// The same for a host that is cut off in each step of a run.
const SHORT_BOOT: Duration = Duration::from_millis(100);

/// A state of this id, in place of the shipped ones.
macro_rules! stub {
    ($id:literal) => {
        concat!(
            $id,
            ":\n  file.managed:\n    - name: /",
            $id,
            "\n    - contents: x\n"
        )
    };
}

/// Like [`stub`], in place of one that only an orchestration may apply.
macro_rules! reserved {
    ($id:literal) => {
        concat!("{#- only: orchestration -#}\n", stub!($id))
    };
}

/// A shipped orchestration.
macro_rules! shipped {
    ($name:literal) => {
        (
            concat!("halite/orchestrate/", $name, ".sls"),
            include_str!(concat!(
                "../../../states/tree/halite/orchestrate/",
                $name,
                ".sls"
            )),
        )
    };
}

/// The macros of hosts that leave, as they are shipped.
pub(super) const LEAVING: (&str, &str) = (
    "halite/orchestrate/leaving.jinja",
    include_str!("../../../states/tree/halite/orchestrate/leaving.jinja"),
);

/// The macros of API servers that follow the members of etcd, as they are shipped.
pub(super) const ETCD_CLIENTS: (&str, &str) = (
    "halite/orchestrate/etcd_clients.jinja",
    include_str!("../../../states/tree/halite/orchestrate/etcd_clients.jinja"),
);

/// The macros of hooks, as they are shipped.
pub(super) const HOOKS: (&str, &str) = (
    "halite/orchestrate/hooks.jinja",
    include_str!("../../../states/tree/halite/orchestrate/hooks.jinja"),
);

/// The orchestrations of hosts that leave or boot, as they are shipped.
pub(super) const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*': []\n"),
    shipped!("destroy"),
    shipped!("reboot_node"),
    shipped!("remove_node"),
    LEAVING,
    ETCD_CLIENTS,
    HOOKS,
    ("halite/leave/mounts.sls", reserved!("mounts")),
    ("halite/leave/data_mounts.sls", reserved!("data_mounts")),
    ("halite/leave/address.sls", reserved!("address")),
    ("halite/leave/control_plane.sls", reserved!("planes")),
    ("halite/leave/host.sls", reserved!("host")),
    ("halite/leave/data.sls", reserved!("data")),
    ("halite/leave/packages.sls", reserved!("packages")),
    ("halite/leave/minion.sls", reserved!("minion")),
    (
        "halite/leave/last_worker.sls",
        "untainted:\n  test.nop: []\n",
    ),
    ("halite/host/hosts.sls", stub!("hosts")),
    ("halite/host/firewall.sls", stub!("firewall")),
    ("halite/host/keepalived.sls", stub!("keepalived")),
    ("halite/services/masters.sls", stub!("masters")),
];

/// The orchestration that adds a host or gives it other roles, as it is shipped.
pub(super) const ADD_NODE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*': []\n"),
    shipped!("add_node"),
    LEAVING,
    ETCD_CLIENTS,
    (
        "halite/orchestrate/give_member.jinja",
        include_str!("../../../states/tree/halite/orchestrate/give_member.jinja"),
    ),
    ("halite/leave/address.sls", reserved!("address")),
    ("halite/leave/control_plane.sls", reserved!("planes")),
    ("halite/leave/etcd.sls", reserved!("etcd")),
    ("halite/leave/member.sls", reserved!("member")),
    ("halite/leave/plane.sls", reserved!("plane")),
    ("halite/base/kubelet/elsewhere.sls", stub!("elsewhere")),
    (
        "halite/base/containerd/kept.sls",
        "{#- Nothing is replaced. -#}\n",
    ),
    (
        "halite/base/kubelet/kept.sls",
        "{#- Nothing is replaced. -#}\n",
    ),
    ("halite/host.sls", stub!("host")),
    ("halite/host/hosts.sls", stub!("hosts")),
    ("halite/host/firewall.sls", stub!("firewall")),
    ("halite/host/keepalived.sls", stub!("keepalived")),
    ("halite/base/containerd.sls", stub!("containerd")),
    ("halite/images.sls", stub!("images")),
    ("halite/base/kubelet.sls", stub!("kubelet")),
    ("halite/base/kubelet/registers.sls", stub!("registers")),
    ("halite/base/etcd.sls", stub!("serves")),
    ("halite/base/etcd/earlier.sls", reserved!("earlier")),
    ("halite/base/etcd/member.sls", stub!("receives")),
    ("halite/base/control_plane.sls", stub!("apiserver")),
    ("halite/base/control_plane/running.sls", stub!("running")),
    ("halite/base/nodes.sls", "nodes:\n  test.nop: []\n"),
    (
        "halite/base/kubeadm_objects.sls",
        "objects:\n  test.nop: []\n",
    ),
    ("halite/services/masters.sls", stub!("masters")),
    ("halite/services/bundle_server.sls", stub!("bundles")),
    ("halite/services/operator.sls", stub!("operator")),
    ("halite/services/standby/masters.sls", stub!("standbys")),
];

/// A site with the orchestration that adds a host; this node is Ready there, and the cluster's DNS
/// has no pods.
pub(super) fn adding(node: &str) -> Site {
    let site = Site::new(ADD_NODE);
    site.api.put(ready_node(node));
    site.api.put(dns(0));
    site
}

/// A node that is Ready.
pub(super) fn ready_node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

/// The deployment of the cluster's DNS.
pub(super) fn dns(replicas: usize) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "coredns", "namespace": "kube-system"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"k8s-app": "kube-dns"}}}})
}

/// All checks of a host before it joins.
pub(super) fn all_checks() -> Vec<&'static str> {
    CHECKS.iter().map(|check| check.name).collect()
}

/// A minion whose answer to the preflight has no facts; the checks must be ignored.
pub(super) fn without_facts(name: &str) -> ScriptedMinion {
    ScriptedMinion::new(name).on(|job| (job.function == "halite.preflight").then(|| json!({})))
}

/// A request with this pillar.
pub(super) fn request(sls: &str, pillar: &Value) -> v1::OrchestrateRequest {
    v1::OrchestrateRequest {
        sls: sls.into(),
        pillar_json: pillar.to_string(),
        ..v1::OrchestrateRequest::default()
    }
}

/// Runs an orchestration to its end: the return code, and the data of the last event.
pub(super) fn orchestrate(life: &Life, request: v1::OrchestrateRequest) -> (i32, String) {
    let stream = life.backend.orchestrate("root", request);
    let stream = life.runtime.block_on(stream);
    let events = life.collect(stream.unwrap());
    let last = events.last().unwrap();
    (last.retcode, last.data_json.clone())
}

/// Starts an orchestration and kills the master after this number of events; returns `true` if the
/// run had ended before.
pub(super) fn killed(life: Life, request: v1::OrchestrateRequest, after: usize) -> bool {
    let mut seen = Vec::new();
    let ended = life.runtime.block_on(async {
        let stream = life.backend.orchestrate("root", request).await;
        let mut events = stream.unwrap().take(after).map(Result::unwrap);
        let all = async {
            while let Some(event) = events.next().await {
                seen.push(event.tag);
            }
        };
        let done = tokio::time::timeout(LONGEST, all).await;
        assert!(
            done.is_ok(),
            "no end and no event {after} within {LONGEST:?}: {seen:#?}"
        );
        seen.len() < after
    });
    life.kill();
    ended
}

/// Runs an orchestration and kills its master, which `live` starts, once in each step: at the
/// step's first event that this master sees. Returns the last master, and the end of the run.
pub(super) fn killed_in_each_step(
    live: impl Fn() -> Life,
    request: v1::OrchestrateRequest,
) -> (Life, i32, String) {
    let (mut life, mut killed_in) = (live(), BTreeSet::new());
    let mut stream = life
        .runtime
        .block_on(life.backend.orchestrate("root", request))
        .unwrap();
    loop {
        let mut last = None;
        let ended = life.runtime.block_on(async {
            while let Some(event) = timeout(LONGEST, stream.next()).await.unwrap() {
                let event = event.unwrap();
                let step = step_of(&event);
                if step.is_some_and(|(step, _)| killed_in.insert(step)) {
                    return false;
                }
                last = Some(event);
            }
            true
        });
        if ended {
            let last = last.expect("a run has events");
            let steps = life
                .runtime
                .block_on(life.store.steps(&newest_run(&life).id));
            let steps = steps.unwrap().into_iter().map(|step| step.name);
            assert_eq!(killed_in, steps.collect(), "the steps with a kill, and all");
            return (life, last.retcode, last.data_json);
        }
        drop(stream);
        life.kill();
        life = live();
        stream = following(&life, &newest_run(&life));
    }
}

/// The same minion, which is killed in each job with states or a command, but not in the one that
/// repeats it; `jobs` counts both.
pub(super) fn killed_in_each_job(
    minion: &ScriptedMinion,
    jobs: &Arc<AtomicUsize>,
) -> ScriptedMinion {
    killed_in_jobs(minion, jobs, |number| number % 2 == 0)
}

/// The same minion, which is killed in the job after this number of them; `jobs` counts those with
/// states or a command.
pub(super) fn killed_in_job(
    minion: &ScriptedMinion,
    after: usize,
    jobs: &Arc<AtomicUsize>,
) -> ScriptedMinion {
    killed_in_jobs(minion, jobs, move |number| number == after)
}

fn killed_in_jobs(
    minion: &ScriptedMinion,
    jobs: &Arc<AtomicUsize>,
    is_chosen: impl Fn(usize) -> bool + Send + Sync + 'static,
) -> ScriptedMinion {
    let (journal, host) = (Arc::clone(&minion.journal), Arc::clone(&minion.host));
    let jobs = Arc::clone(jobs);
    minion.clone().on(move |job| {
        let works = matches!(job.function.as_str(), "state.apply" | "cmd.run");
        if works && is_chosen(jobs.fetch_add(1, Ordering::SeqCst)) {
            journal.lock().unwrap().interrupt_next = true;
        }
        host(job)
    })
}

/// The name and the status of the step of an event.
fn step_of(event: &v1::Event) -> Option<(String, String)> {
    let data: Value = serde_json::from_str(&event.data_json).unwrap();
    let step = &data["step"];
    let text = |field: &str| step[field].as_str().map(str::to_owned);
    text("name").zip(text("status"))
}

/// The name of the step that begins with this event.
fn begun_step(event: &v1::Event) -> Option<String> {
    let (name, status) = step_of(event)?;
    (status == "running").then_some(name)
}

/// Starts an orchestration, cuts a host off when this number of steps has begun, and follows the
/// run to its end: its last event, and whether it had ended before. If the run waits for the host,
/// the host comes back.
pub(super) fn cut_off(
    life: &Life,
    request: v1::OrchestrateRequest,
    host: &ScriptedMinion,
    after: usize,
) -> (v1::Event, bool) {
    let stream = life.backend.orchestrate("root", request);
    let stream = life.runtime.block_on(stream);
    let mut stream = stream.unwrap().map(Result::unwrap);
    let mut last = None;
    let mut seen = 0;
    while seen < after {
        let Some(event) = life.runtime.block_on(stream.next()) else {
            return (last.expect("a run has events"), true);
        };
        seen += usize::from(begun_step(&event).is_some());
        last = Some(event);
    }
    disconnect(life, host);
    let mut back = false;
    loop {
        let next = async { timeout(BOOT, stream.next()).await };
        match life.runtime.block_on(next) {
            Ok(Some(event)) => last = Some(event),
            Ok(None) => break,
            // A job was on its way to the host and waits for it.
            Err(_) if !back => {
                back = true;
                life.reconnect(host);
            }
            Err(_) => {}
        }
    }
    (last.expect("a run has events"), false)
}

/// Runs an orchestration, and cuts a host off when each of its steps begins. If the run waits for
/// the host, the host comes back; if it fails without the host, the same orchestration is run
/// again. Returns its end.
pub(super) fn cut_off_in_each_step(
    life: &Life,
    request: &v1::OrchestrateRequest,
    host: &ScriptedMinion,
) -> (i32, String) {
    let (mut cut_in, mut is_off) = (BTreeSet::new(), false);
    loop {
        let (mut last, before) = (None, cut_in.len());
        let stream = life.backend.orchestrate("root", request.clone());
        let mut stream = life.runtime.block_on(stream).unwrap();
        loop {
            let next = async { timeout(SHORT_BOOT, stream.next()).await };
            match life.runtime.block_on(next) {
                Ok(Some(event)) => {
                    let event = event.unwrap();
                    if begun_step(&event).is_some_and(|step| cut_in.insert(step)) && !is_off {
                        disconnect(life, host);
                        is_off = true;
                    }
                    last = Some(event);
                }
                Ok(None) => break,
                // A job was on its way to the host and waits for it.
                Err(_) => {
                    if std::mem::take(&mut is_off) {
                        life.reconnect(host);
                    }
                }
            }
        }
        let last = last.expect("a run has events");
        if last.retcode == 0 {
            let steps = life
                .runtime
                .block_on(life.store.steps(&newest_run(life).id));
            let steps = steps.unwrap().into_iter().map(|step| step.name);
            assert_eq!(cut_in, steps.collect(), "the steps with a cut, and all");
            return (last.retcode, last.data_json);
        }
        // Without another cut, it has failed for another reason.
        if cut_in.len() == before {
            return (last.retcode, last.data_json);
        }
        if std::mem::take(&mut is_off) {
            life.reconnect(host);
        }
    }
}

fn disconnect(life: &Life, host: &ScriptedMinion) {
    life.app.connections.disconnect(&host.id);
    life.runtime
        .block_on(life.backend.on_disconnected(&host.id));
}

/// The newest run in the store.
pub(super) fn newest_run(life: &Life) -> Run {
    let runs = life.runtime.block_on(life.store.runs(10));
    runs.unwrap().remove(0)
}

/// Follows a run that the master has resumed, to its end.
pub(super) fn resumed(life: &Life, run: &Run) -> (i32, String) {
    let events = life.collect(following(life, run));
    let last = events.last().unwrap();
    (last.retcode, last.data_json.clone())
}

/// The events of a run that the master has resumed.
fn following(life: &Life, run: &Run) -> EventStream {
    let bus = life.app.events.subscribe();
    let jobs = Arc::clone(life.backend.jobs());
    life.runtime
        .block_on(async { follow(jobs, run.id.clone(), bus) })
}

/// The states that a minion has applied.
pub(super) fn applied(minion: &ScriptedMinion) -> Vec<String> {
    minion.journal.lock().unwrap().applied.clone()
}

/// The state of a minion's key.
pub(super) fn key(life: &Life, id: &str) -> Option<KeyState> {
    let key = life.runtime.block_on(life.store.key(&minion(id)));
    key.unwrap().map(|key| key.state)
}

/// Puts a pod that a StatefulSet recreates on the worker.
pub(super) fn put_pod(api: &FakeApi) {
    api.put(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true}]},
        "spec": {"nodeName": "worker-1"}}));
}

/// The findings of a check of `ctl health`.
pub(super) fn findings(life: &Life, check: &str) -> String {
    let status = life.runtime.block_on(life.backend.status()).unwrap();
    let checks = status.health.checks.into_iter();
    let mut checks = checks.filter(|one| one.name == check);
    format!("{:?}", checks.next().unwrap().findings)
}
