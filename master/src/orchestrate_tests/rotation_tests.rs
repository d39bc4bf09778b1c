//! Rotations of each CA, and of the key pair that signs tokens: the master dies, a minion is killed
//! or a host is cut off in the middle, there are two control planes, or the old CA leaves at once.
//!
//! Each of them is interrupted in each step. The rotation of the CA of Kubernetes has most kinds of
//! steps, and a run of its own for each interruption. The others have one run for all: separate
//! ones would take more than half a minute of a processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use halite_core::ca::{HALITE, KUBERNETES, SITE};
use halite_core::roster::FollowState;
use halite_pillar::ca_rotation::{ROTATED, SERVICE_ACCOUNTS};
use halite_proto::ids::JobId;
use serde_json::json;

use super::ca_identities_tests::{self, cas};
use super::ca_tests::{self, ROTATE, contents, joined, plane, put_namespace, rotate, stored};
use super::encryption_fixture::standbys;
use super::fixture::{
    cut_off, cut_off_in_each_step, findings, killed, killed_in_each_job, killed_in_each_step,
    killed_in_job, newest_run, request, resumed,
};
use super::rotation_hosts_tests::{self, JOINED, connect, declare_plane};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

/// The hosts of the site.
const HOSTS: [&str; 2] = ["bootstrap-1", "worker-1"];

/// All that can be rotated, but for the CA of Kubernetes.
fn others() -> impl Iterator<Item = &'static str> {
    ROTATED.into_iter().filter(|ca| *ca != KUBERNETES)
}

/// A control plane and a worker before a rotation.
fn prepared() -> (Site, [ScriptedMinion; 2]) {
    let site = ca_identities_tests::site();
    put_namespace(&site);
    let hosts = [plane(&site), ScriptedMinion::new(HOSTS[1])];
    (site, hosts)
}

fn live(site: &Site, hosts: &[ScriptedMinion; 2]) -> Life {
    let life = site.live();
    hosts.iter().for_each(|host| life.connect(host));
    life
}

/// The certificates of a CA, or the public keys of tokens.
fn public(site: &Site, ca: &str) -> String {
    let stored = stored(site);
    match ca {
        SERVICE_ACCOUNTS => stored.sa_public_pem().to_owned(),
        ca => stored.certificate_pem(ca).unwrap().to_owned(),
    }
}

/// The file of a control plane with a CA, or with the public keys of tokens, in the tests' states.
fn file_of(ca: &str) -> &'static str {
    match ca {
        KUBERNETES => "/ca.crt",
        "etcd" => "/etcd-ca.crt",
        "front-proxy" => "/front-proxy-ca.crt",
        SERVICE_ACCOUNTS => "/sa.pub",
        HALITE => "/operator-ca.crt",
        _ => "/site-ca.crt",
    }
}

/// The same on a worker; `None` if it does not have it.
fn file_of_worker(ca: &str) -> Option<&'static str> {
    match ca {
        KUBERNETES => Some("/node-ca.crt"),
        SITE => Some("/site-ca.crt"),
        _ => None,
    }
}

/// Checks that the new CA is on all hosts, which have seen all stages in order, and that nothing of
/// the rotation is left.
fn check_end(
    life: &Life,
    site: &Site,
    ca: &str,
    old: &str,
    hosts: &[ScriptedMinion; 2],
    case: &str,
) {
    let [first, worker] = hosts;
    match ca {
        KUBERNETES => ca_tests::check_stages(site, old, [first, worker], case),
        HALITE => ca_identities_tests::check_stages(site, old, [first, worker], case),
        _ => {}
    }
    let stages = stages(site, ca, old);
    assert_eq!(contents(first, file_of(ca)), stages, "{case}");
    if let Some(file) = file_of_worker(ca) {
        assert_eq!(contents(worker, file), stages, "{case}");
    }
    assert_eq!(stored(site).rotation(ca), None, "{case}");
    assert_eq!(findings(life, "ca-rotation"), "[]", "{case}");
    let other = JobId::from_number(1);
    let lock = life.store.take_lock("etcd-members", &other, 1);
    assert_eq!(life.runtime.block_on(lock).unwrap(), None, "{case}");
}

