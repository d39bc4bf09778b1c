//! The CAs of a cluster and the key of its service accounts are replaced while clients write, with
//! a kubeconfig from before and with one that follows.

mod boundaries;
mod clients;
mod compromised;
mod imported;
mod meanwhile;
mod own;
mod page;
mod three;

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use halite_lab::cluster::{CTL, Cluster, run_kubectl};
use halite_lab::host::Host;
use halite_lab::layout::{HA, TWO};
use halite_lab::wait;
use halite_upstream::versions::NEWEST;

use self::clients::ClientNotes;
use super::cluster::{PODS, nothing_left};
use super::repair::quiet;
use crate::ha;
use crate::site::{Site, from_the_iso};
use crate::test::{Case, Counts, Test, cases, sequence};

/// Name of its own lab: clients of other suites would keep certificates of the old CA.
const LAB: &str = "rotation";

/// The name of the lab of three control planes.
const LAB_OF_THREE: &str = "rotationha";

const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "rotation: the CA of Kubernetes is replaced, and no client is refused before the old one leaves",
        run: replaced,
    },
    Test {
        name: "rotation: the old CA is rejected, and no host has it",
        run: old_is_rejected,
    },
    Test {
        name: "rotation: kubeadm finds the same certificates",
        run: as_kubeadm_sees,
    },
    Test {
        name: "rotation: the CAs of etcd and of the front proxy and the key of service accounts are replaced",
        run: others,
    },
    Test {
        name: "rotation: a full disk, a second rotation and a cut link do not break a rotation",
        run: meanwhile::completes,
    },
    Test {
        name: "rotation: an intermediate is imported, and clients verify the API by it and by its root",
        run: imported::kubernetes,
    },
    Test {
        name: "rotation: an intermediate for etcd, and a CA with its key for the front proxy, are imported and rotated in",
        run: imported::others,
    },
    Test {
        name: "rotation: the CA of identities waits for a host that is off and for an operator, and old certificates work until it leaves",
        run: own::identities,
    },
    Test {
        name: "rotation: the CA of the site's servers is replaced, and hosts fetch from them",
        run: own::servers,
    },
    Test {
        name: "rotation: a compromised CA of Kubernetes leaves all hosts at once, and pods work again",
        run: compromised::of_kubernetes,
    },
    Test {
        name: "rotation: another highstate changes nothing",
        run: settled,
    },
    Test {
        name: "rotation: nothing tried to leave",
        run: nothing_left,
    },
];

const CA: &str = "/etc/kubernetes/pki/ca.crt";
/// The kubeconfig of root on a control plane.
const ADMINISTRATOR: &str = "/etc/kubernetes/admin.conf";
/// The directory of the tests' files, on each host.
const DIRECTORY: &str = "/root/rotation";
/// Copies from before the rotation.
const OLD_CA: &str = "/root/rotation/ca.crt";
const OLD_KUBECONFIG: &str = "/root/rotation/old.conf";
const OLD_CERTIFICATES: &str = "/root/rotation/certificates";
/// Pods that depend on the old CA or key are restarted, so that the command need not wait for them.
const RESTART: &[&str] = &["--restart-pods"];
/// Limit for the volumes of pods to follow the ConfigMap with the CA.
const VOLUMES: Duration = Duration::from_secs(180);

/// The sites of the rotation: one control plane and one worker, and three control planes and one
/// worker.
pub(super) fn sites() -> [Site; 2] {
    let site = |lab: &str, made, layout, tests| Site {
        lab: lab.to_owned(),
        made,
        layout,
        release: NEWEST,
        make: from_the_iso,
        tests,
    };
    let own = sequence(cases(TESTS)).into_iter();
    let of_two: Vec<Case<Cluster>> = own.chain(cases(boundaries::TESTS)).collect();
    let of_three = "rotation: bootstrap, two control planes and a worker";
    [
        site(LAB, "rotation: bootstrap and node add", &TWO, of_two),
        site(LAB_OF_THREE, of_three, &HA, sequence(cases(three::TESTS))),
    ]
}

/// The measurement of a rotation while clients write.
#[derive(Debug)]
pub struct MeasuredRotation {
    /// The time of the command.
    pub time: Duration,
    /// The number of writes that failed, for whatever reason. A kubeconfig from before the rotation
    /// counts until its CA leaves.
    pub failed: usize,
}

