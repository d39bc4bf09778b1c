//! The interpretation of answers, and the pods of daemons.

use std::collections::BTreeSet;

use futures_util::FutureExt as _;
use halite_host_reports::pod_network::{
    Configuration, Fault as Missed, PodNetworkReport, Setup, What,
};
use halite_pillar::cluster::Cluster;
use halite_pillar::programs::CniPlugin;
use serde_json::{Value, json};

use super::judge::{setup, traffic};
use super::question::{question, strangers};
use super::{Replica, daemons};
use crate::kubernetes::fake::FakeApi;

const FLANNEL: CniPlugin = CniPlugin::Flannel;

/// A change of a healthy host.
type Damage<'a> = &'a dyn Fn(&mut Setup);

fn cluster(plugin: CniPlugin) -> Cluster {
    let mut cluster: Cluster = serde_json::from_value(json!({
        "apiVersion": "halite/v1", "kind": "Cluster", "metadata": {"name": "demo"},
        "networks": {"controlPlane": {"cidrs": ["10.0.0.0/24"]}, "pods": "10.233.0.0/16", "services": "10.96.0.0/12"},
        "kubernetes": {"version": "1.36"},
    }))
    .unwrap();
    cluster.cni.plugin = plugin;
    cluster
}

fn replica(host: &str, last: u8) -> Replica {
    Replica {
        host: host.to_owned(),
        address: [10, 233, last, 2].into(),
    }
}

fn configuration(path: &str, plugins: &[&str]) -> Option<Configuration> {
    Some(Configuration {
        path: path.to_owned(),
        name: "x".to_owned(),
        plugins: plugins.iter().map(|plugin| (*plugin).to_owned()).collect(),
    })
}

fn sound() -> Setup {
    Setup {
        configuration: configuration(
            "/etc/cni/net.d/10-flannel.conflist",
            &["flannel", "portmap"],
        ),
        forwards: true,
        gateway: Some([10, 233, 1, 1].into()),
        bridge: vec![[10, 233, 1, 1].into()],
    }
}

#[test]
fn pods_are_asked_for_those_of_other_nodes_a_service_and_the_dns() {
    let replicas = [
        replica("cp-1", 0),
        replica("cp-2", 1),
        replica("worker-1", 2),
        replica("cp-3", 3),
    ];
    let of = |plugin, sources: &[u8], replicas: &[Replica]| {
        let sources: Vec<_> = sources
            .iter()
            .map(|last| [10, 233, 2, *last].into())
            .collect();
        question(&cluster(plugin), "worker-1", &sources, replicas)
    };
    let asked = of(FLANNEL, &[9], &replicas);
    let targets: Vec<(String, u16)> = asked
        .targets
        .iter()
        .map(|target| (format!("{:?} {}", target.what, target.address), target.port))
        .collect();
    let name = "kubernetes.default.svc.cluster.local";
    assert_eq!(
        targets,
        [
            ("Pod(\"cp-1\") 10.233.0.2".to_owned(), 53),
            ("Pod(\"cp-2\") 10.233.1.2".to_owned(), 53),
            ("Service 10.96.0.1".to_owned(), 443),
            (format!("Dns({name:?}) 10.96.0.10"), 53),
        ]
    );
    // The pod that was started for the test, then the replica of this host.
    assert_eq!(
        asked.sources,
        [[10, 233, 2, 9], [10, 233, 2, 2]].map(std::net::Ipv4Addr::from)
    );
    assert!(asked.any && asked.pods == "10.233.0.0/16");
    // Another network may forbid to other pods what these pods reach.
    assert!(!of(CniPlugin::None, &[], &replicas).any);
    // There is nothing to test without a replica.
    let left = of(FLANNEL, &[], &[]).targets;
    assert!(
        matches!(left.as_slice(), [only] if only.what == What::Service),
        "{left:?}"
    );
}

/// The file of that network may be gone while its pods still run.
#[test]
fn a_pod_of_another_network_is_named_and_asked_for_nothing() {
    let foreign = Replica {
        host: "cp-2".to_owned(),
        address: [10, 244, 0, 2].into(),
    };
    let replicas = [replica("cp-1", 0), foreign];
    let found = strangers(&cluster(FLANNEL), &replicas);
    let [only] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(only.host, "cp-2");
    assert!(
        only.message
            .contains("10.244.0.2, which is not in 10.233.0.0/16"),
        "{only:?}"
    );
    assert!(only.remedy.contains("`ctl node reboot cp-2`"), "{only:?}");
    let asked = question(&cluster(FLANNEL), "worker-1", &[], &replicas);
    let pods = asked
        .targets
        .iter()
        .filter(|one| matches!(one.what, What::Pod(_)));
    assert_eq!(pods.count(), 1);
    let own = question(&cluster(FLANNEL), "cp-2", &[], &replicas).sources;
    assert!(own.is_empty(), "{own:?}");
}

