//! A host that `ctl node add` reaches over SSH.

use std::fs;

use anyhow::{Result, ensure};
use halite_lab::cluster::{CTL, Cluster, WORKER};

use crate::bare::remove_worker;
use crate::cluster::{STAYING, across_nodes, ensure_servers};
use crate::health;
use crate::test::Counts;

/// The list of hosts on the bootstrap host.
const LIST: &str = "/root/hosts.yaml";
const INSTALL: &str = "DEBIAN_FRONTEND=noninteractive apt-get install -y -q openssh-server >/root/ssh.log 2>&1 || \
                       { cat /root/ssh.log; exit 1; }";
const KEY: &str = "rm -rf /root/.ssh && mkdir -m 700 /root/.ssh && \
                   ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519";
const PURGE: &str =
    "apt-get purge -y -q openssh-server >/dev/null 2>&1; rm -rf /root/.ssh /root/ssh.log";

pub(super) fn is_added(cluster: &Cluster) -> Result<Counts> {
    let (first, worker) = (&cluster.bootstrap, &cluster.worker);
    let address = worker.control_plane_address();
    for host in cluster.hosts() {
        host.sh(INSTALL)?;
    }
    first.sh(KEY)?;
    worker.sh("mkdir -p -m 700 /root/.ssh")?;
    fs::copy(
        first.file("/root/.ssh/id_ed25519.pub"),
        worker.file("/root/.ssh/authorized_keys"),
    )?;
    remove_worker(cluster)?;
    let list = format!(
        "apiVersion: halite/v1\nkind: HostList\nhosts:\n- {{name: {WORKER}, address: {address}}}\n"
    );
    fs::write(first.file(LIST), list)?;
    let add = [CTL, "node", "add", "--from", LIST, "--ssh", "root"];

    // No key is accepted without an operator, and the host is not declared.
    let output = first.output(&add)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1) && said.contains("is in no known_hosts file"),
        "an unknown host key: {}: {said}",
        output.status
    );
    first.sh(&format!("! test -e /etc/halite/nodes/{WORKER}.yaml"))?;

    first.sh(&format!(
        "ssh-keyscan -t ed25519 {address} > /root/.ssh/known_hosts"
    ))?;
    ensure!(first.show(&add)?.success(), "the host was not added");
    ensure!(first.show(&add)?.success(), "it is refused when repeated");
    for host in cluster.hosts() {
        host.sh(PURGE)?;
    }
    fs::remove_file(first.file(LIST))?;
    ensure_servers(cluster, STAYING)?;
    across_nodes(cluster, STAYING)?;
    health::is_well(cluster)?;
    Ok(Counts::ONE)
}