/// Rotates the CA of Kubernetes in all of its stages, and restarts the pods that depend on it,
/// while two clients on the worker write: one has a kubeconfig from before, and the other one
/// follows. Prints the writes that failed.
///
/// # Errors
/// The rotation fails, or an acknowledged write is missing.
pub fn timed(cluster: &Cluster) -> Result<MeasuredRotation> {
    let (time, notes) = under_writes(cluster, |host| rotate(host, "kubernetes", RESTART))?;
    notes.print();
    let failed = notes.wrong(cluster)?.len();
    Ok(MeasuredRotation { time, failed })
}

/// The command that rotates a CA.
fn command<'a>(ca: &'a str, further: &[&'a str]) -> Vec<&'a str> {
    [&[CTL, "certs", "rotate", ca, "--yes"][..], further].concat()
}

/// Rotates a CA.
fn rotate(host: &Host, ca: &str, further: &[&str]) -> Result<()> {
    host.run(&command(ca, further))?;
    Ok(())
}

/// Does something while a client, whose certificate stays valid, writes through the API server of
/// the first host. It writes again afterwards, and all acknowledged writes exist.
fn writing(cluster: &Cluster, prefix: &str, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let record = ha::while_written(cluster, &cluster.bootstrap, prefix, act)?;
    println!("  {prefix}: {}", record.summary());
    Ok(())
}

/// Copies the CA and the kubeconfig of root.
fn keep_old(host: &Host) -> Result<()> {
    host.sh(&format!(
        "mkdir -p {DIRECTORY} && cp {CA} {OLD_CA} && cp {ADMINISTRATOR} {OLD_KUBECONFIG}"
    ))?;
    Ok(())
}

/// Calls `replace`, which replaces the CA of Kubernetes, with the first host while clients write.
/// Returns its time and the notes of the clients; all acknowledged writes exist.
fn under_writes(
    cluster: &Cluster,
    replace: impl FnOnce(&Host) -> Result<()>,
) -> Result<(Duration, ClientNotes)> {
    let host = &cluster.bootstrap;
    keep_old(host)?;
    let mut time = Duration::ZERO;
    let notes = clients::while_written(cluster, || {
        let start = Instant::now();
        replace(host)?;
        time = start.elapsed();
        Ok(())
    })?;
    ensure!(
        host.run(&["cat", CA])? != host.run(&["cat", OLD_CA])?,
        "the CA is the old one"
    );
    notes.all_exist(cluster)?;
    Ok((time, notes))
}

fn replaced(cluster: &Cluster) -> Result<Counts> {
    note_certificates(&cluster.bootstrap)?;
    let (_, notes) = under_writes(cluster, |host| page::ROTATE.run(host).map(drop))?;
    notes.check(cluster)?;
    Ok(Counts::ONE)
}

fn old_is_rejected(cluster: &Cluster) -> Result<Counts> {
    old_is_refused(&cluster.bootstrap)?;
    old_has_left(cluster)?;
    Ok(Counts::ONE)
}

/// Checks that the API refuses the kubeconfig from before.
fn old_is_refused(host: &Host) -> Result<()> {
    let get = ["kubectl", "--kubeconfig", OLD_KUBECONFIG, "get", "--raw"];
    let Err(error) = run_kubectl(host, &[&get[..], &["/api"]].concat()) else {
        bail!("an old kubeconfig is accepted");
    };
    let said = format!("{error:#}");
    ensure!(
        ["Unauthorized", "logged in", "x509"]
            .iter()
            .any(|word| said.contains(word)),
        "an old kubeconfig fails for another reason: {said}"
    );
    Ok(())
}

/// Checks that no host and no object has the old CA. Nodes and pods are Ready again.
fn old_has_left(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    let old = host.run(&["cat", OLD_CA])?;
    // As text, and within a kubeconfig.
    let text = own_line(&old)?;
    let encoded = host.sh(&format!("base64 -w0 {OLD_CA} | cut -c 64-96"))?;
    leave_all_hosts(cluster, &[text, encoded.trim()])?;
    for host in cluster.hosts() {
        let files = host.sh("ls /etc/kubernetes/pki/ca-signer.crt 2>/dev/null; true")?;
        ensure!(files.is_empty(), "{}: {files} is left", host.spec.name);
    }
    for map in ["kube-root-ca.crt", "cluster-info"] {
        let namespace = if map == "cluster-info" {
            "kube-public"
        } else {
            "default"
        };
        let map = cluster.kubectl(&["-n", namespace, "get", "configmap", map, "-o", "json"])?;
        ensure!(
            !map.contains(text) && !map.contains(encoded.trim()),
            "{map}"
        );
    }
    are_ready(cluster)?;
    cluster.wait_for_pods(PODS)
}

/// The part of a certificate (PEM) with the serial number, or the beginning of a public key.
fn own_line(pem: &str) -> Result<&str> {
    pem.lines().nth(1).context("the old file is empty")
}

/// Waits until no host has one of these texts in a file.
fn leave_all_hosts(cluster: &Cluster, texts: &[&str]) -> Result<()> {
    for host in cluster.hosts() {
        for text in texts {
            // The kubelet refreshes the volumes of pods within about a minute. The master keeps a
            // list of the CAs that it has dropped, and never hands them to a host again.
            wait::until("the old CA to leave", VOLUMES, || {
                let found = host.sh(&format!(
                    "grep -rlF --exclude='*.dropped.json' -e '{text}' /etc /var/lib/kubelet \
                     /var/lib/halite/master/ca /var/lib/halite/master/standby/*/files/state/ca 2>/dev/null; true"
                ))?;
                ensure!(
                    found.is_empty(),
                    "{} has the old CA in {found}",
                    host.spec.name
                );
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// Waits until all nodes are Ready.
fn are_ready(cluster: &Cluster) -> Result<()> {
    wait::until("all nodes to be Ready", PODS, || {
        for node in cluster.hosts() {
            let node = &node.spec.name;
            let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
            let ready = cluster.kubectl(&["get", "node", node, "-o", ready])?;
            ensure!(ready == "True", "{node} is not Ready");
        }
        Ok(())
    })
}

/// The names of the certificates that kubeadm finds, each with its CA.
fn certificates(host: &Host) -> Result<String> {
    let table = host.run(&["kubeadm", "certs", "check-expiration"])?;
    ensure!(!table.contains("MISSING"), "{table}");
    let rows: BTreeSet<String> = (table.lines())
        .filter(|line| line.contains(" UTC "))
        .map(|line| {
            let mut cells = line
                .split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty());
            format!(
                "{} {}",
                cells.next().unwrap_or_default(),
                cells.nth(2).unwrap_or_default()
            )
        })
        .collect();
    ensure!(rows.len() > 10, "{table}");
    Ok(rows.into_iter().collect::<Vec<_>>().join("\n"))
}

/// Notes the certificates that kubeadm finds before the first rotation.
fn note_certificates(host: &Host) -> Result<()> {
    host.run(&["mkdir", "-p", DIRECTORY])?;
    let file = host.file(OLD_CERTIFICATES);
    if !file.exists() {
        fs::write(&file, certificates(host)?)?;
    }
    Ok(())
}

fn as_kubeadm_sees(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let (before, now) = (
        fs::read_to_string(host.file(OLD_CERTIFICATES))?,
        certificates(host)?,
    );
    ensure!(before == now, "before:\n{before}\nnow:\n{now}");
    Ok(Counts::ONE)
}

fn others(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    note_certificates(host)?;
    for (ca, file, further) in [
        ("etcd", "/etc/kubernetes/pki/etcd/ca.crt", &[][..]),
        ("front-proxy", "/etc/kubernetes/pki/front-proxy-ca.crt", &[]),
        ("sa", "/etc/kubernetes/pki/sa.pub", RESTART),
    ] {
        let before = host.run(&["cat", file])?;
        writing(cluster, ca, || rotate(host, ca, further))?;
        let now = host.run(&["cat", file])?;
        let number = now.matches("BEGIN").count();
        ensure!(before != now && number == 1, "{ca}: {number} in {file}");
        cluster.kubectl(&["get", "nodes"])?;
    }
    // Programs in pods reach the API with new tokens.
    cluster.wait_for_pods(PODS)?;
    // The CAs of Kubernetes and of the front proxy, each without the old one.
    let trusted = page::AGGREGATED.run(host)?;
    let number = trusted.matches("BEGIN CERTIFICATE").count();
    ensure!(
        number == 2,
        "{number} CAs for aggregated API servers: {trusted}"
    );
    as_kubeadm_sees(cluster)
}

fn settled(cluster: &Cluster) -> Result<Counts> {
    // Four on each control plane, two of the DNS, and on each host a proxy and the network.
    let wanted = 4 * cluster.control_planes().len() + 2 + 2 * cluster.hosts().len();
    // Deployments that were restarted replace their pods.
    wait::until("the previous pods to end", PODS, || {
        let pods = cluster.kubectl(&["get", "pods", "-A", "--no-headers"])?;
        let number = pods.lines().count();
        ensure!(
            number == wanted,
            "{number} pods instead of {wanted}: {pods}"
        );
        Ok(())
    })?;
    quiet(cluster)?;
    Ok(Counts::ONE)
}
