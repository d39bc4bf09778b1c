//! Renewal of certificates: the part of a highstate that does it, and the existing certificates.

use std::collections::BTreeSet;

use halite_states::certificates::{OF_MEMBERS, SHIPPED, makes_one, renewal};
use halite_states::compile::Compiled;
use serde_json::json;

use crate::masters::metrics;
use crate::servers::site_registry;
use crate::support::{fixture, highstate, of};

/// The ids of the calls that renew certificates.
fn ids(compiled: &Compiled) -> Vec<String> {
    let kept = renewal(&compiled.low);
    kept.chunks.into_iter().map(|chunk| chunk.id).collect()
}

#[test]
fn a_worker_renews_its_kubelets_certificate_and_restarts_the_kubelet() {
    assert_eq!(
        ids(&of("worker")),
        [
            "/var/lib/kubelet/pki/kubelet-client-halite.pem",
            "kubelet-identity-renewed",
            "kubelet",
        ]
    );
}

#[test]
fn a_control_plane_renews_and_loads_and_writes_no_manifest() {
    let low = renewal(&of("bootstrap").low);
    let kept: Vec<&str> = low.chunks.iter().map(|chunk| chunk.id.as_str()).collect();
    for id in [
        "etcd-data",
        "halite-master-init",
        "nginx",
        "kubelet",
        "etcd-ready",
        "kube-apiserver-ready",
        "kube-controller-manager-ready",
        "kube-scheduler-ready",
        "/etc/kubernetes/scheduler.conf",
        "/etc/kubernetes/pki/etcd/peer.crt",
    ] {
        assert!(kept.contains(&id), "{id}: {kept:?}");
    }
    assert_eq!(kept[0], "etcd-data", "it refuses before anything changes");
    // Neither manifests nor configurations, packages or images: their declaration may have changed
    // since the last highstate.
    let functions: BTreeSet<String> = low.chunks.iter().map(|chunk| chunk.function()).collect();
    let functions: Vec<&str> = functions.iter().map(String::as_str).collect();
    assert_eq!(
        functions,
        [
            "cmd.run",
            "etcd.data",
            "file.symlink",
            "kubeconfig.managed",
            "service.running",
            "static_pod.running",
            "x509.certificate",
        ]
    );
    assert!(!low.chunks.iter().any(|chunk| chunk.sensitive));
    // The programs are restarted because of the files that they read.
    let manager = (low.chunks.iter()).find(|chunk| chunk.id == "kube-controller-manager-ready");
    let watched = &manager.unwrap().requisites.watch;
    let names: Vec<&str> = watched.iter().map(|at| kept[*at]).collect();
    assert_eq!(names, ["/etc/kubernetes/controller-manager.conf"]);
}

/// The master inspects these files and no others.
#[test]
fn each_certificate_that_a_state_makes_is_known_and_lives_as_long_as_the_others() {
    let (mut first, grains) = site_registry("bootstrap", "bootstrap-1");
    first["halite"]["addons"]["metricsServer"] = json!(true);
    first["halite"]["master"]["metrics"] = metrics(&["192.168.9.0/24"], false);
    let first = highstate(&first, &grains);
    let (mut further, grains) = fixture("worker");
    further["halite"]["node"]["roles"] = json!(["control-plane", "etcd"]);
    further["halite"]["node"]["vrrpPriority"] = json!(100);
    further["halite"]["pki"] = fixture("bootstrap").0["halite"]["pki"].take();
    let further = highstate(&further, &grains);
    let all = first.low.chunks.iter().chain(&further.low.chunks);
    let made: Vec<_> = all.filter(|chunk| makes_one(chunk)).collect();
    let names: BTreeSet<&str> = made.iter().map(|chunk| chunk.name.as_str()).collect();
    assert_eq!(names, SHIPPED.into_iter().collect());
    for chunk in made {
        for key in ["days", "renew_days"] {
            assert!(!chunk.args.contains_key(key), "{}: {key}", chunk.name);
        }
    }
    assert!(OF_MEMBERS.iter().all(|path| names.contains(path)));
}
