//! The properties that a user expects of a finished cluster.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, Cluster, WORKER};
use halite_lab::wait;
use halite_upstream::LAB_POD;
use serde_json::{Value, json};

use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "cluster: both nodes are Ready",
        run: nodes_ready,
    },
    Test {
        name: "cluster: a pod reaches a Service and a DNS name across nodes",
        run: service_across_nodes,
    },
    Test {
        name: "cluster: logs and exec work on both nodes",
        run: logs_and_exec,
    },
    Test {
        name: "cluster: kubeadm accepts it",
        run: kubeadm_accepts,
    },
];

pub(super) const AT_THE_END: &[Test<Cluster>] = &[Test {
    name: "cluster: nothing tried to leave",
    run: nothing_left,
}];

/// Name prefix of the servers that stay for later tests; the name of their node follows.
pub(super) const STAYING: &str = "on";

/// Port on which servers listen.
pub(super) const PORT: u16 = 8080;

/// Limit for pods to run, and to be gone. The kubelet waits up to five minutes before it restarts a
/// scheduler or a controller manager that lost its lease, and a taint of a new node that Kubernetes
/// has failed to remove stays until the kubelet's next report, which takes as long.
pub(super) const PODS: Duration = Duration::from_secs(420);

/// Limit for one pod to reach another.
const REACHED: Duration = Duration::from_secs(90);

/// Limit for kubeadm to plan an upgrade. It gives its own Job a fixed time to complete, which may
/// be too short on a busy machine.
const PLANNED: Duration = Duration::from_secs(390);

pub(super) fn nodes_ready(cluster: &Cluster) -> Result<Counts> {
    let list: Value = serde_json::from_str(&cluster.kubectl(&["get", "nodes", "-o", "json"])?)?;
    let nodes = list["items"].as_array().context("no list of nodes")?;
    for name in [BOOTSTRAP, WORKER] {
        let node = nodes
            .iter()
            .find(|n| n["metadata"]["name"] == name)
            .with_context(|| format!("no node {name}"))?;
        let conditions = node["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        ensure!(
            conditions
                .iter()
                .any(|c| c["type"] == "Ready" && c["status"] == "True"),
            "{name} is not Ready: {conditions:?}"
        );
    }
    ensure!(nodes.len() == 2, "{} nodes instead of 2", nodes.len());
    Ok(Counts::ONE)
}

/// Manifests of a server on each node, and of a Service in front of it.
fn servers(prefix: &str) -> String {
    let of_node = |node: &str| {
        let name = format!("{prefix}-{node}");
        let server = json!({
            "name": "server", "image": LAB_POD, "args": ["serve", format!("--http-port={PORT}")],
        });
        [
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
                "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1,
                    "tolerations": [{"operator": "Exists"}], "containers": [server]},
            }),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
                "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": PORT}]},
            }),
        ]
    };
    let items = [BOOTSTRAP, WORKER].map(of_node).concat();
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

/// Path of these manifests on the bootstrap host.
fn file(prefix: &str) -> String {
    format!("/root/servers-{prefix}.json")
}

/// Makes a server on each node, unless it exists.
pub(super) fn ensure_servers(cluster: &Cluster, prefix: &str) -> Result<()> {
    std::fs::write(cluster.bootstrap.file(&file(prefix)), servers(prefix))?;
    cluster.kubectl(&["apply", "-f", &file(prefix)])?;
    cluster.wait_for_pods(PODS)
}

/// Deletes objects, named by these arguments of kubectl, and waits until they are gone.
pub(super) fn delete(cluster: &Cluster, objects: &[&str]) -> Result<()> {
    let limit = format!("--timeout={}s", PODS.as_secs());
    let options = ["--wait", &limit];
    cluster
        .kubectl(&[&["delete"], objects, &options].concat())
        .map(drop)
}

/// Removes servers that a test made in addition to those that stay.
pub(super) fn remove_servers(cluster: &Cluster, prefix: &str) -> Result<()> {
    delete(cluster, &["-f", &file(prefix)])
}

