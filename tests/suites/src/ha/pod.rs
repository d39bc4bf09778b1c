//! A client in a pod on the worker.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::wait;
use serde_json::json;

/// Limit for the pod to have an address.
const ADDRESS: Duration = Duration::from_secs(120);
const NAME: &str = "client";

/// Starts a pod on the worker and returns its network namespace, as the machine sees it. The pod ends
/// with its Kubernetes namespace.
pub(super) fn network(cluster: &Cluster, namespace: &str) -> Result<PathBuf> {
    let version = halite_upstream::versions::AGNHOST;
    let image = format!("--image=registry.k8s.io/e2e-test-images/agnhost:{version}");
    let node = json!({"apiVersion": "v1", "spec": {"nodeName": cluster.worker.spec.name}});
    let overrides = format!("--overrides={node}");
    let words = [
        "-n", namespace, "run", NAME, &image, &overrides, "--", "pause",
    ];
    cluster.kubectl(&words)?;
    let get = ["-n", namespace, "get", "pod", NAME, "-o"];
    let address = wait::until("an address of the pod", ADDRESS, || {
        let address = cluster.kubectl(&[&get[..], &["jsonpath={.status.podIP}"]].concat())?;
        ensure!(!address.is_empty(), "it has none");
        Ok(address)
    })?;
    let line = format!(
        "for file in /run/netns/*; do nsenter --net=$file ip -4 -o address | grep -qF ' {address}/' && echo $file; done; true"
    );
    let file = cluster.worker.sh(&line)?;
    let file = file.lines().next();
    let file = file.with_context(|| format!("no network namespace has {address}"))?;
    let init = cluster.worker.is_on()?;
    Ok(PathBuf::from(format!("/proc/{init}/root{file}")))
}
