//! A bare host of the lab that becomes a worker by `kubeadm join`, as without Halite, and leaves
//! the cluster again.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use halite_lab::cluster::{BUNDLE, Cluster};
use halite_lab::host::{Host, Spec};
use halite_lab::progress::Board;
use halite_lab::{capacity, wait};
use halite_upstream::prepare;
use serde_json::{Value, json};

use super::files;
use super::files::File;
use super::inputs::CRI_SOCKET;
use super::reference::KUBEADM;

/// The host's name; nothing else in the cluster may contain it.
pub(super) const NAME: &str = "joined-1";

/// The host's number in its networks.
const NUMBER: u8 = 31;

/// The bootstrap token, which exists only while the host joins.
const TOKEN: (&str, &str) = ("kubelb", "0123456789abcdef");

/// Installs the packages that kubeadm needs on a host, from the bundle.
const PREPARE: &str = r#"
set -eu
export DEBIAN_FRONTEND=noninteractive
install -D -m 0644 "$1/apt/halite.gpg" /etc/apt/keyrings/bundle.gpg
echo "deb [signed-by=/etc/apt/keyrings/bundle.gpg] file:$1/apt stable main" > /etc/apt/sources.list.d/bundle.list
apt-get -q update
apt-get -q -y --no-install-recommends install containerd kubeadm kubelet
systemctl enable -q containerd kubelet
systemctl restart containerd
"#;

/// containerd's registry configuration: DaemonSets run pods on this node too, and it has no images.
/// It requests them from an address at which no server answers, without a name lookup.
const NO_REGISTRY: &str = "server = \"https://127.0.0.1:9\"\n";

/// Prints the files that `kubeadm join` would write; its first argument is a configuration.
const DRY_RUN: &str = r#"
set -eu
mkdir /root/dry
KUBEADM_JOIN_DRYRUN_DIR=/root/dry "$2" join --dry-run --skip-phases=preflight --config "$1" > /root/dry.log
cd /root/dry
dump kubelet/ config.yaml instance-config.yaml kubeadm-flags.env
"#;

/// The result of `kubeadm join`.
#[derive(Debug)]
pub(super) struct Joined {
    /// Files of the host.
    pub(super) files: Vec<File>,
    /// The node, as the API server returns it.
    pub(super) node: Value,
    /// The host's control-plane and workload addresses.
    pub(super) addresses: [String; 2],
    /// The kubelet's files if it had taints.
    pub(super) tainted: Vec<File>,
}

/// Boots a bare host and joins it to the cluster; before that, asks kubeadm for its plan with
/// `taints`. Afterwards the cluster has no trace of the host. After a failure the host's files are
/// retained.
pub(super) fn join(cluster: &Cluster, taints: &Value) -> Result<Joined> {
    // An interrupted run may have left the host.
    if let Ok(host) = cluster.lab.host(NAME) {
        host.destroy()?;
    }
    forget(cluster)?;
    let host = boot(cluster)?;
    let joined = prepare(cluster, &host).and_then(|()| by_kubeadm(cluster, &host, taints));
    host.power_cut()?;
    let forgotten = forget(cluster);
    match joined {
        Ok(joined) => {
            forgotten?;
            host.destroy()?;
            Ok(joined)
        }
        Err(error) => Err(error.context(format!(
            "the host is stopped, its root is {}",
            host.root().display()
        ))),
    }
}

fn boot(cluster: &Cluster) -> Result<Host> {
    cluster.lab.boot(Spec {
        name: NAME.to_owned(),
        number: NUMBER,
        second_network: cluster.worker.spec.second_network,
        read_only: vec![(prepare::bundle(&Board::silent())?, BUNDLE.into())],
        inotify: capacity::WORKER,
        roles: Vec::new(),
        base: None,
    })
}

/// Installs the packages, and configures the runtime as on Halite's worker.
fn prepare(cluster: &Cluster, host: &Host) -> Result<()> {
    let registries = host.root().join("etc/containerd/certs.d/_default");
    fs::create_dir_all(&registries)?;
    fs::write(registries.join("hosts.toml"), NO_REGISTRY)?;
    let runtime = cluster
        .worker
        .run(&["cat", "/etc/containerd/config.toml"])?;
    fs::write(host.root().join("etc/containerd/config.toml"), runtime)?;
    host.run(&["sh", "-c", PREPARE, "sh", BUNDLE]).map(drop)
}

fn by_kubeadm(cluster: &Cluster, host: &Host, taints: &Value) -> Result<Joined> {
    let configuration = configuration(cluster)?;
    let endpoint = configuration["discovery"]["bootstrapToken"]["apiServerEndpoint"].as_str();
    names(
        cluster,
        host,
        endpoint.context("kubeadm names no endpoint")?,
    )?;
    let mut with_taints = configuration.clone();
    with_taints["nodeRegistration"]["taints"] = taints.clone();
    fs::write(
        host.root().join("root/join.yaml"),
        configuration.to_string(),
    )?;
    fs::write(
        host.root().join("root/tainted.yaml"),
        with_taints.to_string(),
    )?;
    let dry_run = format!("{}{DRY_RUN}", files::DUMP);
    let tainted =
        files::parse(&host.run(&["sh", "-c", &dry_run, "sh", "/root/tainted.yaml", KUBEADM])?)?;
    host.run(&[
        KUBEADM,
        "join",
        "--skip-phases=preflight",
        "--config",
        "/root/join.yaml",
    ])?;
    let node = wait::until(
        "the joined node to be registered",
        Duration::from_secs(180),
        || {
            let text = cluster.kubectl(&["get", "node", NAME, "-o", "json"])?;
            Ok(serde_json::from_str(&text)?)
        },
    )?;
    let addresses = [host.control_plane_address(), host.workload_address()];
    Ok(Joined {
        files: of_worker(host)?,
        node,
        addresses,
        tainted,
    })
}

