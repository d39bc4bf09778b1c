//! The virtual address of the API: held, released and taken again, kept by its only host, moved
//! away and back without new certificates.

use std::fs;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use halite_lab::cluster::{Cluster, DOCUMENT, WORKER};
use halite_lab::wait;
use serde_json::Value;

use super::repair;
use crate::availability::holders::Sampler;
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "vip: the address is held, and the API answers through it",
        run: held,
    },
    Test {
        name: "vip: the only host that can hold the address keeps it without its API server",
        run: stays,
    },
    Test {
        name: "vip: changes to no address, an external one and back need no new certificates",
        run: moves,
    },
];

/// The address in the cluster document.
const VIP: &str = "10.10.0.100";
const NAME: &str = "api.demo.internal";
const HELD: &str = "  vip: 10.10.0.100\n  keepalived: true\n";
const EXTERNAL: &str = "  vip: 10.10.0.100\n  keepalived: false\n";
const NONE: &str = "  endpoint: api.demo.internal\n";

/// Limit for the address to move: three failed checks a second apart, and a new election.
const MOVE: Duration = Duration::from_secs(60);
/// Limit for the API server's own pod to stop or to start: a kubelet that has just stopped the same
/// pod may not start it for minutes while the API is unavailable. Also for kube-proxy to start,
/// which each move stops: the kubelet waits longer each time.
const POD: Duration = Duration::from_secs(270);

fn has_address(cluster: &Cluster) -> Result<bool> {
    let addresses = cluster.bootstrap.run(&["ip", "-4", "-o", "addr"])?;
    Ok(addresses.contains(&format!(" {VIP}/")))
}

fn wait_address(cluster: &Cluster, wanted: bool, limit: Duration) -> Result<()> {
    let what = if wanted {
        "the address to be held"
    } else {
        "the address to be released"
    };
    wait::until(what, limit, || match has_address(cluster) {
        Ok(has) if has == wanted => Ok(()),
        Ok(has) => Err(anyhow!("held: {has}")),
        Err(error) => Err(error),
    })
}

/// Waits until the API answers the worker by name: once at `address`, once at the address of the
/// worker's host entry.
fn wait_answers(cluster: &Cluster, address: &str) -> Result<()> {
    let url = format!("https://{NAME}:6443/readyz");
    let pinned = format!("{NAME}:6443:{address}");
    let base = [
        "curl",
        "-4sS",
        "--fail",
        "--max-time",
        "2",
        "--noproxy",
        "*",
        "--cacert",
        "/etc/kubernetes/pki/ca.crt",
    ];
    wait::until(
        &format!("the API to answer at {address} and as {NAME}"),
        POD,
        || {
            for more in [
                &["--resolve", pinned.as_str(), url.as_str()][..],
                &[url.as_str()][..],
            ] {
                let answer = cluster.worker.run(&[&base[..], more].concat())?;
                if answer != "ok" {
                    bail!("{more:?} answered {answer:?}");
                }
            }
            Ok(())
        },
    )
}

