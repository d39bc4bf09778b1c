mod mtu;
mod pod_network;
mod storage;

use std::collections::BTreeSet;

use super::*;
use crate::node_facts::{DIRECTORIES, ExistingCluster, TOOLS, WatchedFileSystem};
use crate::part::{Added, Interface, OtherHost, Planes};
use crate::vip::WhoAnswers;

/// A host that passes every check.
fn good() -> NodeFacts {
    NodeFacts {
        systemd: true,
        os: "debian".into(),
        os_version: "12".into(),
        architecture: "x86_64".into(),
        kernel: "6.1.0-18-amd64".into(),
        cpus: 2,
        memory: 2000,
        free: DIRECTORIES
            .iter()
            .map(|place| ((*place).to_owned(), 10_000))
            .collect(),
        watched: vec![
            WatchedFileSystem {
                signal: "nodefs".into(),
                place: "/var/lib/kubelet".into(),
                size: 40_000,
                free: 10_000,
            },
            WatchedFileSystem {
                signal: "imagefs".into(),
                place: "/var/lib/containerd".into(),
                size: 40_000,
                free: 10_000,
            },
        ],
        inodes: Some(1_000_000),
        container_fs: "ext4".into(),
        file_systems: BTreeSet::from(["overlay".to_owned()]),
        cgroup_version: 2,
        cgroup_controllers: ["cpu", "cpuset", "memory", "pids"]
            .map(str::to_owned)
            .into(),
        kernel_log: true,
        tools: TOOLS.map(str::to_owned).into(),
        host_name: "bootstrap-1".into(),
        name: "bootstrap-1".into(),
        machine_id: "0123456789abcdef0123456789abcdef".into(),
        now: 1_800_000_000,
        built: Some(1_799_000_000),
        name_servers: vec!["10.0.0.1".into()],
        ..NodeFacts::default()
    }
}

type Damage = (&'static str, fn(&mut NodeFacts));

/// Each check once, with a change that makes it fail.
const DAMAGES: &[Damage] = &[
    ("documents", |f| {
        f.documents = vec!["cluster.yaml:1:1: no".into()]
    }),
    ("root", |f| f.uid = 1000),
    ("systemd", |f| f.systemd = false),
    ("operating-system", |f| f.os_version = "10".into()),
    ("architecture", |f| f.architecture = "aarch64".into()),
    ("kernel", |f| f.kernel = "5.10.0-28-amd64".into()),
    ("file-systems", |f| f.file_systems.clear()),
    ("cpus", |f| f.cpus = 1),
    ("memory", |f| f.memory = 1024),
    ("disk", |f| {
        f.free.insert("/var/lib".into(), 100);
    }),
    // Enough for the one, not for the other.
    ("disk-pressure", |f| f.watched[1].free = 5000),
    ("inodes", |f| f.inodes = Some(10)),
    ("writable", |f| f.read_only = vec!["/usr".into()]),
    ("executable", |f| f.no_exec = vec!["/var/lib".into()]),
    ("container-storage", |f| f.container_fs = "overlay".into()),
    ("swap", |f| {
        f.swaps = vec!["/dev/sda2".into()];
        f.requirements.manage_swap = false;
    }),
    ("cgroup-version", |f| {
        f.cgroup_version = 1;
        f.cgroup_controllers = ["cpu", "cpuacct", "cpuset", "devices", "memory", "pids"]
            .map(str::to_owned)
            .into();
    }),
    ("cgroup-controllers", |f| {
        f.cgroup_controllers.remove("memory");
    }),
    ("kernel-log", |f| f.kernel_log = false),
    ("tools", |f| {
        f.tools.remove("apt-get");
    }),
    ("packages", |f| f.dpkg_interrupted = true),
    ("held-packages", |f| {
        f.requirements.packages = [("ethtool".to_owned(), "6.1".to_owned())].into();
        f.packages.held = [("ethtool".to_owned(), String::new())].into();
    }),
    ("container-engine", |f| {
        f.packages.engines = ["docker.io".to_owned()].into();
    }),
    ("host-name", |f| f.name = "Bootstrap_1".into()),
    ("machine-id", |f| f.machine_id = "uninitialized".into()),
    ("clock", |f| f.now = 0),
    ("bundle", |f| f.bundle = vec!["apt/x.deb: changed".into()]),
    ("other-cluster", |f| {
        f.existing = ExistingCluster::Other("old".into())
    }),
    ("other-kubernetes", |f| {
        f.kubernetes = vec!["/etc/kubernetes/admin.conf".into()]
    }),
    ("other-pod-network", |f| {
        f.pod_network.files = vec!["/etc/cni/net.d/05-old.conflist".into()]
    }),
    ("other-firewall", |f| f.firewalls = vec!["ufw".into()]),
    ("ports-kubernetes", |f| f.listening.extend([6443])),
    ("ports-etcd", |f| f.listening.extend([2379])),
    ("ports-halite", |f| f.listening.extend([4550])),
    ("name-server", |f| f.name_servers.clear()),
    ("vip", |f| {
        f.requirements.vip = Some([10, 0, 0, 100].into());
        f.vip_answers = true;
    }),
];

fn bad(facts: &NodeFacts) -> Vec<&'static str> {
    let is_bad = |finding: &Finding| matches!(finding.verdict, Verdict::Bad(..));
    run(facts)
        .into_iter()
        .filter(is_bad)
        .map(|finding| finding.name)
        .collect()
}

