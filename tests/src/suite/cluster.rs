//! What a user expects of a finished cluster.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::{Counts, Test};
use crate::{
    cluster::{BOOTSTRAP, Cluster, WORKER},
    lab::wait,
};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test { name: "cluster: both nodes are Ready", run: nodes_ready },
    Test { name: "cluster: a pod reaches a Service and a DNS name across nodes", run: service_across_nodes },
    Test { name: "cluster: logs and exec work on both nodes", run: logs_and_exec },
    Test { name: "cluster: kubeadm accepts it", run: kubeadm_accepts },
];

pub(super) const AT_THE_END: &[Test<Cluster>] =
    &[Test { name: "cluster: nothing tried to leave", run: nothing_left }];

fn nodes_ready(cluster: &Cluster) -> Result<Counts> {
    let list: Value = serde_json::from_str(&cluster.kubectl(&["get", "nodes", "-o", "json"])?)?;
    let nodes = list["items"].as_array().context("no list of nodes")?;
    for name in [BOOTSTRAP, WORKER] {
        let node = nodes
            .iter()
            .find(|n| n["metadata"]["name"] == name)
            .with_context(|| format!("no node {name}"))?;
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        ensure!(
            conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"),
            "{name} is not Ready: {conditions:?}"
        );
    }
    ensure!(nodes.len() == 2, "{} nodes instead of 2", nodes.len());
    Ok(Counts::ONE)
}

/// A server on each node and a Service for the one on the other side.
const SERVERS: &str = r#"
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: on-bootstrap-1, labels: {app: on-bootstrap-1}}
  spec:
    nodeName: bootstrap-1
    tolerations: [{operator: Exists}]
    containers: [{name: agnhost, image: "registry.k8s.io/e2e-test-images/agnhost:2.57", args: [netexec, --http-port=8080]}]
- apiVersion: v1
  kind: Pod
  metadata: {name: on-worker-1, labels: {app: on-worker-1}}
  spec:
    nodeName: worker-1
    containers: [{name: agnhost, image: "registry.k8s.io/e2e-test-images/agnhost:2.57", args: [netexec, --http-port=8080]}]
- apiVersion: v1
  kind: Service
  metadata: {name: on-bootstrap-1}
  spec: {selector: {app: on-bootstrap-1}, ports: [{port: 80, targetPort: 8080}]}
- apiVersion: v1
  kind: Service
  metadata: {name: on-worker-1}
  spec: {selector: {app: on-worker-1}, ports: [{port: 80, targetPort: 8080}]}
"#;

fn ensure_servers(cluster: &Cluster) -> Result<()> {
    std::fs::write(cluster.bootstrap.root().join("root/servers.yaml"), SERVERS)?;
    cluster.kubectl(&["apply", "-f", "/root/servers.yaml"])?;
    cluster.wait_for_pods(Duration::from_secs(120))
}

fn service_across_nodes(cluster: &Cluster) -> Result<Counts> {
    ensure_servers(cluster)?;
    for (from, to) in [("on-worker-1", "on-bootstrap-1"), ("on-bootstrap-1", "on-worker-1")] {
        let address = cluster.kubectl(&["get", "service", to, "-o", "jsonpath={.spec.clusterIP}"])?;
        for target in [address, format!("{to}.default.svc.cluster.local")] {
            wait::until(&format!("{from} to reach {target}"), Duration::from_secs(30), || {
                let target = format!("{target}:80");
                cluster
                    .kubectl(&["exec", from, "--", "/agnhost", "connect", "--timeout=2s", &target])
                    .map_err(|e| format!("{e:#}"))
            })?;
        }
    }
    Ok(Counts::ONE)
}

fn logs_and_exec(cluster: &Cluster) -> Result<Counts> {
    ensure_servers(cluster)?;
    for pod in ["on-bootstrap-1", "on-worker-1"] {
        let log = cluster.kubectl(&["logs", pod])?;
        ensure!(log.contains("Started HTTP server"), "the log of {pod} is {log:?}");
        let version = cluster.kubectl(&["exec", pod, "--", "/agnhost", "--version"])?;
        if !version.starts_with("app version") {
            bail!("exec in {pod} printed {version:?}");
        }
    }
    Ok(Counts::ONE)
}

fn kubeadm_accepts(cluster: &Cluster) -> Result<Counts> {
    let certificates = cluster.bootstrap.run(&["kubeadm", "certs", "check-expiration"])?;
    for name in ["admin.conf", "apiserver", "etcd-server", "front-proxy-client", "super-admin.conf"] {
        ensure!(certificates.contains(name), "kubeadm does not know {name}:\n{certificates}");
    }
    ensure!(!certificates.contains("MISSING"), "kubeadm misses a certificate:\n{certificates}");
    let version: Value = serde_json::from_str(&cluster.kubectl(&["version", "-o", "json"])?)?;
    let version = version["serverVersion"]["gitVersion"].as_str().context("no server version")?.to_owned();
    // The next patch need not exist: kubeadm plans from what it finds in the cluster.
    let (minor, patch) = version.rsplit_once('.').context("a version has three parts")?;
    let next = format!("{minor}.{}", patch.parse::<u32>()? + 1);
    let plan =
        cluster.bootstrap.run(&["kubeadm", "upgrade", "plan", &next, "--allow-experimental-upgrades"])?;
    for component in ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"] {
        let found = plan
            .lines()
            .any(|line| line.starts_with(component) && line.contains(BOOTSTRAP) && !line.contains("unknown"));
        ensure!(found, "kubeadm upgrade plan {next} does not find {component}:\n{plan}");
    }
    Ok(Counts::ONE)
}

pub(super) fn nothing_left(cluster: &Cluster) -> Result<Counts> {
    cluster.nothing_tried_to_leave()?;
    Ok(Counts::ONE)
}