fn nodes_ready(cluster: &Cluster) -> Result<()> {
    wait::until("both nodes to be Ready", POD, || {
        let text = cluster.kubectl(&["get", "nodes", "-o", "json"])?;
        let list: Value = serde_json::from_str(&text)?;
        let nodes = list["items"].as_array().cloned().unwrap_or_default();
        let ready = |node: &Value| {
            let conditions = node["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            conditions
                .iter()
                .any(|c| c["type"] == "Ready" && c["status"] == "True")
        };
        let waiting: Vec<_> = nodes
            .iter()
            .filter(|n| !ready(n))
            .map(|n| n["metadata"]["name"].to_string())
            .collect();
        if nodes.len() == 2 && waiting.is_empty() {
            Ok(())
        } else {
            Err(anyhow!("{} nodes; not Ready: {waiting:?}", nodes.len()))
        }
    })
}

fn held(cluster: &Cluster) -> Result<Counts> {
    wait_address(cluster, true, MOVE)?;
    let elsewhere = cluster.worker.run(&["ip", "-4", "-o", "addr"])?;
    ensure!(!elsewhere.contains(VIP), "{WORKER} has the address too");
    wait_answers(cluster, VIP)?;
    let server = cluster
        .worker
        .run(&["grep", "server:", "/etc/kubernetes/kubelet.conf"])?;
    ensure!(server.contains(NAME), "kubelet of {WORKER} uses {server}");
    Ok(Counts::ONE)
}

fn stays(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    wait_address(cluster, true, MOVE)?;
    // Stopped on purpose: it stays down until an operator starts it again.
    host.run(&["systemctl", "stop", "keepalived"])?;
    wait_address(cluster, false, MOVE)?;
    host.run(&["systemctl", "start", "keepalived"])?;
    wait_address(cluster, true, MOVE)?;
    // Killed: systemd restarts it without an operator.
    let invocation = [
        "systemctl",
        "show",
        "-p",
        "InvocationID",
        "--value",
        "keepalived",
    ];
    let before = host.run(&invocation)?;
    host.sh("kill -9 $(systemctl show -p MainPID --value keepalived)")?;
    wait::until("keepalived to be restarted", MOVE, || {
        let now = host.run(&invocation)?;
        if now != before && !now.trim().is_empty() {
            Ok(())
        } else {
            Err(anyhow!("it has not been"))
        }
    })?;
    wait_address(cluster, true, MOVE)?;
    // No other host could take it while the API server is away. keepalived checks the server every
    // second, and would release the address long before the server is back.
    let sampler = Sampler::start(&[host], VIP.parse()?);
    let (manifest, aside) = (
        "/etc/kubernetes/manifests/kube-apiserver.yaml",
        "/root/kube-apiserver.yaml",
    );
    host.run(&["mv", manifest, aside])?;
    let stopped = wait::until("the API server to stop", POD, || {
        host.sh("! pgrep -x kube-apiserver").map(drop)
    });
    host.run(&["mv", aside, manifest])?;
    stopped?;
    wait_answers(cluster, VIP)?;
    let free = sampler.end()?.longest_free();
    ensure!(
        free.is_zero(),
        "{VIP} left its only host for {} ms",
        free.as_millis()
    );
    nodes_ready(cluster)?;
    Ok(Counts {
        passed: 3,
        failed: 0,
    })
}

/// The cluster document, which declares the address.
fn document(cluster: &Cluster) -> Result<String> {
    let original = fs::read_to_string(cluster.bootstrap.file(DOCUMENT))?;
    if !original.contains(HELD) {
        bail!(
            "the cluster document no longer has\n{HELD}and this test must change with it:\n{original}"
        );
    }
    Ok(original)
}

/// Does something while the cluster has no virtual address. The hosts of the lab have different
/// control-plane networks, so only the first one can hold it.
///
/// # Errors
/// The action fails, or a highstate.
pub(crate) fn without_one(cluster: &Cluster, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let path = cluster.bootstrap.file(DOCUMENT);
    let original = document(cluster)?;
    fs::write(&path, original.replace(HELD, NONE))?;
    repair::highstate(cluster, &[])?;
    wait_address(cluster, false, MOVE)?;
    act()?;
    fs::write(&path, &original)?;
    repair::highstate(cluster, &[])?;
    wait_address(cluster, true, MOVE)?;
    wait_answers(cluster, VIP)
}

fn moves(cluster: &Cluster) -> Result<Counts> {
    let path = cluster.bootstrap.file(DOCUMENT);
    let original = document(cluster)?;
    let before = certificates(cluster)?;
    let result = away(cluster, &original, &before);
    // Remove the address by hand, as the operator added it; it may already be gone.
    cluster
        .bootstrap
        .output(&["ip", "addr", "del", &format!("{VIP}/32"), "dev", "eth0"])?;
    fs::write(&path, &original)?;
    repair::highstate(cluster, &[])?;
    result?;
    wait_address(cluster, true, MOVE)?;
    arrived(cluster, VIP, &before)?;
    Ok(Counts {
        passed: 3,
        failed: 0,
    })
}

fn away(cluster: &Cluster, original: &str, before: &str) -> Result<()> {
    let host = &cluster.bootstrap;
    let path = host.file(DOCUMENT);
    fs::write(&path, original.replace(HELD, NONE))?;
    repair::highstate(cluster, &[])?;
    wait_address(cluster, false, MOVE)?;
    arrived(cluster, &host.control_plane_address(), before)?;
    idle(cluster)?;

    fs::write(&path, original.replace(HELD, EXTERNAL))?;
    host.run(&["ip", "addr", "add", &format!("{VIP}/32"), "dev", "eth0"])?;
    repair::highstate(cluster, &[])?;
    arrived(cluster, VIP, before)?;
    idle(cluster)?;
    ensure!(has_address(cluster)?, "the external address was removed");
    Ok(())
}

/// Checks the conditions that must hold after each move.
fn arrived(cluster: &Cluster, address: &str, before: &str) -> Result<()> {
    for host in cluster.hosts() {
        let entry = host.run(&["getent", "ahostsv4", NAME])?;
        ensure!(
            entry.starts_with(&format!("{address} ")),
            "{} resolves {NAME} to {entry}",
            host.spec.name
        );
        // kube-proxy has its own copy of the file, from the start of its container.
        wait::until(
            &format!(
                "kube-proxy on {} to resolve {NAME} to {address}",
                host.spec.name
            ),
            POD,
            || {
                let hosts = host.sh("cat /proc/$(pgrep -x kube-proxy)/root/etc/hosts")?;
                let found = hosts
                    .lines()
                    .find(|line| line.contains(NAME))
                    .unwrap_or_default();
                if found.starts_with(&format!("{address}\t")) {
                    Ok(())
                } else {
                    Err(anyhow!("it has {found:?}"))
                }
            },
        )?;
    }
    wait_answers(cluster, address)?;
    nodes_ready(cluster)?;
    let after = certificates(cluster)?;
    ensure!(after == before, "certificates changed:\n{before}\n{after}");
    let again = repair::highstate(cluster, &[])?.changed;
    ensure!(
        again.is_empty(),
        "another highstate changed something: {again:?}"
    );
    Ok(())
}

/// Checks that keepalived is down, stays down, and has no configuration of Halite.
fn idle(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    let state = host.sh("systemctl is-active keepalived; systemctl is-enabled keepalived; true")?;
    ensure!(
        !state.contains("\nenabled") && !state.starts_with("active"),
        "keepalived is {state}"
    );
    let left = host.sh(
        "grep -ls 'Written by Halite' /etc/keepalived/* /etc/systemd/system/keepalived.service.d/*; true",
    )?;
    ensure!(left.is_empty(), "left behind: {left}");
    Ok(())
}

/// Digests of all certificates on both hosts, including the kubelets' own. A new certificate has
/// another serial number, and so another digest.
fn certificates(cluster: &Cluster) -> Result<String> {
    let list = "find /etc/kubernetes/pki /var/lib/kubelet/pki -name '*.crt' -o -name '*-current.pem' | sort | xargs sha256sum";
    Ok(format!(
        "{}{}",
        cluster.bootstrap.sh(list)?,
        cluster.worker.sh(list)?
    ))
}
