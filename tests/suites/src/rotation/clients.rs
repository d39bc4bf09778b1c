//! Two clients that write from the worker, by the name of the API: one with a kubeconfig from
//! before a rotation, and one with a copy of the administrator's, which follows it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use super::{ADMINISTRATOR, CA, DIRECTORY, OLD_KUBECONFIG};
use crate::availability::record::numbers;

/// The program on a control plane, and its copy on the worker, which does not have it installed.
const PROGRAM: &str = "/usr/bin/kubectl";
const KUBECTL: &str = "/root/rotation/kubectl";
/// The copy of the administrator's kubeconfig.
const NEW_KUBECONFIG: &str = "/root/rotation/new.conf";
const SCRIPT: &str = "/root/rotation/write.sh";
/// The namespace of their objects.
const NAMESPACE: &str = "rotation";
/// The names of the clients, and of their kubeconfigs and objects.
const OLD: &str = "old";
const NEW: &str = "new";
/// Limit for both to have written.
const FIRST_WRITES: Duration = Duration::from_secs(60);
/// The pause between two looks at the administrator's kubeconfig.
const PAUSE: Duration = Duration::from_millis(100);
/// The least writes of a client while the worker trusts both CAs.
const LEAST: usize = 10;

/// Writes objects with the name and the kubeconfig in its argument. Notes the number of CAs that
/// the worker trusts at each write, and the time and the message of each failure. `kubectl`
/// retries as every Kubernetes client does; the script adds no retries of its own. The older client
/// ends when it is refused because of a certificate.
const WRITER: &str = r#"#!/bin/sh
cd /root/rotation
n=0
while [ ! -e stop ]; do
  n=$((n + 1))
  if said=$(./kubectl --kubeconfig "$1.conf" --request-timeout 5s -n rotation create configmap "$1-$n" --from-literal=n=$n 2>&1); then
    echo "$(grep -c BEGIN /etc/kubernetes/pki/ca.crt) $n" >> "$1.written"
  else
    echo "$(date +%s.%N) $(echo "$said" | tr '\n' ' ')" >> "$1.failed"
    case $1:$said in
      old:*x509*|old:*certificate*|old:*Unauthorized*|old:*'logged in'*) exit 0;;
    esac
  fi
  sleep 0.2
done
"#;

/// Parts of the messages of a refusal because of a certificate, as in the script.
const OF_CERTIFICATES: [&str; 4] = ["x509", "certificate", "Unauthorized", "logged in"];

/// A write that failed.
#[derive(Debug)]
struct FailedWrite {
    /// The time in seconds.
    time: f64,
    /// The message of the client.
    said: String,
}

impl FailedWrite {
    /// Returns whether the write was refused because of a certificate.
    fn is_refusal(&self) -> bool {
        OF_CERTIFICATES.iter().any(|part| self.said.contains(part))
    }
}

/// The notes of one client.
#[derive(Debug)]
struct Notes {
    /// The acknowledged writes: the number of CAs that the worker trusted, and the number of the
    /// write.
    written: Vec<(usize, u64)>,
    failed: Vec<FailedWrite>,
}

/// The notes of both clients.
#[derive(Debug)]
pub(super) struct ClientNotes {
    old: Notes,
    new: Notes,
}

/// Does something while both clients write.
pub(super) fn while_written(
    cluster: &Cluster,
    act: impl FnOnce() -> Result<()>,
) -> Result<ClientNotes> {
    let worker = &cluster.worker;
    start(cluster)?;
    following(cluster, || {
        let done = wait::until("the first writes", FIRST_WRITES, || has_begun(worker));
        let done = done.and_then(|()| act());
        // Also after a failure: the tests after this one do not expect them.
        stop(worker)?;
        done
    })?;
    Ok(ClientNotes {
        old: Notes::read(worker, OLD)?,
        new: Notes::read(worker, NEW)?,
    })
}

