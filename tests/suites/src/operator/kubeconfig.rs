//! A kubeconfig for another machine: it works there as administrator until it expires, and not by
//! an address that the API server's certificate lacks.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_api::AuditLog;
use halite_lab::cluster::{CTL, Cluster, run_kubectl};
use halite_lab::wait;
use serde_json::Value;

use super::ctl;
use crate::ctl_answer;
use crate::test::{Counts, Test};

/// The file, on both hosts.
const FILE: &str = "/root/lab.kubeconfig";
/// kubectl on the other host, which does not have it installed.
const KUBECTL: &str = "/root/kubectl";
/// Time until the API refuses an expired certificate.
const ENDED: Duration = Duration::from_secs(120);

pub(super) const TEST: Test<Cluster> = Test {
    name: "operator: a kubeconfig works on another machine until it expires",
    run: works_until_its_end,
};

/// Runs kubectl on the other host with the file.
fn kubectl(cluster: &Cluster, words: &[&str]) -> Result<String> {
    let command = [&[KUBECTL, "--kubeconfig", FILE], words].concat();
    run_kubectl(&cluster.worker, &command)
}

/// Makes the file on the first host, and copies it to the other one.
fn carried(cluster: &Cluster, words: &[&str]) -> Result<()> {
    let host = &cluster.bootstrap;
    ctl(cluster, &[&["kubeconfig", "--out", FILE], words].concat())?;
    let mode = host.sh(&format!("stat -c %a {FILE}"))?;
    ensure!(mode.trim() == "600", "{FILE} has the mode {mode}");
    fs::copy(host.file(FILE), cluster.worker.file(FILE))?;
    Ok(())
}

/// Runs ctl, which must fail with this exit code; returns its output.
fn refused(cluster: &Cluster, words: &[&str], code: i32) -> Result<String> {
    let all = [&[CTL, "kubeconfig"], words].concat();
    let output = cluster.bootstrap.output(&all)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let found = output.status.code();
    ensure!(found == Some(code), "{all:?} ended with {found:?}: {said}");
    Ok(said)
}

fn works_until_its_end(cluster: &Cluster) -> Result<Counts> {
    let program = cluster.bootstrap.run(&["which", "kubectl"])?;
    fs::copy(
        cluster.bootstrap.file(program.trim()),
        cluster.worker.file(KUBECTL),
    )?;
    carried(cluster, &[])?;
    let nodes = kubectl(cluster, &["get", "nodes", "-o", "name"])?;
    ensure!(nodes.lines().count() == 2, "{nodes}");
    let who: Value = serde_json::from_str(&kubectl(cluster, &["auth", "whoami", "-o", "json"])?)?;
    let who = &who["status"]["userInfo"];
    let groups = who["groups"].as_array().context("no groups")?;
    ensure!(
        who["username"] == "root" && groups.iter().any(|group| group == "kubeadm:cluster-admins"),
        "{who}"
    );
    // The VIP is in no certificate: the file has the name, which is.
    let text = fs::read_to_string(cluster.bootstrap.file(FILE))?;
    for part in ["https://10.10.0.100:6443", "api.demo.internal"] {
        ensure!(text.contains(part), "{part} is not in the kubeconfig");
    }

    // The same file again, by the host's own address.
    let own = cluster.bootstrap.control_plane_address();
    carried(cluster, &["--server", &own])?;
    kubectl(cluster, &["get", "namespaces"])?;
    let said = refused(cluster, &["--server", "192.0.2.1"], 1)?;
    for part in ["192.0.2.1: it is not in the certificate", &own, "certSANs"] {
        ensure!(said.contains(part), "{part} is not in {said:?}");
    }
    refused(cluster, &["--ttl", "soon"], 64)?;
    let said = refused(cluster, &["--ttl", "721h"], 1)?;
    ensure!(said.contains("for more than 30 days"), "{said}");
    let said = refused(cluster, &["--ttl", "1000000h", "--force"], 1)?;
    ensure!(said.contains("the CA of Kubernetes ends on"), "{said}");
    let said = refused(cluster, &["--out", "/root/.kube/config"], 1)?;
    ensure!(said.contains("was not written by ctl kubeconfig"), "{said}");

    let seconds = short_lived(cluster)?;
    wait::until("a kubeconfig to expire", ENDED, || {
        let words = [KUBECTL, "--kubeconfig", FILE, "get", "nodes"];
        let output = cluster.worker.output(&words)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success(), "it is still accepted");
        let is_refused = said.contains("expired") || said.contains("Unauthorized");
        ensure!(is_refused || said.contains("must be logged in"), "{said}");
        Ok(())
    })?;
    let words = ["audit", "--action", "Kubeconfig"];
    let log: AuditLog = ctl_answer::of(&cluster.bootstrap, &words)?;
    let mut lines = log.audit.iter();
    ensure!(
        lines.any(|line| line.what == format!("for {seconds} s") && line.outcome == "ok"),
        "{log:?}"
    );
    for host in cluster.hosts() {
        host.sh(&format!("rm -f {FILE} {KUBECTL}"))?;
    }
    Ok(Counts::ONE)
}

/// Makes a file that ends soon after it has been used; returns its seconds. A busy machine may need
/// longer than the first ones to copy it.
fn short_lived(cluster: &Cluster) -> Result<u64> {
    let mut used = Ok(0);
    for seconds in [12, 30, 90] {
        carried(cluster, &["--ttl", &format!("{seconds}s")])?;
        used = kubectl(cluster, &["get", "nodes"]).map(|_| seconds);
        if used.is_ok() {
            break;
        }
    }
    used
}
