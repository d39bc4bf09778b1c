//! Addons: an enabled addon works, its damaged or deleted objects come back, and a disabled one
//! leaves no object behind. An addon whose removal would delete data is not removed.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Error, Result, anyhow, bail, ensure};
use halite_lab::cluster::{BOOTSTRAP, Cluster, WORKER};
use halite_lab::wait;
use halite_upstream::versions::BUSYBOX;
use serde_json::Value;

use super::cluster::PODS;
use super::repair::{highstate, pods, quiet, settled};
use crate::declare::declare;
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "addons: enabled, nodes and pods have metrics and volumes hold data",
        run: on,
    },
    Test {
        name: "addons: deleted objects come back, and then nothing is written",
        run: kept,
    },
    Test {
        name: "addons: disabled, data is kept until it is deleted, and nothing else is left",
        run: off,
    },
];

/// Every object of the cluster before addons, for the last test.
const BEFORE: &str = "root/before-addons.txt";
/// Fewest objects that the two addons have.
const OBJECTS: usize = 16;

/// Kinds of objects that come and go by themselves.
const PASSING: &[&str] = &[
    "certificatesigningrequests.certificates.k8s.io",
    "componentstatuses",
    "endpoints",
    "endpointslices.discovery.k8s.io",
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
];

/// Every object of every kind, by kind, namespace and name.
pub(super) fn objects(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let kinds = cluster.kubectl(&["api-resources", "--verbs=list", "-o", "name"])?;
    let kinds: Vec<&str> = kinds
        .lines()
        .filter(|kind| !PASSING.contains(kind) && !kind.contains("metrics.k8s.io"))
        .collect();
    let columns = "-o=custom-columns=kind:.kind,namespace:.metadata.namespace,name:.metadata.name";
    let text = cluster.kubectl(&["get", &kinds.join(","), "-A", "--no-headers", columns])?;
    Ok(text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect())
}

/// Waits until the cluster has these objects, and no others.
pub(super) fn only(cluster: &Cluster, wanted: &BTreeSet<String>) -> Result<()> {
    wait::until(
        "everything that was disabled to be gone, and nothing else",
        PODS,
        || {
            let now = objects(cluster)?;
            if now == *wanted {
                Ok(())
            } else {
                Err(anyhow!(
                    "{:#?}",
                    now.symmetric_difference(wanted).collect::<Vec<_>>()
                ))
            }
        },
    )
}

/// A claim of the default storage class, and a pod that writes its own name into the volume.
fn volume() -> String {
    format!(
        "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: kept-data, namespace: default}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Mi}}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: keeps-data, namespace: default}}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{{name: data, persistentVolumeClaim: {{claimName: kept-data}}}}]
  containers:
  - name: shell
    image: docker.io/library/busybox:{BUSYBOX}
    command: [sh, -c, 'echo written by $HOSTNAME > /data/it && sleep 1000000']
    volumeMounts: [{{name: data, mountPath: /data}}]
"
    )
}

fn on(cluster: &Cluster) -> Result<Counts> {
    let before: Vec<String> = objects(cluster)?.into_iter().collect();
    fs::write(cluster.bootstrap.root().join(BEFORE), before.join("\n"))?;
    declare(cluster, "addons", "{metricsServer: true, localPath: true}")?;
    highstate(cluster, &[])?;
    measured(cluster)?;
    holds_data(cluster)?;
    Ok(Counts {
        passed: 3,
        failed: 0,
    })
}

/// Checks that both nodes and their pods have metrics. metrics-server verifies the kubelets'
/// certificates.
pub(super) fn measured(cluster: &Cluster) -> Result<()> {
    // Through the aggregation layer, and from the pod to the kubelet of either host.
    wait::until("both nodes to be measured", PODS, || {
        let top = cluster.kubectl(&["top", "nodes", "--no-headers"])?;
        let measured = |name: &&str| {
            top.lines()
                .any(|line| line.starts_with(name) && !line.contains("unknown"))
        };
        if [BOOTSTRAP, WORKER].iter().all(measured) {
            Ok(())
        } else {
            Err(Error::msg(top))
        }
    })?;
    wait::until("pods to be measured", PODS, || {
        let top = cluster.kubectl(&["top", "pods", "-A", "--no-headers"])?;
        let measured = |name: &&str| top.lines().any(|line| line.contains(name));
        if ["kube-apiserver", "coredns", "metrics-server"]
            .iter()
            .all(measured)
        {
            Ok(())
        } else {
            Err(Error::msg(top))
        }
    })?;
    let server = cluster.kubectl(&[
        "-n",
        "kube-system",
        "get",
        "deployment",
        "metrics-server",
        "-o",
        "yaml",
    ])?;
    ensure!(
        !server.contains("insecure") && server.contains("--kubelet-certificate-authority="),
        "{server}"
    );
    Ok(())
}