/// Starts the clients. The first host has the kubeconfig from before.
fn start(cluster: &Cluster) -> Result<()> {
    let (first, worker) = (&cluster.bootstrap, &cluster.worker);
    // There may be notes and objects of an earlier rotation.
    cluster.kubectl(&["delete", "namespace", NAMESPACE, "--ignore-not-found"])?;
    cluster.kubectl(&["create", "namespace", NAMESPACE])?;
    worker.sh(&format!(
        "mkdir -p {DIRECTORY} && cd {DIRECTORY} && rm -f stop *.written *.failed"
    ))?;
    for (from, to) in [
        (PROGRAM, KUBECTL),
        (OLD_KUBECONFIG, OLD_KUBECONFIG),
        (ADMINISTRATOR, NEW_KUBECONFIG),
    ] {
        fs::copy(first.file(from), worker.file(to))
            .with_context(|| format!("cannot copy {from} to the worker"))?;
    }
    fs::write(worker.file(SCRIPT), WRITER)?;
    for name in [OLD, NEW] {
        worker.sh(&format!(
            "systemd-run --quiet --collect --unit=rotation-{name} sh {SCRIPT} {name}"
        ))?;
    }
    Ok(())
}

/// Fails unless both clients have written.
fn has_begun(worker: &Host) -> Result<()> {
    for name in [OLD, NEW] {
        let notes = Notes::read(worker, name)?;
        let number = notes.written.len();
        ensure!(number > 2, "{name}: {number} writes, {:?}", notes.failed);
    }
    Ok(())
}

/// Stops the clients, once the older one has had the time to be refused.
fn stop(worker: &Host) -> Result<()> {
    worker.sh(&format!(
        "sleep 3; touch {DIRECTORY}/stop; \
         for _ in $(seq 60); do systemctl is-active --quiet 'rotation-*' || exit 0; sleep 1; done; \
         echo 'the clients do not stop'; exit 1"
    ))?;
    Ok(())
}

/// Does something while a thread copies the administrator's kubeconfig to the worker whenever it
/// changes.
fn following(cluster: &Cluster, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let from = cluster.bootstrap.file(ADMINISTRATOR);
    let to = cluster.worker.file(NEW_KUBECONFIG);
    let (alive, end) = channel::<()>();
    let copies = thread::spawn(move || follow(&from, &to, &end));
    let done = act();
    drop(alive);
    let copied = copies
        .join()
        .map_err(|_| anyhow!("the thread that copies a kubeconfig panicked"))?;
    done?;
    copied.context("cannot copy the administrator's kubeconfig")
}

/// Copies a file whenever it has changed, until the other end of the channel is dropped.
fn follow(from: &Path, to: &Path, end: &Receiver<()>) -> Result<()> {
    let coming = to.with_extension("coming");
    let mut last = fs::read(to)?;
    while end.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
        let now = fs::read(from)?;
        if now != last {
            fs::write(&coming, &now)?;
            fs::rename(&coming, to)?;
            last = now;
        }
    }
    Ok(())
}

impl Notes {
    fn read(worker: &Host, name: &str) -> Result<Self> {
        let lines = |kind: &str| -> Result<Vec<String>> {
            let line = format!("cat {DIRECTORY}/{name}.{kind} 2>/dev/null || true");
            Ok(worker.sh(&line)?.lines().map(str::to_owned).collect())
        };
        let mut notes = Self {
            written: Vec::new(),
            failed: Vec::new(),
        };
        for line in lines("written")? {
            let (cas, number) = words(&line)?;
            notes.written.push((cas.parse()?, number.trim().parse()?));
        }
        for line in lines("failed")? {
            let (time, said) = words(&line)?;
            notes.failed.push(FailedWrite {
                time: time.parse()?,
                said: said.to_owned(),
            });
        }
        Ok(notes)
    }
}

/// The first word of a note, and the rest.
fn words(line: &str) -> Result<(&str, &str)> {
    let words = line.split_once(' ');
    words.with_context(|| format!("a client has noted {line:?}"))
}