#[test]
fn what_is_in_the_way_of_a_new_pod_is_named_with_its_remedy() {
    let found = |plugin, damage: &dyn Fn(&mut Setup)| {
        let mut host = sound();
        damage(&mut host);
        setup("worker-1", plugin, &host).map(|fault| (fault.message, fault.remedy))
    };
    assert_eq!(found(FLANNEL, &|_| {}), None);
    let cases: [(Damage<'_>, &str, &str); 5] = [
        (
            &|host| host.forwards = false,
            "net.ipv4.ip_forward is 0",
            "`ctl highstate worker-1`",
        ),
        (
            &|host| host.configuration = None,
            "no network is configured",
            "delete pod -l app=flannel",
        ),
        (
            &|host| {
                host.configuration = configuration("/etc/cni/net.d/05-old.conflist", &["bridge"])
            },
            "of /etc/cni/net.d/05-old.conflist instead of the declared one",
            "`ctl cmd worker-1 -- 'rm /etc/cni/net.d/05-old.conflist'`, then `ctl node reboot worker-1`",
        ),
        (
            &|host| host.gateway = None,
            "subnet.env is missing",
            "`ctl highstate worker-1` restarts flannel",
        ),
        (
            &|host| host.bridge = vec![[10, 244, 0, 1].into()],
            "cni0 on worker-1 has the address 10.244.0.1 instead of 10.233.1.1",
            "`ctl cmd worker-1 -- 'ip link delete cni0'`",
        ),
    ];
    for (damage, message, remedy) in cases {
        let (said, advice) = found(FLANNEL, damage).unwrap();
        assert!(said.contains(message), "{said}");
        assert!(advice.contains(remedy), "{advice}");
    }
    // No pod has run there yet.
    assert_eq!(found(FLANNEL, &|host| host.bridge.clear()), None);
    // A plugin of the operator that calls flannel's.
    let multus = |host: &mut Setup| {
        host.configuration = configuration("/etc/cni/net.d/00-multus.conf", &["multus-shim"]);
    };
    assert_eq!(found(FLANNEL, &multus), None);
}

#[test]
fn of_an_operators_own_network_only_what_every_network_needs_is_judged() {
    let other = Setup {
        configuration: configuration("/etc/cni/net.d/10-calico.conflist", &["calico"]),
        forwards: true,
        gateway: None,
        bridge: vec![[10, 244, 0, 1].into()],
    };
    assert_eq!(setup("worker-1", CniPlugin::None, &other), None);
    for damage in [
        Setup {
            forwards: false,
            ..other.clone()
        },
        Setup {
            configuration: None,
            ..other
        },
    ] {
        let found = setup("worker-1", CniPlugin::None, &damage);
        assert!(!found.unwrap().remedy.contains("flannel"));
    }
}

/// The answer of a minion that did not reach a target.
fn missed(target: usize, interface: &str) -> PodNetworkReport {
    PodNetworkReport {
        source: Some([10, 233, 1, 9].into()),
        faults: vec![Missed {
            target,
            reason: "no answer within 2 s".to_owned(),
            no_route: interface == "none",
            interface: interface.to_owned(),
        }],
        ..PodNetworkReport::default()
    }
}

#[test]
fn what_pods_do_not_reach_is_named_by_its_layer() {
    let replicas = [replica("cp-1", 0)];
    let asked = question(&cluster(FLANNEL), "worker-1", &[], &replicas);
    let judged = |plugin, answer: &PodNetworkReport| {
        let fault = traffic("worker-1", plugin, &asked, answer, |_| false).unwrap();
        (fault.message, fault.remedy)
    };
    for (plugin, target, interface, message, remedy) in [
        (
            FLANNEL,
            0,
            "eth0",
            "the route by flannel.1 is missing on worker-1",
            "`ctl highstate worker-1` restarts flannel",
        ),
        (
            FLANNEL,
            0,
            "",
            "the route by flannel.1 is missing on worker-1",
            "`ctl highstate worker-1` restarts flannel",
        ),
        (
            FLANNEL,
            0,
            "flannel.1",
            "the VXLAN packets or their answers are lost",
            "UDP port 8472 between worker-1 and cp-1",
        ),
        (
            CniPlugin::None,
            0,
            "tunl0",
            "worker-1 sends these packets by tunl0",
            "your network on worker-1 and cp-1",
        ),
        (
            CniPlugin::None,
            0,
            "",
            "worker-1 has no route there",
            "your network on worker-1 and cp-1",
        ),
        (
            FLANNEL,
            1,
            "",
            "do not reach the Service of the API at 10.96.0.1:443",
            "delete pod -l k8s-app=kube-proxy",
        ),
        (
            FLANNEL,
            2,
            "",
            "the cluster's DNS at 10.96.0.10:53 does not answer",
            "logs -l k8s-app=kube-dns",
        ),
    ] {
        let (said, advice) = judged(plugin, &missed(target, interface));
        assert!(
            said.contains(message) && said.contains("no answer within 2 s"),
            "{said}"
        );
        assert!(advice.contains(remedy), "{advice}");
    }
    let sound = PodNetworkReport::default();
    assert_eq!(
        traffic("worker-1", FLANNEL, &asked, &sound, |_| false),
        None
    );
    // The other host has a finding of its own.
    let answer = missed(0, "flannel.1");
    assert_eq!(
        traffic("worker-1", FLANNEL, &asked, &answer, |host| host == "cp-1"),
        None
    );
    // Without a default route the host itself reaches no Service, but its pods do.
    let from_the_host = PodNetworkReport {
        source: None,
        ..missed(1, "none")
    };
    assert_eq!(
        traffic("worker-1", FLANNEL, &asked, &from_the_host, |_| false),
        None
    );
}

fn daemon_set(namespace: &str, name: &str, ready: u64, priority: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"namespace": namespace, "name": name},
        "spec": {"template": {"spec": {"priorityClassName": priority}}},
        "status": {"desiredNumberScheduled": 2, "numberReady": ready}})
}

