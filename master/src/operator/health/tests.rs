//! Each check on a healthy cluster and on one with the damage that it finds; the reference.

mod cases;
mod reported;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use futures_util::FutureExt as _;
use halite_api::{CertificateAuthority, HighstateResult, KubernetesNode, Time};
use halite_cluster::pod_network::Fault;
use halite_core::refusal::Refusal;
use halite_etcd::Overview;
use halite_etcd::fake::FakeCluster;
use halite_host_reports::health::{HostHealth, Lifetime};
use halite_host_reports::pod_network::{
    Configuration, Fault as Missed, PodNetworkReport, Question, Setup, Target, What,
};

use self::cases::CASES;
use self::reported::REPORTED;
use super::observe::{Component, Silence};
use super::*;

const DAY: i64 = 24 * 60 * 60;

fn overview(stopped: &[&str]) -> Overview {
    let cluster = FakeCluster::new(&["cp-1", "cp-2", "cp-3"]);
    stopped.iter().for_each(|name| cluster.stop(name));
    let overview = Overview::take(&cluster).now_or_never();
    overview.expect("the fake never waits").unwrap()
}

/// A part of the cluster that cannot be asked, for this reason.
fn silent(reason: &str) -> Silence {
    Refusal::internal(reason).into()
}

/// Three control planes; the second holds the virtual address.
fn sound() -> Picture {
    let names = ["cp-1", "cp-2", "cp-3"];
    let name = |name: &str| name.parse().unwrap();
    let host = |name: &&str| HostPicture {
        name: (*name).to_owned(),
        declared: true,
        runs_containers: true,
        accepted: true,
        connected: true,
        highstate: Some(HighstateResult::Succeeded),
        node: Some(node(true, &[])),
    };
    let answer = |index: u8| HostHealth {
        boot: String::new(),
        addresses: match index {
            2 => vec![[10, 0, 0, 2].into(), [10, 0, 0, 100].into()],
            index => vec![[10, 0, 0, index].into()],
        },
        mtus: BTreeMap::new(),
        certificates: vec![Lifetime {
            ends: 365 * DAY,
            begins: 0,
            path: "/etc/kubernetes/pki/apiserver.crt".to_owned(),
            subject: String::new(),
            issuer: String::new(),
        }],
        etcd_free: Some(256 << 20),
        images_free: None,
        bundles_free: None,
        held: BTreeMap::new(),
        bare: false,
    };
    let component = |host: &str, component: &'static str| Component {
        host: name(host),
        name: component,
        fault: None,
    };
    let seen = ClusterAnswers {
        nodes: names
            .iter()
            .map(|name| ((*name).to_owned(), node(true, &[])))
            .collect(),
        dns: Some(["cp-1", "cp-2"].map(str::to_owned).into()),
        components: names
            .iter()
            .map(|host| component(host, "kube-scheduler"))
            .collect(),
        servers: names.iter().map(|host| (name(host), None)).collect(),
        etcd: Some(Ok(overview(&[]))),
        minions: (1..)
            .zip(names)
            .map(|(index, host)| (name(host), answer(index)))
            .collect(),
        pods: names.iter().map(|host| (name(host), asked(host))).collect(),
        ..ClusterAnswers::default()
    };
    Picture {
        now: 200 * DAY * 1000,
        hosts: names.iter().map(host).collect(),
        vip: Some([10, 0, 0, 100].into()),
        seen: Some(seen),
        ..Picture::default()
    }
}

/// The query about a host's pod network, and the answer of a healthy one.
fn asked(host: &str) -> (Question, PodNetworkReport) {
    let other = if host == "cp-1" { "cp-2" } else { "cp-1" };
    let target = Target {
        what: What::Pod(other.to_owned()),
        address: [10, 233, 7, 2].into(),
        port: 53,
    };
    let question = Question {
        targets: vec![target],
        ..Question::default()
    };
    let flannel = Configuration {
        path: "/etc/cni/net.d/10-flannel.conflist".to_owned(),
        name: "cbr0".to_owned(),
        plugins: vec!["flannel".to_owned()],
    };
    let setup = Setup {
        configuration: Some(flannel),
        forwards: true,
        gateway: Some([10, 233, 1, 1].into()),
        bridge: Vec::new(),
    };
    let answer = PodNetworkReport {
        setup: Some(setup),
        ..PodNetworkReport::default()
    };
    (question, answer)
}

/// The answer of a host's minion about its pod network.
fn pods<'a>(picture: &'a mut Picture, host: &str) -> &'a mut PodNetworkReport {
    &mut seen(picture).pods.get_mut(host).unwrap().1
}

