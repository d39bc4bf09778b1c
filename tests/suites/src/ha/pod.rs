//! Pods on the worker: a client, and one whose image must be pulled.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;
use halite_upstream::LAB_POD;
use serde_json::{Value, json};

use crate::images;

/// Limit for the pod to have an address.
const ADDRESS: Duration = Duration::from_secs(120);
const NAME: &str = "client";
/// The component whose image no worker has.
const PULLED: &str = "kube-scheduler";
/// Limit until leftovers of an earlier attempt are gone.
const REMOVED: Duration = Duration::from_secs(120);
/// Limit for its pull: the kubelet waits before it retries a failed pull. Both limits together are
/// shorter than the ten minutes for which `ctl node replace` waits for the new host.
const PULL: Duration = Duration::from_secs(300);
/// The file of its pod, on a control plane.
const MANIFEST: &str = "/root/pulled.json";

/// Starts a pod on the worker and returns its network namespace, as a path of the machine. The pod
/// ends with its Kubernetes namespace.
pub(super) fn network(cluster: &Cluster, namespace: &str) -> Result<PathBuf> {
    let image = format!("--image={LAB_POD}");
    let node = json!({"apiVersion": "v1", "spec": {"nodeName": cluster.worker.spec.name}});
    let overrides = format!("--overrides={node}");
    let words = [
        "-n", namespace, "run", NAME, &image, &overrides, "--", "pause",
    ];
    cluster.kubectl(&words)?;
    let get = ["-n", namespace, "get", "pod", NAME, "-o"];
    let address = wait::until("an address of the pod", ADDRESS, || {
        let address = cluster.kubectl(&[&get[..], &["jsonpath={.status.podIP}"]].concat())?;
        ensure!(!address.is_empty(), "it has no address");
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

/// Starts a pod on the worker with an image that the worker lacks, and waits until it has run. It
/// is created from a control plane that has the bundle of that version.
pub(super) fn pulls(cluster: &Cluster, on: &Host, version: &str) -> Result<()> {
    let image = images::of_bundle(on, version, PULLED)?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pulled"},
        "spec": {"nodeName": cluster.worker.spec.name, "restartPolicy": "Never", "containers": [{
            "name": "it", "image": image, "command": [PULLED, "--version"],
        }]},
    });
    std::fs::write(on.file(MANIFEST), pod.to_string())?;
    let remove = || -> Result<()> {
        let delete = [
            "delete",
            "-f",
            MANIFEST,
            "--ignore-not-found",
            "--timeout=60s",
        ];
        cluster.kubectl_on(&on.spec.name, &delete)?;
        images::remove(&cluster.worker, &image)
    };
    // They may exist from an earlier attempt.
    wait::until("no such pod and image on the worker", REMOVED, remove)?;
    let ran = wait::until("a pod to pull its image and run", PULL, || {
        // Applied again it stays unchanged: a momentary failure does not fail the test.
        cluster.kubectl_on(&on.spec.name, &["apply", "-f", MANIFEST])?;
        let pod = cluster.kubectl_on(&on.spec.name, &["get", "-f", MANIFEST, "-o", "json"])?;
        let pod: Value = serde_json::from_str(&pod)?;
        let status = &pod["status"];
        ensure!(status["phase"] == "Succeeded", "{status}");
        Ok(())
    });
    // It disturbs no other test if it stays.
    let removed = remove();
    ran?;
    removed.or_else(|error| {
        println!("  cannot remove the pod that has pulled: {error:#}");
        Ok(())
    })
}
