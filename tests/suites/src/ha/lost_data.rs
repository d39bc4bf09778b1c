//! An etcd member on a living host has lost its data: the host leaves and joins again, by the
//! commands of the guide, while a client writes. Its kubelet, which has lost its API server, does
//! not stop one of its pods.

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;
use halite_upstream::versions::NEWEST;
use serde_json::{Value, json};

use super::fewer::as_before;
use super::leaving::has_gone;
use super::losses::{GAP, at_the_vip, kill};
use super::standbys::STANDBYS;
use super::{BACK, is_complete};
use crate::test::Counts;
use crate::{etcd, guide};

/// The heading of the guide about such a member.
const HEADING: &str = "## A member of etcd has lost its data";
/// The namespace of the pod on its host.
const NAMESPACE: &str = "lost-data";
/// The remark of the removal about pods that are still there when it continues, before their names.
const NOT_WAITED_FOR: &str =
    "drained: not awaited, because the node is not Ready and they end with the host: ";

/// The host is removed alive, although its member does not serve, and joins again with a new
/// member.
pub(super) fn removed_and_added_again(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    let [_, name] = STANDBYS;
    let host = cluster.host(name)?;
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    let pod = running_on(cluster, name)?;
    let measured = at_the_vip(cluster, first, "lost-data", || {
        lose_data(host)?;
        is_reported(first, name)?;
        host.run(&["systemctl", "start", "kubelet"])?;
        let said = first.run(&of_the_guide("ctl node remove", name.to_owned())?)?;
        let mut lines = said.lines();
        let left = lines.find_map(|line| Some(line.split_once(NOT_WAITED_FOR)?.1));
        ensure!(
            left.is_some_and(|pods| pods.split(", ").any(|left| left == pod)),
            "{pod} was stopped, or is not named: {said}"
        );
        has_gone(cluster, name)?;
        // Its controller has created another one, which waits for the host.
        wait::until("Kubernetes to remove the pod", BACK, || {
            let pods = pods(cluster)?;
            ensure!(!pods.contains(&pod), "{pods:?}");
            Ok(())
        })?;
        etcd::status(first, "2 members, none may fail")?;
        let declared = format!("{name}={}", host.control_plane_address());
        let add = of_the_guide("ctl node add", declared)?;
        cluster.add_by(first, &[name], &add)?;
        wait::until("three control planes", BACK, || is_complete(cluster))
    })?;
    measured.check("a member lost its data", GAP)?;
    cluster.kubectl(&["delete", "namespace", NAMESPACE])?;
    as_before(cluster)
}

/// A Deployment with one pod that runs only on that host. Taints other than that of a control plane
/// keep it away: the replacement of an evicted pod would come back to the host.
fn deployment(host: &str) -> Value {
    let labels = json!({"app": "stays"});
    let image = format!("registry.k8s.io/pause:{}", NEWEST.pause);
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "stays", "namespace": NAMESPACE},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": host},
                    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "it", "image": image}]}}}},
    ]})
}

/// Starts a pod on that host, and returns its name, with the namespace.
fn running_on(cluster: &Cluster, host: &str) -> Result<String> {
    let file = "/root/lost-data.json";
    std::fs::write(cluster.bootstrap.file(file), deployment(host).to_string())?;
    cluster.kubectl(&["apply", "-f", file])?;
    let rollout = [
        "rollout",
        "status",
        "deployment/stays",
        "--timeout=120s",
        "-n",
        NAMESPACE,
    ];
    cluster.kubectl(&rollout)?;
    let mut pods = pods(cluster)?;
    ensure!(pods.len() == 1, "{pods:?}");
    pods.pop().context("no pod")
}

/// The pods of the Deployment, with the namespace.
fn pods(cluster: &Cluster) -> Result<Vec<String>> {
    let names = cluster.kubectl(&["get", "pods", "-n", NAMESPACE, "-o", "name"])?;
    let names = names.lines().filter_map(|line| line.strip_prefix("pod/"));
    Ok(names.map(|name| format!("{NAMESPACE}/{name}")).collect())
}

/// The command of the guide with this beginning, about that host.
fn of_the_guide(begin: &str, host: String) -> Result<Vec<String>> {
    let mut command = guide::command("disaster.md", HEADING, begin)?;
    *command.get_mut(3).context("no host in the command")? = host;
    Ok(command)
}

/// Stops the member, and empties its directory. The kubelet, which would restart it, is stopped.
fn lose_data(host: &Host) -> Result<()> {
    host.run(&["systemctl", "stop", "kubelet"])?;
    kill(host, "etcd")?;
    wait::until("etcd to stop", BACK, || {
        host.sh("! pgrep -x etcd").map(drop)
    })?;
    host.sh("find /var/lib/etcd -mindepth 1 -delete")?;
    Ok(())
}

/// The status names the host, and the others have a quorum, as the guide says.
fn is_reported(first: &Host, name: &str) -> Result<()> {
    let lost = format!("the etcd member on {name} has lost its data");
    // Both commands fail, because there is a problem.
    let says = |command: &[String], text: &str| -> Result<()> {
        let said = String::from_utf8_lossy(&first.output(command)?.stdout).into_owned();
        ensure!(said.contains(text), "{said}");
        Ok(())
    };
    let status = ["ctl", "status"].map(str::to_owned);
    wait::until("the status to show the loss", BACK, || says(&status, &lost))?;
    let status = guide::command("disaster.md", HEADING, "ctl etcd status")?;
    wait::until("the others to have a quorum", BACK, || {
        says(&status, "3 members, 2 of them serve, none may fail")
    })
}