/// An unreachable pod on another node.
fn missed() -> Missed {
    Missed {
        target: 0,
        reason: "no answer within 2 s".to_owned(),
        no_route: false,
        interface: "flannel.1".to_owned(),
    }
}

fn seen(picture: &mut Picture) -> &mut ClusterAnswers {
    picture.seen.as_mut().unwrap()
}

fn etcd(picture: &mut Picture) -> &mut Overview {
    let etcd = seen(picture).etcd.as_mut().unwrap();
    etcd.as_mut().unwrap()
}

/// The checks with findings: name, state, first message, first remedy.
fn found(picture: &Picture) -> Vec<[String; 4]> {
    let checks = report(picture).checks.into_iter();
    let failing = checks.filter(|check| check.state != CheckState::Good);
    failing
        .map(|mut check| {
            let first = check.findings.remove(0);
            [
                check.name,
                check.state.to_string(),
                first.message,
                first.remedy.unwrap_or_default(),
            ]
        })
        .collect()
}

/// A Kubernetes node with these abnormal conditions.
fn node(ready: bool, reasons: &[&str]) -> KubernetesNode {
    KubernetesNode {
        ready,
        reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
        kubelet: None,
    }
}

#[test]
fn a_sound_cluster_is_healthy() {
    assert_eq!(found(&sound()), Vec::<[String; 4]>::new());
    assert!(report(&sound()).healthy);
    // Before anything is declared there is nothing to find, either.
    assert!(report(&Picture::default()).healthy);
}

#[test]
fn each_damage_is_found_by_its_check_and_has_a_remedy() {
    for (damage, name, state, message, remedy) in CASES {
        let mut picture = sound();
        damage(&mut picture);
        let found = found(&picture);
        let [[own, weight, said, advice]] = found.as_slice() else {
            panic!("{name}: {found:?}");
        };
        assert_eq!((own.as_str(), weight.as_str()), (*name, *state));
        assert!(said.starts_with(message), "{name}: {said}");
        assert!(advice.contains(remedy), "{name}: {advice}");
        assert_eq!(advice.is_empty(), remedy.is_empty(), "{name}: {advice}");
        assert_eq!(report(&picture).healthy, *state == "warning", "{name}");
    }
}

#[test]
fn each_check_has_a_damage_that_it_alone_finds() {
    let damaged = CASES.iter().map(|(_, name, ..)| *name);
    let reported = REPORTED.iter().map(|(name, ..)| *name);
    let with: BTreeSet<&str> = damaged.chain(reported).collect();
    let names = CHECKS.iter().map(|check| check.name);
    let without: Vec<&str> = names.filter(|name| !with.contains(name)).collect();
    assert!(
        without.is_empty(),
        "no case in tests/cases.rs or tests/reported.rs: {without:?}"
    );
}

#[test]
fn unknown_facts_cause_no_finding() {
    let mut picture = sound();
    // A minion that did not answer may hold the address.
    seen(&mut picture).minions.remove("cp-2");
    seen(&mut picture).dns = None;
    assert_eq!(found(&picture), Vec::<[String; 4]>::new());
    // Without the API no node is known.
    seen(&mut picture).api_fault = Some(silent("no route"));
    picture.hosts.iter_mut().for_each(|host| host.node = None);
    let names: Vec<String> = found(&picture).into_iter().map(|[name, ..]| name).collect();
    assert_eq!(names, ["api"]);
}

