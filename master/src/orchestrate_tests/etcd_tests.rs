//! Members that started to join before this run: a learner that never started, a started member
//! whose record was lost, and a member in the place of its host's earlier one.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use halite_etcd::fake::{FakeCluster, host};
use halite_etcd::{MemberHost, Members as _};
use serde_json::json;

use super::fixture::{adding, all_checks, applied, orchestrate, request, without_facts};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*': []\n"),
    (
        "orchestrate/join.sls",
        "join:\n  halite.etcd_add_learner:\n    - node: {{ pillar.node }}\n    - timeout: 20\n",
    ),
    (
        "orchestrate/leave.sls",
        "leave:\n  halite.etcd_remove:\n    - node: {{ pillar.node }}\n    - timeout: 20\n",
    ),
];

/// The pause between two looks at a document.
const LOOK: Duration = Duration::from_millis(1);
const PEER_URL: &str = "https://10.10.0.12:2380";

fn cp_2() -> MemberHost {
    MemberHost {
        name: "cp-2".to_owned(),
        peer_url: PEER_URL.to_owned(),
    }
}

/// Declares a further control plane on a site with one member.
fn beside_one(mut site: Site) -> (Site, Arc<FakeCluster>) {
    std::fs::write(
        document(&site),
        "apiVersion: halite/v1\nkind: Node\nmetadata:\n  name: cp-2\nroles: [control-plane, etcd]\nresolved:\n  \
         controlPlane: 10.10.0.12\n  workloadPlane: 10.10.0.12\n  vrrpPriority: 199\n",
    )
    .unwrap();
    let cluster = Arc::new(FakeCluster::new(&["bootstrap-1"]));
    site.etcd = Some((cluster.clone(), Duration::ZERO));
    (site, cluster)
}

fn document(site: &Site) -> PathBuf {
    site.path().join("etc/nodes/cp-2.yaml")
}

fn text(site: &Site) -> String {
    std::fs::read_to_string(document(site)).unwrap()
}

fn run(life: &Life, sls: &str, node: &str) -> String {
    let (retcode, data) = orchestrate(life, request(sls, &json!({"node": node})));
    assert_eq!(retcode, 0, "{data}");
    data
}

fn add_learner(life: &Life, cluster: &FakeCluster) {
    life.runtime
        .block_on(cluster.add_learner(PEER_URL))
        .unwrap();
}

#[test]
fn a_learner_that_never_started_leaves_with_its_host() {
    let (site, cluster) = beside_one(Site::new(TREE));
    let life = site.live();
    add_learner(&life, &cluster);
    for _ in 0..2 {
        let data = run(&life, "orchestrate.leave", "cp-2");
        assert!(data.contains("etcd is without cp-2"), "{data}");
        assert_eq!(
            cluster.changes(),
            [format!("add {PEER_URL}").as_str(), "remove 2"]
        );
    }
    // A host that is not declared, or has no member, has no address to identify it.
    for name in ["cp-9", "worker-1"] {
        run(&life, "orchestrate.leave", name);
    }
    assert_eq!(cluster.changes().len(), 2);
}

/// The document came from a standby that did not have the record yet.
#[test]
fn a_member_that_has_started_is_recorded_where_its_document_does_not_have_it() {
    let (site, cluster) = beside_one(Site::new(TREE));
    let life = site.live();
    add_learner(&life, &cluster);
    cluster.start(&cp_2());
    let before = text(&site);
    let data = run(&life, "orchestrate.join", "cp-2");
    assert!(data.contains("is a member of etcd already"), "{data}");
    let recorded = text(&site);
    for line in [
        &*format!("bootstrap-1=https://bootstrap-1:2380,cp-2={PEER_URL}"),
        "clusterId: \"1\"",
        "memberId: \"2\"",
    ] {
        assert!(recorded.contains(line), "no {line} in:\n{recorded}");
    }
    run(&life, "orchestrate.join", "cp-2");
    assert_eq!(text(&site), recorded);
    assert_eq!(cluster.changes(), [format!("add {PEER_URL}")]);

    // The record of the previous member: the flags of the first start stay, and the ids come from
    // etcd.
    let older = "  etcd:\n    member: cp-2\n    initialCluster: \"cp-2=https://10.10.0.12:2380\"\n    clusterId: \"1\"\n    \
                 memberId: \"9\"\n";
    std::fs::write(document(&site), format!("{before}{older}")).unwrap();
    run(&life, "orchestrate.join", "cp-2");
    let corrected = text(&site);
    assert!(corrected.contains("memberId: \"2\""), "{corrected}");
    assert!(!corrected.contains("bootstrap-1="), "{corrected}");
}

/// Its flags are a founding member's: others would replace its pod.
#[test]
fn the_member_of_the_first_host_is_never_recorded_as_one_that_joined() {
    let mut site = Site::new(TREE);
    let cluster = Arc::new(FakeCluster::new(&["10.10.0.11"]));
    cluster.start(&MemberHost {
        name: "bootstrap-1".to_owned(),
        ..host("10.10.0.11")
    });
    site.etcd = Some((cluster, Duration::ZERO));
    let life = site.live();
    life.connect(&ScriptedMinion::new("bootstrap-1"));
    let document = site.path().join("etc/nodes/bootstrap-1.yaml");
    let before = std::fs::read_to_string(&document).unwrap();
    run(&life, "orchestrate.join", "bootstrap-1");
    assert_eq!(std::fs::read_to_string(&document).unwrap(), before);
}

/// The host's files of a member that etcd has removed are cleaned up before the new member starts;
/// the data of a started member may be a vote, and are left alone.
#[test]
fn an_earlier_member_of_the_host_ends_only_before_a_learner_that_never_started() {
    let (site, cluster) = beside_one(adding("cp-2"));
    let life = site.live();
    let (first, plane) = (without_facts("bootstrap-1"), without_facts("cp-2"));
    life.connect(&first);
    life.connect(&plane);
    let pillar = json!({"node": "cp-2", "ignore_preflight": all_checks()});
    let add = || {
        let before = applied(&plane).len();
        let ended = orchestrate(&life, request("halite.orchestrate.add_node", &pillar));
        assert_eq!(ended.0, 0, "{}", ended.1);
        applied(&plane).split_off(before)
    };
    let at = |states: &[String], name: &str| states.iter().position(|state| state == name);
    let states = std::thread::scope(|scope| {
        let (site, cluster) = (&site, &cluster);
        // It is dropped when the run has ended, also if it fails: then no record will come.
        let (_running, ended) = channel::<()>();
        scope.spawn(move || {
            while !text(site).contains("initialCluster") {
                if ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
            }
            cluster.start(&cp_2());
            cluster.tick();
        });
        add()
    });
    let (ends, begins) = (at(&states, "earlier"), at(&states, "receives"));
    assert!(ends.is_some() && ends < begins, "{states:?}");

    let states = add();
    assert_eq!(at(&states, "earlier"), None, "{states:?}");
    assert!(at(&states, "receives").is_some(), "{states:?}");
}
