//! The metrics for Prometheus: their port and the authorities of clients.

use super::Check;
use super::external::pem;
use crate::metrics::METRICS_PORT;
use crate::registry;
use crate::view::{API_PORT, BUNDLE_PORT, MASTER_PORT};

/// The ports that other programs use on a host that runs the master, as in docs/guide/ports.md.
const TAKEN: [(u16, &str); 13] = [
    (MASTER_PORT, "the master"),
    (BUNDLE_PORT, "the bundle server"),
    (registry::PORT, "the site registry"),
    (API_PORT, "kube-apiserver"),
    (2379, "etcd"),
    (2380, "etcd"),
    (2381, "etcd"),
    (10248, "the kubelet"),
    (10249, "kube-proxy"),
    (10250, "the kubelet"),
    (10256, "kube-proxy"),
    (10257, "kube-controller-manager"),
    (10259, "kube-scheduler"),
];

pub(super) fn check(check: &mut Check<'_>) {
    let Some(metrics) = &check.declaration.cluster.master.metrics else {
        return;
    };
    let port = metrics.listen;
    if let Some((_, program)) = TAKEN.iter().find(|(taken, _)| *taken == port) {
        check.cluster(
            "master.metrics.listen",
            format!("{program} uses port {port}"),
            format!("choose another, for example {METRICS_PORT}"),
        );
    }
    if let Some(text) = &metrics.client_ca {
        pem(check, "master.metrics.clientCA", text);
    }
}