/// Checks that a claim gets a volume, and that the volume keeps the pod's data on its host's disk.
pub(super) fn holds_data(cluster: &Cluster) -> Result<()> {
    fs::write(cluster.bootstrap.root().join("root/volume.yaml"), volume())?;
    cluster.kubectl(&["apply", "-f", "/root/volume.yaml"])?;
    let written = wait::until("a pod to write into a volume", PODS, || {
        let read = ["exec", "keeps-data", "--", "cat", "/data/it"];
        cluster.kubectl(&read)
    })?;
    ensure!(written.trim() == "written by keeps-data", "{written:?}");
    let class = cluster.kubectl(&[
        "get",
        "pvc",
        "kept-data",
        "-o",
        "jsonpath={.spec.storageClassName} {.status.phase}",
    ])?;
    ensure!(class == "local-path Bound", "{class}");
    let on_disk = cluster
        .worker
        .sh("cat /opt/local-path-provisioner/*_default_kept-data/it")?;
    ensure!(on_disk == written, "on the disk of {WORKER} is {on_disk:?}");
    Ok(())
}

/// The versions of all objects that have Halite's label, by name; an error if there are fewer than
/// `least`.
fn versions(cluster: &Cluster, least: usize) -> Result<BTreeSet<String>> {
    let kinds = "deployments,services,serviceaccounts,configmaps,roles,rolebindings,clusterroles,clusterrolebindings,\
                 storageclasses,namespaces,apiservices";
    let text = cluster.kubectl(&["get", kinds, "-A", "-l", "halite/set", "-o", "json"])?;
    let list: Value = serde_json::from_str(&text)?;
    let items = list["items"].as_array().context("no list of objects")?;
    ensure!(
        items.len() >= least,
        "only {} objects bear the mark",
        items.len()
    );
    // Other programs write the status of a Deployment or an APIService; its generation counts only
    // changes of the spec.
    let version = |item: &Value| {
        let metadata = &item["metadata"];
        let counted = if metadata["generation"].is_null() {
            &metadata["resourceVersion"]
        } else {
            &metadata["generation"]
        };
        let version = if item["kind"] == "APIService" {
            &metadata["labels"]
        } else {
            counted
        };
        format!(
            "{} {}/{}: {version}",
            item["kind"], metadata["namespace"], metadata["name"]
        )
    };
    Ok(items.iter().map(version).collect())
}

fn kept(cluster: &Cluster) -> Result<Counts> {
    let running = pods(cluster)?;
    for (namespace, object) in [
        ("kube-system", "deployment/metrics-server"),
        ("local-path-storage", "deployment/local-path-provisioner"),
        ("local-path-storage", "configmap/local-path-config"),
        ("default", "clusterrole/system:metrics-server"),
    ] {
        cluster.kubectl(&["-n", namespace, "delete", object])?;
    }
    cluster.kubectl(&[
        "annotate",
        "--overwrite",
        "storageclass",
        "local-path",
        "storageclass.kubernetes.io/is-default-class=false",
    ])?;
    let repaired = highstate(cluster, &[])?;
    let of_addons = |tag: &&String| tag.contains("metrics-server") || tag.contains("local-path");
    ensure!(
        repaired.changed.iter().filter(of_addons).count() == 2 && repaired.changed.len() == 2,
        "{:#?}",
        repaired.changed
    );
    settled(cluster, running)?;
    nothing_written(cluster, OBJECTS)?;
    Ok(Counts {
        passed: 2,
        failed: 0,
    })
}

/// Runs a highstate that must change nothing and write none of the objects that have Halite's
/// label.
pub(super) fn nothing_written(cluster: &Cluster, least: usize) -> Result<()> {
    let before = versions(cluster, least)?;
    quiet(cluster)?;
    let after = versions(cluster, least)?;
    ensure!(
        before == after,
        "a highstate wrote: {:#?}",
        before.symmetric_difference(&after).collect::<Vec<_>>()
    );
    Ok(())
}

fn off(cluster: &Cluster) -> Result<Counts> {
    declare(cluster, "addons", "{metricsServer: true}")?;
    let message = match highstate(cluster, &[]) {
        Ok(_) => bail!("local-path was removed although a volume is in use"),
        Err(error) => format!("{error:#}"),
    };
    for part in [
        "nothing was removed",
        "StorageClass local-path: PersistentVolumeClaim default/kept-data",
    ] {
        ensure!(message.contains(part), "{part:?} is not in {message}");
    }
    let still = cluster.kubectl(&["exec", "keeps-data", "--", "cat", "/data/it"])?;
    ensure!(still.trim() == "written by keeps-data", "{still:?}");

    cluster.kubectl(&["delete", "-f", "/root/volume.yaml", "--wait=true"])?;
    // local-path deletes it by a pod, to which it gives two minutes before it retries.
    wait::until("the volume to be removed", PODS, || {
        let left = cluster.kubectl(&["get", "pv", "-o", "name"])?;
        if left.trim().is_empty() {
            Ok(())
        } else {
            Err(Error::msg(left))
        }
    })?;
    let left = cluster.worker.run(&["ls", "/opt/local-path-provisioner"])?;
    ensure!(left.trim().is_empty(), "the provisioner left {left}");

    declare(cluster, "addons", "")?;
    highstate(cluster, &[])?;
    let before = fs::read_to_string(cluster.bootstrap.root().join(BEFORE))?;
    let before: BTreeSet<String> = before.lines().map(str::to_owned).collect();
    only(cluster, &before)?;
    quiet(cluster)?;
    Ok(Counts {
        passed: 2,
        failed: 0,
    })
}