fn pod(set: &str, node: &str, status: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "kube-system", "name": format!("{set}-{node}"), "ownerReferences": [{"kind": "DaemonSet", "name": set}]},
        "spec": {"nodeName": node}, "status": status})
}

#[test]
fn a_daemon_that_does_not_run_on_a_ready_node_is_named() {
    let api = FakeApi::default();
    let critical = "system-node-critical";
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    let crashed = json!({"containerStatuses": [{"name": "kube-proxy", "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1}}}]});
    let nodes: BTreeSet<&str> = ["cp-1", "worker-1"].into();
    let inspect = |plugin| {
        let found = daemons::inspect(&api, plugin, &nodes).now_or_never();
        let found = found.expect("the fake never waits").unwrap();
        let texts = found.into_iter().map(|fault| (fault.host, fault.message));
        texts.collect::<Vec<_>>()
    };
    let missing = inspect(CniPlugin::None);
    assert_eq!(
        missing,
        [(
            String::new(),
            "there is no DaemonSet kube-system/kube-proxy".to_owned()
        )]
    );

    api.put(daemon_set("kube-system", "kube-proxy", 2, critical));
    api.put(pod("kube-proxy", "cp-1", &ready));
    api.put(pod("kube-proxy", "worker-1", &crashed));
    assert_eq!(inspect(CniPlugin::None), [], "its pods are not even listed");
    assert_eq!(inspect(FLANNEL).len(), 1, "there is no flannel");

    api.put(daemon_set("kube-system", "kube-proxy", 1, critical));
    let message = "kube-proxy-worker-1 does not run on worker-1: its container kube-proxy waits: CrashLoopBackOff, after the \
                   exit code 1";
    assert_eq!(
        inspect(CniPlugin::None),
        [("worker-1".to_owned(), message.to_owned())]
    );

    // An operator's network is recognised by its priority; other DaemonSets on the nodes do not
    // belong to the network.
    api.put(daemon_set("kube-system", "kube-proxy", 2, critical));
    api.put(daemon_set("kube-system", "calico-node", 1, critical));
    api.put(daemon_set("kube-system", "logs", 0, ""));
    api.put(pod("calico-node", "cp-1", &json!({})));
    let message = "calico-node-cp-1 does not run on cp-1: it is not ready";
    assert_eq!(
        inspect(CniPlugin::None),
        [("cp-1".to_owned(), message.to_owned())]
    );

    // A webhook may prevent the pods of a node.
    api.put(daemon_set("kube-flannel", "kube-flannel-ds", 1, critical));
    api.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-flannel"}}));
    let found = inspect(FLANNEL);
    let message = "kube-flannel/kube-flannel-ds has no pod on cp-1";
    assert!(
        found.contains(&("cp-1".to_owned(), message.to_owned())),
        "{found:?}"
    );
}
