//! etcdctl in the pod of a member.

use anyhow::{Context as _, Result};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use serde_json::Value;

/// Runs etcdctl in the member of a host, with the answer as JSON.
pub(crate) fn etcdctl(cluster: &Cluster, host: &Host, words: &[&str]) -> Result<Value> {
    let pod = format!("etcd-{}", host.spec.name);
    let mut command = vec![
        "-n",
        "kube-system",
        "exec",
        &pod,
        "--",
        "etcdctl",
        "--cacert=/etc/kubernetes/pki/etcd/ca.crt",
        "--cert=/etc/kubernetes/pki/etcd/server.crt",
        "--key=/etc/kubernetes/pki/etcd/server.key",
        "--write-out=json",
    ];
    command.extend(words);
    let text = cluster.kubectl_on(&host.spec.name, &command)?;
    serde_json::from_str(&text).with_context(|| format!("etcdctl {}: {text}", words.join(" ")))
}