/// The certificates or keys on a host after each stage: both with the old one first, both with the
/// new one first, and the new one.
fn stages(site: &Site, ca: &str, old: &str) -> [String; 3] {
    let new = public(site, ca);
    assert_ne!(new, old, "{ca}");
    [joined(old, &new), joined(&new, old), new]
}

#[test]
fn a_rotation_of_the_ca_of_kubernetes_whose_master_dies_ends_the_same() {
    let ca = KUBERNETES;
    // Each step has at least two events.
    for after in (1..).step_by(2) {
        let (site, hosts) = prepared();
        let life = live(&site, &hosts);
        let old = public(&site, ca);
        let ended = killed(life, request(ROTATE, &json!({"ca": ca})), after);
        let life = live(&site, &hosts);
        let (retcode, data) = resumed(&life, &newest_run(&life));
        let case = format!("{ca}: killed after {after}");
        assert_eq!(retcode, 0, "{case}: {data}");
        check_end(&life, &site, ca, &old, &hosts, &case);
        life.kill();
        if ended {
            break;
        }
    }
}

#[test]
fn other_rotations_whose_master_dies_end_the_same() {
    for ca in others() {
        let (site, hosts) = prepared();
        live(&site, &hosts).kill();
        let old = public(&site, ca);
        let request = request(ROTATE, &json!({"ca": ca}));
        let (life, retcode, data) = killed_in_each_step(|| live(&site, &hosts), request);
        assert_eq!(retcode, 0, "{ca}: {data}");
        check_end(&life, &site, ca, &old, &hosts, ca);
        life.kill();
    }
}

/// A minion is killed in one of the jobs that it gets.
fn killed_in_one_job(ca: &str, at: usize, job: usize) -> bool {
    let ((site, mut hosts), jobs) = (prepared(), Arc::new(AtomicUsize::new(0)));
    hosts[at] = killed_in_job(&hosts[at], job - 1, &jobs);
    let life = live(&site, &hosts);
    let old = public(&site, ca);
    let (retcode, data) = rotate(&life, &json!({"ca": ca}));
    let case = format!("{ca}: {} in job {job}", HOSTS[at]);
    assert_eq!(retcode, 0, "{case}: {data}");
    check_end(&life, &site, ca, &old, &hosts, &case);
    life.kill();
    let is_past = jobs.load(Ordering::SeqCst) < job;
    assert!(
        !is_past || at == 1 || job > 3,
        "{case}: no job in each stage"
    );
    is_past
}

#[test]
fn a_minion_that_is_killed_in_any_job_of_a_rotation_gets_it_again() {
    for at in [0, 1] {
        let mut jobs = 1..;
        while !killed_in_one_job(KUBERNETES, at, jobs.next().unwrap()) {}
        for ca in others() {
            let ((site, mut hosts), jobs) = (prepared(), Arc::new(AtomicUsize::new(0)));
            hosts[at] = killed_in_each_job(&hosts[at], &jobs);
            let life = live(&site, &hosts);
            let old = public(&site, ca);
            let (retcode, data) = rotate(&life, &json!({"ca": ca}));
            let case = format!("{ca}: {} in each job", HOSTS[at]);
            assert_eq!(retcode, 0, "{case}: {data}");
            check_end(&life, &site, ca, &old, &hosts, &case);
            life.kill();
            let jobs = jobs.load(Ordering::SeqCst);
            assert_eq!(jobs % 2, 0, "{case}: each of the {jobs} jobs was repeated");
            assert!(at == 1 || jobs >= 6, "{case}: no job in each stage");
        }
    }
}