/// The files of Kubernetes on a worker.
pub(super) fn of_worker(host: &Host) -> Result<Vec<File>> {
    files::parse(&host.sh(&[files::DUMP, files::OF_HOST, files::OF_WORKER].concat())?)
}

/// kubeadm's configuration, with a new token, equivalent to the command that `kubeadm token create`
/// prints for an administrator.
fn configuration(cluster: &Cluster) -> Result<Value> {
    let (id, secret) = TOKEN;
    let token = format!("{id}.{secret}");
    let create = [
        KUBEADM,
        "token",
        "create",
        &token,
        "--ttl=15m",
        "--print-join-command",
    ];
    let command = cluster.bootstrap.run(&create)?;
    let words: Vec<&str> = command.split_whitespace().collect();
    let [
        "kubeadm",
        "join",
        endpoint,
        "--token",
        _,
        "--discovery-token-ca-cert-hash",
        hash,
    ] = words[..]
    else {
        bail!("`kubeadm token create` printed another command: {command}");
    };
    // The dry run uses its own token unless `cluster-info` is already signed with this one.
    wait::until(
        "the cluster's information to be signed",
        Duration::from_secs(90),
        || {
            if signed(cluster)? {
                Ok(())
            } else {
                Err(anyhow!("no signature with the token {id}"))
            }
        },
    )?;
    Ok(json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {"apiServerEndpoint": endpoint, "token": token, "caCertHashes": [hash]},
        },
        "nodeRegistration": {"name": NAME, "criSocket": CRI_SOCKET},
    }))
}

/// Returns whether `cluster-info` has a signature with the token.
fn signed(cluster: &Cluster) -> Result<bool> {
    let path = format!("-o=jsonpath={{.data.jws-kubeconfig-{}}}", TOKEN.0);
    let signature = cluster.kubectl(&[
        "get",
        "configmap",
        "-n",
        "kube-public",
        "cluster-info",
        &path,
    ]);
    signature.map(|text| !text.is_empty())
}

/// Gives the host its own name and the API's name, as an administrator would.
fn names(cluster: &Cluster, host: &Host, endpoint: &str) -> Result<()> {
    let (name, _) = endpoint
        .rsplit_once(':')
        .context("the endpoint has no port")?;
    // IPv4 only: for IPv6 it would query a name server.
    let known = cluster.worker.run(&["getent", "ahostsv4", name])?;
    let api = known
        .split_whitespace()
        .next()
        .with_context(|| format!("{name} has no address"))?;
    let path = host.root().join("etc/hosts");
    let before = fs::read_to_string(&path)?;
    let address = host.control_plane_address();
    fs::write(&path, format!("{before}{address} {NAME}\n{api} {name}\n"))?;
    Ok(())
}

/// Removes the host from the cluster, and waits until nothing of it is left.
fn forget(cluster: &Cluster) -> Result<()> {
    let (id, _) = TOKEN;
    let gone = "--ignore-not-found";
    cluster.kubectl(&["delete", "node", NAME, gone])?;
    cluster.kubectl(&[
        "delete",
        "secret",
        "-n",
        "kube-system",
        &format!("bootstrap-token-{id}"),
        gone,
    ])?;
    let requests: Value = serde_json::from_str(&cluster.kubectl(&["get", "csr", "-o", "json"])?)?;
    let (bootstrapper, node) = (
        format!("system:bootstrap:{id}"),
        format!("system:node:{NAME}"),
    );
    for request in requests["items"].as_array().into_iter().flatten() {
        if [bootstrapper.as_str(), &node]
            .contains(&request["spec"]["username"].as_str().unwrap_or_default())
        {
            let name = request["metadata"]["name"]
                .as_str()
                .context("a request without a name")?;
            cluster.kubectl(&["delete", "csr", name, gone])?;
        }
    }
    wait::until(
        "the cluster to forget the joined host",
        Duration::from_secs(180),
        || {
            // No kubelet is left to confirm that its pods have ended.
            let on_node = format!("--field-selector=spec.nodeName={NAME}");
            cluster.kubectl(&[
                "delete",
                "pods",
                "-A",
                &on_node,
                "--force",
                "--grace-period=0",
            ])?;
            let pods = cluster.kubectl(&["get", "pods", "-A", &on_node, "-o", "name"])?;
            if !pods.is_empty() {
                bail!("pods are left: {}", pods.trim());
            }
            if signed(cluster)? {
                Err(anyhow!("a signature with the token {id}"))
            } else {
                Ok(())
            }
        },
    )
}
