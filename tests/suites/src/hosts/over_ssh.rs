//! A host that `ctl node add` reaches over SSH.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{CTL, Cluster, WORKER};
use halite_lab::host::Host;
use halite_lab::wait;

use crate::bare::remove_worker;
use crate::cluster::{STAYING, across_nodes, ensure_servers};
use crate::health;
use crate::test::Counts;

/// The list of hosts on the bootstrap host.
const LIST: &str = "/root/hosts.yaml";
const ADD: [&str; 7] = [CTL, "node", "add", "--from", LIST, "--ssh", "root"];
const INSTALL: &str = "DEBIAN_FRONTEND=noninteractive apt-get install -y -q openssh-server >/root/ssh.log 2>&1 || \
                       { cat /root/ssh.log; exit 1; }";
const KEY: &str = "rm -rf /root/.ssh && mkdir -m 700 /root/.ssh && \
                   ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519";
const HOST_KEY: &str = "/etc/ssh/ssh_host_ed25519_key.pub";
const PURGE: &str = "apt-get purge -y -q openssh-server >/dev/null 2>&1; \
                     rm -rf /root/.ssh /root/ssh.log /root/typescript /root/answer";

/// The end of OpenSSH's question for an unknown key.
const QUESTION: &str = "Are you sure you want to continue connecting";
/// Limit for the question.
const ASKED: Duration = Duration::from_secs(60);

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

    // No key is accepted without an operator.
    is_refused(
        first,
        &without_a_terminal(first)?,
        "is in no known_hosts file",
    )?;
    // Another host may answer. Its key is that of the first host.
    first.sh(&format!(
        "echo {address} $(cut -d ' ' -f 1,2 {HOST_KEY}) > /root/.ssh/known_hosts"
    ))?;
    let remedy = format!("`ssh-keygen -R {address}`");
    is_refused(first, &without_a_terminal(first)?, &remedy)?;
    first.sh(remedy.trim_matches('`'))?;

    let fingerprint = worker.sh(&format!("ssh-keygen -lf {HOST_KEY} | cut -d ' ' -f 2"))?;
    let answered = |answer| at_a_terminal(first, fingerprint.trim(), answer);
    is_refused(first, &answered("no")?, "is in no known_hosts file")?;
    // The answer is recorded, although the host has no way to fetch the minion yet.
    worker.sh("mv /usr/bin/curl /usr/bin/curl.away")?;
    is_refused(first, &answered("yes")?, "curl is missing there")?;
    worker.sh("mv /usr/bin/curl.away /usr/bin/curl")?;
    ensure!(first.show(&ADD)?.success(), "the host was not added");
    ensure!(first.show(&ADD)?.success(), "it is refused when repeated");

    for host in cluster.hosts() {
        host.sh(PURGE)?;
    }
    fs::remove_file(first.file(LIST))?;
    ensure_servers(cluster, STAYING)?;
    across_nodes(cluster, STAYING)?;
    health::is_well(cluster)?;
    Ok(Counts::ONE)
}

/// The exit code of a command, and its output.
type Ended = (Option<i32>, String);

/// Adds the host from a script.
fn without_a_terminal(host: &Host) -> Result<Ended> {
    let output = host.output(&ADD)?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    Ok((output.status.code(), said))
}

/// Adds the host at a terminal, which must display this fingerprint of the host's key, and types
/// the answer.
fn at_a_terminal(host: &Host, fingerprint: &str, answer: &str) -> Result<Ended> {
    let displayed = host.file("/root/typescript");
    host.sh("rm -f /root/typescript")?;
    let line = format!("{} >/root/answer 2>&1", ADD.join(" "));
    let mut command = host.command(&["script", "-qefc", &line, "/root/typescript"])?;
    let mut ctl = (command.stdin(Stdio::piped()).stdout(Stdio::null()))
        .spawn()
        .context("cannot start nsenter")?;
    let mut keyboard = ctl.stdin.take().context("no standard input")?;
    // A question discards what was typed before it.
    let asked = wait::until("the question for the host's key", ASKED, || {
        let text = fs::read_to_string(&displayed)?;
        ensure!(
            text.contains(fingerprint) && text.contains(QUESTION),
            "the terminal displays {text:?}, the key is {fingerprint}"
        );
        Ok(())
    });
    if asked.is_err() {
        ctl.kill()?;
    }
    asked?;
    writeln!(keyboard, "{answer}")?;
    let status = ctl.wait()?;
    Ok((status.code(), host.sh("cat /root/answer")?))
}

/// Fails unless `ctl` ended with these words, and declared no host.
fn is_refused(host: &Host, (code, said): &Ended, words: &str) -> Result<()> {
    ensure!(
        *code == Some(1) && said.contains(words),
        "no refusal with {words:?}: {code:?}: {said}"
    );
    host.sh(&format!("! test -e /etc/halite/nodes/{WORKER}.yaml"))?;
    Ok(())
}