/// Waits until the server of each node reaches the other one: by its Service's address and name,
/// and by the pod's own address, which is also reachable from the host.
pub(super) fn across_nodes(cluster: &Cluster, prefix: &str) -> Result<()> {
    for (host, from, to) in [
        (&cluster.worker, WORKER, BOOTSTRAP),
        (&cluster.bootstrap, BOOTSTRAP, WORKER),
    ] {
        let (from, to) = (format!("{prefix}-{from}"), format!("{prefix}-{to}"));
        let shown = |kind: &str, path: &str| {
            cluster.kubectl(&["get", kind, &to, "-o", &format!("jsonpath={{{path}}}")])
        };
        let service = shown("service", ".spec.clusterIP")?;
        let pod = format!("{}:{PORT}", shown("pod", ".status.podIP")?);
        for target in [
            format!("{service}:80"),
            format!("{to}.default.svc.cluster.local:80"),
            pod.clone(),
        ] {
            wait::until(&format!("{from} to reach {target}"), REACHED, || {
                cluster.kubectl(&[
                    "exec",
                    &from,
                    "--",
                    "/lab-pod",
                    "connect",
                    "--timeout=2s",
                    &target,
                ])
            })?;
        }
        wait::until(
            &format!("the host of {from} to reach {pod}"),
            REACHED,
            || {
                let get = [
                    "curl",
                    "-sS",
                    "--noproxy",
                    "*",
                    "--max-time",
                    "2",
                    "-o",
                    "/dev/null",
                    &pod,
                ];
                host.run(&get)
            },
        )?;
    }
    Ok(())
}

fn service_across_nodes(cluster: &Cluster) -> Result<Counts> {
    ensure_servers(cluster, STAYING)?;
    across_nodes(cluster, STAYING)?;
    Ok(Counts::ONE)
}

fn logs_and_exec(cluster: &Cluster) -> Result<Counts> {
    ensure_servers(cluster, STAYING)?;
    for pod in [BOOTSTRAP, WORKER].map(|node| format!("{STAYING}-{node}")) {
        let log = cluster.kubectl(&["logs", &pod])?;
        ensure!(
            log.contains("Started HTTP server"),
            "the log of {pod} is {log:?}"
        );
        let name = cluster.kubectl(&["exec", &pod, "--", "/lab-pod", "hostname"])?;
        ensure!(name.trim() == pod, "exec in {pod} printed {name:?}");
    }
    Ok(Counts::ONE)
}

fn kubeadm_accepts(cluster: &Cluster) -> Result<Counts> {
    let certificates = cluster
        .bootstrap
        .run(&["kubeadm", "certs", "check-expiration"])?;
    for name in [
        "admin.conf",
        "apiserver",
        "etcd-server",
        "front-proxy-client",
        "super-admin.conf",
    ] {
        ensure!(
            certificates.contains(name),
            "kubeadm does not know {name}:\n{certificates}"
        );
    }
    ensure!(
        !certificates.contains("MISSING"),
        "kubeadm misses a certificate:\n{certificates}"
    );
    let version: Value = serde_json::from_str(&cluster.kubectl(&["version", "-o", "json"])?)?;
    let version = version["serverVersion"]["gitVersion"]
        .as_str()
        .context("no server version")?
        .to_owned();
    // The next patch version need not exist: kubeadm plans from the versions in the cluster.
    let (minor, patch) = version
        .rsplit_once('.')
        .context("a version has three parts")?;
    let next = format!("{minor}.{}", patch.parse::<u32>()? + 1);
    let plan = [
        "kubeadm",
        "upgrade",
        "plan",
        next.as_str(),
        "--allow-experimental-upgrades",
    ];
    let plan = wait::until("a plan of kubeadm", PLANNED, || {
        cluster.bootstrap.run(&plan)
    })?;
    for component in [
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "etcd",
    ] {
        let found = plan.lines().any(|line| {
            line.starts_with(component) && line.contains(BOOTSTRAP) && !line.contains("unknown")
        });
        ensure!(
            found,
            "kubeadm upgrade plan {next} does not find {component}:\n{plan}"
        );
    }
    Ok(Counts::ONE)
}

pub(super) fn nothing_left(cluster: &Cluster) -> Result<Counts> {
    cluster.nothing_tried_to_leave()?;
    Ok(Counts::ONE)
}