/// Only the first broken part of each host is a finding, and a host that is not Ready has none.
#[test]
fn consequences_of_a_broken_network_part_are_not_findings() {
    let mut picture = sound();
    for host in ["cp-1", "cp-2", "cp-3"] {
        pods(&mut picture, host).faults.push(missed());
    }
    let all = |picture: &Picture| {
        let found = found(picture).into_iter();
        found
            .map(|[name, _, message, _]| format!("{name}: {message}"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(network::traffic(&picture).len(), 3);
    // cp-2 and cp-3 ask cp-1, which asks cp-2.
    pods(&mut picture, "cp-1").setup.as_mut().unwrap().forwards = false;
    assert_eq!(network::traffic(&picture), [], "{}", all(&picture));
    assert_eq!(network::setup(&picture).len(), 1);
    seen(&mut picture).daemons.push(Fault {
        host: "cp-1".to_owned(),
        message: "kube-flannel-ds-x does not run on cp-1".to_owned(),
        remedy: "x".to_owned(),
    });
    assert_eq!(
        (
            network::daemons(&picture).len(),
            network::setup(&picture).len()
        ),
        (1, 0)
    );
    seen(&mut picture).daemons.clear();
    picture.hosts[0].node = Some(node(false, &[]));
    assert_eq!(
        (
            network::setup(&picture).len(),
            network::traffic(&picture).len()
        ),
        (0, 0)
    );
}

#[test]
fn what_helps_an_own_member_is_not_said_of_an_external_one() {
    for overview in [Err(silent("connection refused")), Ok(overview(&["cp-3"]))] {
        let mut picture = sound();
        seen(&mut picture).etcd = Some(overview);
        seen(&mut picture).etcd_is_external = true;
        let found = found(&picture);
        let [_, state, message, remedy] = &found[0];
        assert_eq!((state.as_str(), remedy.as_str()), ("failure", ""));
        let external = "etcd is external (etcd.placement): repair it where it runs";
        assert!(message.ends_with(external), "{message}");
    }
}

#[test]
fn without_a_quorum_the_members_are_named_too() {
    let mut picture = sound();
    seen(&mut picture).etcd = Some(Ok(overview(&["cp-2", "cp-3"])));
    let found = found(&picture);
    assert_eq!(found[0][0], "etcd-quorum");
    assert_eq!(
        found[0][2],
        "etcd: 3 members, 0 of them serve: no quorum, 2 are needed"
    );
    assert_eq!(found[1][0], "etcd-members");
}

#[test]
fn a_ca_that_ends_is_one_finding_and_its_copies_on_hosts_are_none() {
    let mut picture = sound();
    let ca = |name: &str, days: i64| CertificateAuthority {
        name: name.to_owned(),
        subject: format!("CN={name}"),
        expires: Time::from_millis(days * DAY * 1000),
        days_left: 0,
        signs: true,
    };
    picture.authorities = vec![(ca("kubernetes", 230), 0), (ca("site", 3650), 0)];
    for health in seen(&mut picture).minions.values_mut() {
        health.certificates.push(Lifetime {
            ends: 230 * DAY,
            begins: 0,
            path: "/etc/kubernetes/pki/ca.crt".to_owned(),
            subject: "CN=kubernetes".to_owned(),
            issuer: "CN=kubernetes".to_owned(),
        });
    }
    let ending = certificates::ending(&picture);
    let [finding] = ending.as_slice() else {
        panic!("{ending:?}");
    };
    assert_eq!(finding.host.as_deref(), Some(""), "{finding:?}");
    assert!(
        finding
            .message
            .starts_with("the CA kubernetes ends at 1970-08-19"),
        "{finding:?}"
    );
    let remedy = finding.remedy.as_deref().unwrap();
    assert!(remedy.contains("`ctl certs rotate kubernetes`"), "{remedy}");
    // Then it is a finding of `certificate-authorities`.
    picture.now = 231 * DAY * 1000;
    assert_eq!(certificates::ending(&picture), []);
    assert_eq!(certificates::ended(&picture), []);
    // With an external etcd, no program uses the master's CA of etcd.
    picture.authorities = vec![(ca("etcd", 232), 0)];
    assert_eq!(certificates::ending(&picture).len(), 1);
    seen(&mut picture).etcd_is_external = true;
    assert_eq!(certificates::ending(&picture).len(), 0);
}

#[test]
fn names_are_distinct_and_remedies_one_line() {
    let names: BTreeSet<&str> = CHECKS.iter().map(|check| check.name).collect();
    assert_eq!(names.len(), CHECKS.len());
    for check in CHECKS {
        assert!(!check.remedy.is_empty(), "{}", check.name);
        let in_table = [check.title, check.remedy].concat();
        assert!(!in_table.contains(['\n', '|']), "{}", check.name);
    }
}

/// The reference of all checks in Markdown.
fn reference() -> String {
    let mut text = String::from(
        "# Checks of `ctl health`\n\n\
         Generated from the table in `master/src/operator/health`; a test compares them. A failure makes the exit code of\n\
         `ctl health` and `ctl status` 1, a warning does not. [Health](../guide/health.md) says how to use them.\n\n\
         | name | sound when | otherwise | what to do |\n|---|---|---|---|\n",
    );
    for check in CHECKS {
        let severity = match check.severity {
            Severity::Failure => CheckState::Failure,
            Severity::Warning => CheckState::Warning,
        };
        let remedy = check.remedy;
        let _ = writeln!(
            text,
            "| `{}` | {} | {severity} | {remedy} |",
            check.name, check.title
        );
    }
    text
}

#[test]
fn the_reference_in_docs_is_current() {
    halite_golden::check_reference("health.md", &reference());
}