fn warned(facts: &NodeFacts) -> Vec<&'static str> {
    let is_warning = |finding: &Finding| matches!(finding.verdict, Verdict::Warning(..));
    run(facts)
        .into_iter()
        .filter(is_warning)
        .map(|finding| finding.name)
        .collect()
}

#[test]
fn nothing_is_wrong_with_a_good_host() {
    assert!(
        run(&good())
            .iter()
            .all(|finding| finding.verdict == Verdict::Good)
    );
}

#[test]
fn each_check_fails_alone() {
    for (name, damage) in DAMAGES {
        let mut facts = good();
        damage(&mut facts);
        assert_eq!(bad(&facts), [*name]);
    }
    let tested: Vec<&str> = DAMAGES.iter().map(|(name, _)| *name).collect();
    let of_first = CHECKS.iter().filter(|check| check.scope != Scope::Added);
    let all: Vec<&str> = of_first.map(|check| check.name).collect();
    assert_eq!(tested, all, "every check has its test");
}

/// Both planes are one network.
fn one_network<T: Copy>(value: T) -> Planes<T> {
    Planes {
        control: Some(value),
        workload: Some(value),
    }
}

/// A second control plane that passes every check.
fn good_added() -> NodeFacts {
    let other = OtherHost {
        name: "bootstrap-1".into(),
        machine_id: "fedcba9876543210fedcba9876543210".into(),
        debian: Some("12".into()),
        interfaces: one_network(Interface {
            address: [10, 0, 0, 1].into(),
            mtu: 1500,
        }),
    };
    let now = good().now;
    let added = Added {
        runs_containers: true,
        control_plane: true,
        etcd: true,
        clock: (now, now + 1),
        vip: Some([10, 0, 0, 100].into()),
        addresses: one_network([10, 0, 0, 2].into()),
        others: vec![other],
        ..Added::default()
    };
    NodeFacts {
        part: ClusterPart::Added(added),
        name: "cp-2".into(),
        host_name: "cp-2".into(),
        addresses: [[10, 0, 0, 2].into()].into(),
        mtus: [([10, 0, 0, 2].into(), 1500), ([127, 0, 0, 1].into(), 65536)].into(),
        fsync_p99_us: Some(10_000),
        vip_holder: Some(WhoAnswers::ThisCluster),
        // A check of a first host only.
        documents: vec!["cluster.yaml:1:1: no".into()],
        ..good()
    }
}

type Change = fn(&mut NodeFacts);

/// The checks of an added host, each with a change that makes it warn, and one that makes it fail.
const OF_ADDED: &[(&str, Option<Change>, Option<Change>)] = &[
    (
        "unique-name",
        None,
        Some(|f| f.host_name = "bootstrap-1".into()),
    ),
    (
        "unique-machine-id",
        None,
        Some(|f| f.machine_id = "fedcba9876543210fedcba9876543210".into()),
    ),
    (
        "clock-of-master",
        Some(|f| f.now -= 3),
        Some(|f| f.now += 60),
    ),
    (
        "peers",
        None,
        Some(|f| f.unreachable = vec!["etcd of bootstrap-1 at 10.0.0.1:2380: no route".into()]),
    ),
    (
        "mtu",
        Some(|f| f.mtus = [([10, 0, 0, 2].into(), 9000)].into()),
        None,
    ),
    ("packet-filter", None, Some(|f| f.os_version = "13".into())),
    (
        "vip-of-host",
        None,
        Some(|f| f.addresses = [[10, 0, 0, 100].into()].into()),
    ),
    (
        "vip-answers",
        Some(|f| f.vip_holder = Some(WhoAnswers::Nothing("no answer within 3 s".into()))),
        Some(|f| f.vip_holder = Some(WhoAnswers::Another("UnknownIssuer".into()))),
    ),
    (
        "etcd-disk",
        Some(|f| f.fsync_p99_us = Some(10_001)),
        Some(|f| f.fsync_p99_us = Some(200_001)),
    ),
];