impl ClientNotes {
    fn each(&self) -> [(&'static str, &Notes); 2] {
        [(OLD, &self.old), (NEW, &self.new)]
    }

    /// Fails if an acknowledged write is missing.
    pub(super) fn all_exist(&self, cluster: &Cluster) -> Result<()> {
        let column = "-o=custom-columns=NAME:.metadata.name";
        let list = ["get", "configmaps", "-n", NAMESPACE, "--no-headers", column];
        let names = cluster.kubectl(&list)?;
        for (name, notes) in self.each() {
            let acknowledged = notes.written.iter().map(|(_, number)| *number);
            let acknowledged: BTreeSet<u64> = acknowledged.collect();
            let missing = &acknowledged - &numbers(name, names.lines());
            ensure!(
                missing.is_empty(),
                "{name}: acknowledged but missing: {missing:?}"
            );
        }
        Ok(())
    }

    /// The messages of the failures that break the promise of the rotation: all of the present
    /// kubeconfig, and those of the older one while each control plane trusts its CA. The only API
    /// server of a cluster restarts, so there only refusals because of a certificate count.
    pub(super) fn wrong(&self, cluster: &Cluster) -> Result<Vec<&str>> {
        let left = first_without_the_old_ca(cluster)?;
        let restarts = cluster.control_planes().len() == 1;
        let early = self.old.failed.iter().filter(|write| write.time < left);
        let wrong = early.chain(&self.new.failed);
        let wrong = wrong.filter(|write| !restarts || write.is_refusal());
        Ok(wrong.map(|write| write.said.as_str()).collect())
    }

    /// Prints the number of writes of each client, and of each of its failures.
    pub(super) fn print(&self) {
        for (name, notes) in self.each() {
            let (written, failed) = (notes.written.len(), notes.failed.len());
            println!("  {name}: {written} writes, {failed} failed");
            let mut messages: BTreeMap<&str, usize> = BTreeMap::new();
            for write in &notes.failed {
                *messages.entry(&write.said).or_default() += 1;
            }
            for (said, number) in messages {
                println!("    {number} times: {said}");
            }
        }
    }

    /// Fails unless both clients wrote while both CAs were trusted, no write failed that must not,
    /// and the older client was refused when its CA had left.
    pub(super) fn check(&self, cluster: &Cluster) -> Result<()> {
        self.print();
        for (name, notes) in self.each() {
            let both = notes.written.iter().filter(|(cas, _)| *cas == 2).count();
            ensure!(
                both > LEAST,
                "{name}: only {both} writes while both are trusted"
            );
        }
        let wrong = self.wrong(cluster)?;
        ensure!(
            wrong.is_empty(),
            "writes failed before the old CA has left: {wrong:?}"
        );
        let failed = self.old.failed.iter();
        let refused = failed.filter(|write| write.is_refusal()).count();
        ensure!(
            refused == 1,
            "the old kubeconfig is not refused once: {:?}",
            self.old.failed
        );
        Ok(())
    }
}

/// The time in seconds at which the first control plane got the new CA alone: the last change of
/// its file.
fn first_without_the_old_ca(cluster: &Cluster) -> Result<f64> {
    let mut first = f64::INFINITY;
    for host in cluster.control_planes() {
        let changed = host.run(&["stat", "--format=%.9Y", CA])?;
        first = first.min(changed.trim().parse()?);
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_from_failures_of_connections() {
        for (said, is_refusal) in [
            (
                "error: failed to create configmap: Post \"https://10.0.0.10:6443/api\": tls: failed to verify certificate: \
                 x509: certificate signed by unknown authority",
                true,
            ),
            (
                "error: You must be logged in to the server (Unauthorized)",
                true,
            ),
            (
                "The connection to the server 10.0.0.10:6443 was refused - did you specify the right host or port?",
                false,
            ),
            (
                "error: failed to create configmap: Post \"https://10.0.0.10:6443/api\": read: connection reset by peer",
                false,
            ),
        ] {
            let write = FailedWrite {
                time: 1.0,
                said: said.to_owned(),
            };
            assert_eq!(write.is_refusal(), is_refusal, "{said}");
        }
        for part in OF_CERTIFICATES {
            assert!(WRITER.contains(part), "{part}");
        }
        assert!(WRITER.contains(&format!(" -n {NAMESPACE} ")));
    }
}