/// Each step has one of the two hosts. If the run ends without it, the same command completes the
/// rotation.
#[test]
fn a_rotation_of_the_ca_of_kubernetes_that_loses_a_host_is_completed_by_the_same_command() {
    let (ca, pillar) = (KUBERNETES, json!({"ca": KUBERNETES}));
    for at in [0, 1] {
        for after in (1 + at..).step_by(2) {
            let (site, hosts) = prepared();
            let life = live(&site, &hosts);
            let old = public(&site, ca);
            let (last, ended) = cut_off(&life, request(ROTATE, &pillar), &hosts[at], after);
            let case = format!("{ca}: {} at step {after}: {}", HOSTS[at], last.data_json);
            // Another rotation would take another CA.
            if last.retcode != 0 {
                life.reconnect(&hosts[at]);
                let (retcode, data) = rotate(&life, &pillar);
                assert_eq!(retcode, 0, "{case}, then: {data}");
            }
            check_end(&life, &site, ca, &old, &hosts, &case);
            life.kill();
            if ended {
                break;
            }
        }
    }
}

#[test]
fn other_rotations_that_lose_a_host_are_completed_by_the_same_command() {
    for ca in others() {
        for at in [0, 1] {
            let (site, hosts) = prepared();
            let life = live(&site, &hosts);
            let old = public(&site, ca);
            let request = request(ROTATE, &json!({"ca": ca}));
            let (retcode, data) = cut_off_in_each_step(&life, &request, &hosts[at]);
            let case = format!("{ca}: {} in each step", HOSTS[at]);
            assert_eq!(retcode, 0, "{case}: {data}");
            check_end(&life, &site, ca, &old, &hosts, &case);
            life.kill();
        }
    }
}

#[test]
fn each_rotation_reaches_two_control_planes_stage_by_stage() {
    for ca in ROTATED {
        let site = rotation_hosts_tests::site();
        declare_plane(&site, JOINED);
        let life = site.live();
        let (first, second) = (plane(&site), ScriptedMinion::new("cp-2"));
        connect(&life, &[&first, &second, &ScriptedMinion::new(HOSTS[1])]);
        standbys(&life, &["cp-2"], FollowState::Following);
        let old = public(&site, ca);
        let (retcode, data) = rotate(&life, &json!({"ca": ca}));
        assert_eq!(retcode, 0, "{ca}: {data}");
        let stages = stages(&site, ca, &old);
        for host in [&first, &second] {
            assert_eq!(contents(host, file_of(ca)), stages, "{ca}: {}", host.id);
        }
        // Also at once.
        let (retcode, data) = rotate(&life, &json!({"ca": ca, "compromised": true}));
        assert_eq!(retcode, 0, "{ca}: {data}");
        let [_, _, before] = &stages;
        let now = public(&site, ca);
        assert_ne!(now, *before, "{ca}");
        for host in [&first, &second] {
            let all = contents(host, file_of(ca));
            assert_eq!(all[stages.len()..], [now.as_str()], "{ca}: {}", host.id);
        }
        assert_eq!(stored(&site).rotation(ca), None, "{ca}");
    }
}

/// Connected minions get the next CA of identities before, so that they are not lost.
#[test]
fn a_compromised_ca_leaves_all_hosts_in_one_stage() {
    for ca in ROTATED {
        let (site, hosts) = prepared();
        let life = live(&site, &hosts);
        let old = public(&site, ca);
        let (retcode, data) = rotate(&life, &json!({"ca": ca, "compromised": true}));
        assert_eq!(retcode, 0, "{ca}: {data}");
        let new = public(&site, ca);
        assert_ne!(new, old, "{ca}");
        let [first, worker] = &hosts;
        assert_eq!(contents(first, file_of(ca)), [new.as_str()], "{ca}");
        if let Some(file) = file_of_worker(ca) {
            assert_eq!(contents(worker, file), [new.as_str()], "{ca}");
        }
        if ca == HALITE {
            for host in &hosts {
                assert_eq!(cas(host), [joined(&old, &new), new.clone()], "{}", host.id);
            }
        }
        assert_eq!(stored(&site).rotation(ca), None, "{ca}");
        assert_eq!(findings(&life, "ca-rotation"), "[]", "{ca}");
        life.kill();
    }
}
