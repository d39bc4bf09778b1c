//! Work on a cluster whose etcd has no quorum, or whose quorum the master cannot see.

use std::sync::Arc;
use std::time::Duration;

use halite_api::EventData;
use halite_etcd::fake::{FakeCluster, host};
use halite_proto::v1;
use serde_json::json;

use super::contract::check_event;
use super::etcd_tests::{last, orchestrate};
use super::fixture::{Life, ScriptedMinion, Site, refused_again};

const TREE: &[(&str, &str)] = &[
    (
        "top.sls",
        "base:\n  'bootstrap-1':\n    - one\n  'cp-*':\n    - one\n  'worker-*':\n    - one\n",
    ),
    (
        "one.sls",
        "one:\n  file.managed:\n    - name: /one\n    - contents: x\n",
    ),
    (
        "gate.sls",
        "gate:\n  halite.etcd_quorum_allows:\n    - node: bootstrap-1\n    - timeout: 60\n",
    ),
];
const PLANES: [&str; 3] = ["bootstrap-1", "cp-2", "cp-3"];

/// Three control planes with a member each, and a worker.
fn site() -> (Site, Arc<FakeCluster>) {
    let mut site = Site::new(TREE);
    for (name, address) in [("cp-2", "10.10.0.12"), ("cp-3", "10.10.0.13")] {
        let file = site.path().join(format!("etc/nodes/{name}.yaml"));
        let text = format!(
            "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [etcd, control-plane]\naddress: {address}\n"
        );
        std::fs::write(file, text).unwrap();
    }
    let cluster = Arc::new(FakeCluster::new(&PLANES));
    site.etcd = Some((cluster.clone(), Duration::from_secs(60)));
    (site, cluster)
}

/// The number of states that each control plane and the worker have applied.
fn applied(hosts: &[ScriptedMinion]) -> Vec<usize> {
    let count = |host: &ScriptedMinion| host.journal.lock().unwrap().applied.len();
    hosts.iter().map(count).collect()
}

/// Runs a highstate of all hosts; returns its exit code and its reports on parallel hosts.
fn highstate(life: &Life) -> (i32, Vec<v1::Event>) {
    let mut events = life.run("state.highstate", "", json!({}), false);
    let retcode = events.last().unwrap().retcode;
    events.retain(|event| event.tag.ends_with("/repair"));
    (retcode, events)
}

/// One by one, the first host would wait for members on later hosts and fail, and nothing would be
/// repaired. Here the first one fails, and the others continue.
#[test]
fn hosts_without_a_quorum_are_repaired_in_parallel_and_the_report_says_so() {
    let (site, cluster) = site();
    cluster.stop("cp-2");
    cluster.stop("cp-3");
    let life = site.live();
    let hosts: Vec<ScriptedMinion> = (PLANES.iter().chain(&["worker-1"]))
        .map(|name| ScriptedMinion::new(name))
        .collect();
    for host in &hosts {
        life.connect(host);
    }
    hosts[0]
        .journal
        .lock()
        .unwrap()
        .failing
        .insert("one".to_owned());
    let (retcode, said) = highstate(&life);
    assert_eq!(retcode, 1);
    assert_eq!(said.len(), 1, "{said:?}");
    check_event("event-job-repair", &said[0]);
    let EventData::ParallelRepair(repair) = EventData::read(&said[0].tag, &said[0].data_json)
    else {
        panic!("{said:?}");
    };
    assert_eq!(repair.hosts, PLANES);
    for part in ["no quorum", "cp-2", "cp-3"] {
        assert!(repair.because.contains(part), "{repair:?}");
    }
    let received = |host: &ScriptedMinion| host.journal.lock().unwrap().received.len();
    // The hosts after the control planes do not start: one control plane failed.
    let begun: Vec<usize> = hosts.iter().map(received).collect();
    assert_eq!(begun, [1, 1, 1, 0]);

    // With a quorum, the hosts are done one after the other again.
    hosts[0].journal.lock().unwrap().failing.clear();
    let before = applied(&hosts);
    cluster.start(&host("cp-2"));
    cluster.start(&host("cp-3"));
    let (retcode, said) = highstate(&life);
    assert_eq!((retcode, said.as_slice()), (0, &[][..]));
    let now = applied(&hosts);
    assert!(
        now.iter()
            .zip(&before)
            .all(|(now, before)| *now == before + 1),
        "{before:?}, {now:?}"
    );
}

/// They are a quorum, and would lose it if all hosts were done in parallel.
#[test]
fn members_that_the_master_cannot_reach_stop_an_ordered_job() {
    let (mut site, cluster) = site();
    cluster.hide("cp-2");
    cluster.hide("cp-3");
    site.etcd = Some((cluster, Duration::ZERO));
    let life = site.live();
    let hosts = PLANES.map(ScriptedMinion::new);
    hosts.iter().for_each(|host| life.connect(host));
    let events = life.run("state.highstate", "", json!({}), false);
    let (retcode, data) = last(&events);
    assert_eq!(retcode, 1, "{data}");
    let said = |text: &str| events.iter().any(|event| event.data_json.contains(text));
    assert!(said("1 of 3 voting members of etcd serve"), "{data}");
    assert!(said("etcd has a quorum") && said("cp-3: "), "{data}");
    assert!(!events.iter().any(|event| event.tag.ends_with("/repair")));
    assert_eq!(applied(&hosts), [0, 0, 0]);
}

/// Runs a highstate of all hosts; the store refuses the first writes of this kind. Returns its exit
/// code, and how often each host applied something.
fn highstate_without(site: &Site, what: &str) -> (i32, Vec<usize>) {
    let life = site.live();
    let hosts = PLANES.map(ScriptedMinion::new);
    hosts.iter().for_each(|host| life.connect(host));
    let request = v1::RunRequest {
        function: "state.highstate".into(),
        args_json: "{}".into(),
        ..v1::RunRequest::default()
    };
    let stream = life.runtime.block_on(async {
        let mut refused = life.store.refuse(what).await;
        let stream = life.backend.run("root", request).await.unwrap();
        refused_again(&mut refused).await;
        life.store.refuse_no_more().await;
        stream
    });
    let retcode = life.collect(stream).last().unwrap().retcode;
    (retcode, applied(&hosts))
}

/// The deadline starts only after the gate.
#[test]
fn a_host_that_did_not_pass_ends_when_the_store_takes_it() {
    let (mut site, cluster) = site();
    cluster.hide("cp-2");
    cluster.hide("cp-3");
    site.etcd = Some((cluster, Duration::ZERO));
    let lost = "UPDATE OF state ON job_rows WHEN new.state = 'lost'";
    assert_eq!(highstate_without(&site, lost), (1, vec![0, 0, 0]));
}

#[test]
fn parallel_hosts_all_get_the_job_that_the_store_refused_at_first() {
    let (site, cluster) = site();
    cluster.stop("cp-2");
    cluster.stop("cp-3");
    let sent = "UPDATE OF state ON job_rows WHEN new.state = 'sent'";
    assert_eq!(highstate_without(&site, sent), (0, vec![1, 1, 1]));
}

/// A reboot or an upgrade would start with the last running member.
#[test]
fn a_planned_step_does_not_pass_without_a_quorum() {
    let (site, cluster) = site();
    cluster.stop("cp-2");
    cluster.stop("cp-3");
    let life = site.live();
    let (retcode, data) = orchestrate(&life, "gate", &json!({}));
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("cannot continue with bootstrap-1: etcd has no quorum: ")
            && data.contains("repair those that run with `ctl highstate`"),
        "{data}"
    );
}