#[test]
fn an_added_host_is_compared_with_the_others() {
    let facts = good_added();
    assert!(
        run(&facts)
            .iter()
            .all(|found| found.verdict == Verdict::Good)
    );
    for (name, notable, wrong) in OF_ADDED {
        if let Some(damage) = notable {
            let mut facts = good_added();
            damage(&mut facts);
            assert_eq!((bad(&facts), warned(&facts)), (vec![], vec![*name]));
        }
        if let Some(damage) = wrong {
            let mut facts = good_added();
            damage(&mut facts);
            // A host with the name of another one differs from its own name, too.
            let also: &[&str] = if *name == "unique-name" {
                &["host-name"]
            } else {
                &[]
            };
            assert_eq!((bad(&facts), warned(&facts)), (vec![*name], also.to_vec()));
        }
    }
    let tested: Vec<&str> = OF_ADDED.iter().map(|(name, ..)| *name).collect();
    let of_added = CHECKS.iter().filter(|check| check.scope == Scope::Added);
    let all: Vec<&str> = of_added.map(|check| check.name).collect();
    assert_eq!(tested, all, "every check has its test");
}

#[test]
fn a_long_name_is_refused_unless_a_host_without_a_kubelet_has_it() {
    let mut facts = good_added();
    facts.name = "kubernetes-registry-0001.rack-07.datacentre-nordwest.example".into();
    facts.host_name = facts.name.clone();
    facts.existing = ExistingCluster::This;
    assert_eq!(bad(&facts), ["host-name"]);
    let ClusterPart::Added(roles) = &mut facts.part else {
        unreachable!()
    };
    (roles.runs_containers, roles.control_plane, roles.etcd) = (false, false, true);
    assert_eq!(bad(&facts), [""; 0]);
    facts.existing = ExistingCluster::None;
    assert_eq!(bad(&facts), ["host-name"]);
}

#[test]
fn a_first_host_needs_no_ports_of_an_etcd_that_is_elsewhere() {
    let mut facts = good();
    facts.listening.extend([2379, 2380]);
    assert_eq!(bad(&facts), ["ports-etcd"]);
    facts.requirements.external_etcd = true;
    assert_eq!(bad(&facts), [""; 0]);
}

#[test]
fn an_added_host_needs_the_ports_and_the_size_of_its_roles() {
    let mut facts = good_added();
    facts.listening = [6443, 10250, 2380, 4550, 4551].into();
    facts.cpus = 1;
    let of_plane = ["cpus", "ports-kubernetes", "ports-etcd"];
    assert_eq!(bad(&facts), of_plane);
    let ClusterPart::Added(roles) = &mut facts.part else {
        unreachable!()
    };
    (roles.control_plane, roles.etcd, roles.registry) = (false, false, true);
    let findings = run(&facts);
    assert_eq!(bad(&facts), ["ports-kubernetes", "ports-halite"]);
    let ports = findings
        .iter()
        .find(|found| found.name == "ports-kubernetes");
    assert_eq!(
        ports.map(|found| &found.verdict),
        Some(&Verdict::bad(
            "something listens on TCP 10250",
            "stop that program; `ss -lntp` shows it"
        ))
    );
    // The next `node add` finds the leftovers of the first one.
    facts.existing = ExistingCluster::This;
    assert_eq!(bad(&facts), [""; 0]);
}

#[test]
fn a_host_of_the_cluster_that_gets_a_control_plane_needs_the_ports_of_that_only() {
    let mut facts = good_added();
    facts.existing = ExistingCluster::This;
    // The kubelet and the proxy are its own, and another program is on etcd's port.
    facts.listening = [6443, 10250, 2379].into();
    let judged = |facts: &mut NodeFacts, gained: BTreeSet<u16>| {
        if let ClusterPart::Added(added) = &mut facts.part {
            (added.control_plane, added.etcd) = (true, true);
            added.gained = gained;
        }
        bad(facts)
    };
    assert_eq!(judged(&mut facts, BTreeSet::new()), [""; 0]);
    assert_eq!(
        judged(&mut facts, gained_ports(true, true, true)),
        ["ports-etcd"]
    );
    let without_proxy = gained_ports(true, true, false);
    assert_eq!(
        judged(&mut facts, without_proxy),
        ["ports-kubernetes", "ports-etcd"]
    );
    assert!(gained_ports(false, false, false).is_empty());
}

#[test]
fn an_operator_may_ignore_a_problem_by_its_name() {
    let mut facts = good_added();
    facts.listening = [10250].into();
    facts.fsync_p99_us = Some(300_000);
    let mut findings = run(&facts);
    ignore(&mut findings, &["etcd-disk".to_owned(), "swap".to_owned()]);
    assert!(!passed(&findings));
    ignore(&mut findings, &["ports-kubernetes".to_owned()]);
    assert!(passed(&findings));
    let ignored = findings.iter().filter(|found| match &found.verdict {
        Verdict::Warning(message, _) => message.ends_with("(ignored)"),
        _ => false,
    });
    assert_eq!(ignored.count(), 2);
}

#[test]
fn all_that_is_wrong_is_in_one_report() {
    let mut facts = good();
    DAMAGES.iter().for_each(|(_, damage)| damage(&mut facts));
    let findings = run(&facts);
    let missed: Vec<_> = CHECKS
        .iter()
        .filter(|check| check.scope != Scope::Added)
        .map(|check| check.name)
        .filter(|name| !bad(&facts).contains(name))
        .collect();
    // On a host of another cluster, its Kubernetes, its containers and its pod network are not
    // further problems.
    let of_bare = ["container-engine", "other-kubernetes", "other-pod-network"];
    assert_eq!(missed, of_bare);
    assert_eq!(findings.len(), DAMAGES.len());
}

#[test]
fn what_halite_mends_itself_is_a_warning() {
    let mut facts = good();
    facts.swaps = vec!["/swapfile".into()];
    facts.name = "node-1".into();
    assert_eq!(bad(&facts), [""; 0]);
    assert_eq!(warned(&facts), ["swap", "host-name"]);
}

#[test]
fn what_is_declared_changes_what_is_wrong() {
    let mut facts = good();
    facts.cgroup_version = 1;
    facts.cgroup_controllers = ["cpu", "cpuacct", "cpuset", "devices", "memory", "pids"]
        .map(str::to_owned)
        .into();
    facts.requirements.fail_cgroup_v1 = false;
    facts.kernel = "5.10.0".into();
    facts.requirements.nftables = false;
    facts.firewalls = vec!["ufw".into()];
    facts.requirements.manage_firewall = false;
    facts.watched[1].free = 5000;
    facts.requirements.eviction = Some([("imagefs.available".to_owned(), "1Gi".to_owned())].into());
    assert_eq!(bad(&facts), [""; 0]);
}

#[test]
fn a_second_run_is_not_disturbed_by_the_first() {
    let mut facts = good();
    facts.existing = ExistingCluster::This;
    facts.listening = [6443, 2379, 4550].into();
    facts.kubernetes = vec!["/var/lib/etcd/member".into()];
    facts.pod_network.files = vec!["/etc/cni/net.d/10-flannel.conflist".into()];
    facts.pod_network.interfaces = vec!["cni0".into(), "flannel.1".into()];
    facts.dpkg_interrupted = true;
    facts.free.insert("/var/lib".into(), 2000);
    facts.watched[0].free = 100;
    facts.inodes = Some(40_000);
    facts.requirements.vip = Some([10, 0, 0, 100].into());
    facts.vip_answers = true;
    assert_eq!(bad(&facts), [""; 0]);
    assert_eq!(
        warned(&facts),
        ["disk", "disk-pressure", "inodes"],
        "space that it uses itself is not a reason to stop"
    );
}

#[test]
fn a_clock_in_the_far_future_is_wrong_too() {
    let mut facts = good();
    facts.now = 4_000_000_000;
    assert_eq!(bad(&facts), ["clock"]);
    facts.now = 1_799_000_000 - 3600;
    assert_eq!(
        bad(&facts),
        [""; 0],
        "time zones and slow clocks are not a reason to stop"
    );
}
