//! A cluster whose control planes are lost with their disks, and the objects that a restore must
//! bring back.

mod objects;

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use halite_api::MadeBackup;
use halite_lab::cluster::{CTL, Cluster, DOCUMENT, INSTALL, WORKER};
use halite_lab::host::Host;
use halite_lab::wait;

use self::objects::Objects;
use crate::{ctl_answer, guide};

/// Limit for the worker, and the pods of all hosts, to be back: the kubelet waits up to five
/// minutes before it restarts a program that exited several times.
pub(super) const BACK: Duration = Duration::from_secs(360);
/// Directory of the backup files on the first host.
pub(super) const DIRECTORY: &str = "/root/backups";
/// The files that the operator carries to the site, as in the guide.
const STICK: &str = "/media/stick";
pub(super) const KEY: &str = "/media/stick/backup.key";
pub(super) const FILE: &str = "/media/stick/prod.halite-backup";
const NAMESPACE: &str = "disaster";

/// A key pair of `age-keygen`, for tests only.
const SECRET_KEY: &str = include_str!("../../../../lib/age/tests/fixtures/key.txt");

/// A backup away from the hosts, and the objects that its restore must bring back.
pub(crate) struct Kept {
    backup: Vec<u8>,
    /// The hash of the CA that signed it, which the operator noted.
    ca_hash: String,
    before: Seen,
    objects: Objects,
}

/// The content of a Secret, and the container of a pod on the worker.
type Seen = (String, String);

/// Makes a Secret and a pod on the worker, a backup with them, and an object that is not in it.
pub(crate) fn back_up(cluster: &Cluster) -> Result<Kept> {
    let host = &cluster.bootstrap;
    make_objects(cluster)?;
    let before = seen(cluster)?;
    declare(host)?;
    host.sh(&format!("rm -rf {DIRECTORY}"))?;
    let (objects, (backup, ca_hash)) = Objects::around(cluster, || {
        let made = make(host)?;
        ensure!(made.signed, "it is not signed: {made:?}");
        let backup = fs::read(host.file(&made.path))?;
        Ok((backup, made.ca_hash))
    })?;
    cluster.kubectl(&["create", "configmap", "later", "-n", NAMESPACE])?;
    Ok(Kept {
        backup,
        ca_hash,
        before,
        objects,
    })
}

/// The command that restores without a key and without asking.
pub(crate) fn without_key() -> Vec<&'static str> {
    let words = INSTALL.iter().copied();
    words.chain(["--restore", FILE, "--yes"]).collect()
}

/// Puts the key at its path in the guide.
pub(super) fn put_key(host: &Host) -> Result<()> {
    fs::create_dir_all(host.file(STICK))?;
    Ok(fs::write(host.file(KEY), SECRET_KEY)?)
}

impl Kept {
    /// The guide's command with the key and the hash of the CA, without asking.
    pub(crate) fn command(&self) -> Result<Vec<String>> {
        let heading = "## The first host, or all control planes, are lost";
        let begin = format!("{CTL} bootstrap --restore {FILE} --key {KEY}");
        let mut words = guide::command("disaster.md", heading, &begin)?;
        let hash = words.iter_mut().find(|word| *word == "HASH");
        hash.context("no hash")?.clone_from(&self.ca_hash);
        words.push("--yes".to_owned());
        Ok(words)
    }

    /// Restores on a host, and shows the output.
    pub(crate) fn restore(&self, host: &Host) -> Result<()> {
        let words = self.command()?;
        if !host.show(&words)?.success() {
            bail!("the restore failed; again: {}", words.join(" "));
        }
        Ok(())
    }

    /// Copies backup and key to a host that must be bare.
    pub(crate) fn carry(&self, host: &Host) -> Result<()> {
        ensure!(!host.file(DOCUMENT).exists(), "the host is not bare");
        put_key(host)?;
        Ok(fs::write(host.file(FILE), &self.backup)?)
    }

    /// Waits until the restored host and the worker are back without a command, and checks that all
    /// objects are those of the backup.
    pub(crate) fn came_back(&self, cluster: &Cluster) -> Result<()> {
        let host = &cluster.bootstrap;
        // The restored objects report Ready, as at the backup: only a renewed lease is new.
        let lease = |node: &str| {
            let renewed = "jsonpath={.spec.renewTime}";
            cluster.kubectl(&["get", "lease", node, "-n", "kube-node-lease", "-o", renewed])
        };
        let nodes = [host.spec.name.as_str(), WORKER];
        let leases = [lease(nodes[0])?, lease(nodes[1])?];
        wait::until("the worker to be Ready without a command", BACK, || {
            let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
            for (node, before) in nodes.into_iter().zip(&leases) {
                ensure!(lease(node)? != *before, "{node} has not renewed its lease");
                let status = cluster.kubectl(&["get", "node", node, "-o", ready])?;
                ensure!(status == "True", "{node}: {status}");
            }
            Ok(())
        })?;
        wait::until("the minions", BACK, || {
            nodes
                .iter()
                .try_for_each(|node| host.run(&[CTL, "ping", node]).map(drop))
        })?;
        let (before, after) = (&self.before, seen(cluster)?);
        ensure!(after == *before, "{before:?} is now {after:?}");
        let later = cluster.kubectl(&["get", "configmap", "-n", NAMESPACE, "-o", "name"])?;
        ensure!(
            !later.contains("later"),
            "the restored etcd is not the one of the backup"
        );
        self.objects.are_back(cluster)?;
        ensure!(
            !host.file("/var/lib/halite/restore").exists(),
            "the mark stays"
        );
        Ok(())
    }

    /// Checks that controllers continue from the restored state, and removes the test's objects.
    pub(crate) fn continues(self, cluster: &Cluster) -> Result<()> {
        cluster.kubectl(&["-n", NAMESPACE, "delete", "pod", "staying"])?;
        staying(cluster)?;
        cluster.wait_for_pods(BACK)?;
        let remove = ["delete", "namespace", NAMESPACE];
        cluster.kubectl(&remove).map(drop)
    }
}

/// Makes a backup in the directory of the tests.
pub(super) fn make(host: &Host) -> Result<MadeBackup> {
    ctl_answer::of(host, &["backup", "create", "--out", DIRECTORY])
}

/// The public half of the key.
pub(super) fn recipient() -> Result<&'static str> {
    let mut lines = SECRET_KEY.lines();
    let line = lines.find_map(|line| line.strip_prefix("# public key: "));
    line.context("the key has no public half")
}

/// Declares the recipient, and returns the previous document.
pub(super) fn declare(host: &Host) -> Result<String> {
    let path = host.file(DOCUMENT);
    let before = fs::read_to_string(&path)?;
    let without = before.lines().filter(|line| !line.starts_with("backup:"));
    let mut text: String = without.map(|line| format!("{line}\n")).collect();
    text.insert_str(0, &format!("backup: {{recipients: [{}]}}\n", recipient()?));
    fs::write(&path, text)?;
    Ok(before)
}

fn seen(cluster: &Cluster) -> Result<Seen> {
    let get = |words: &[&str]| cluster.kubectl(&[&["-n", NAMESPACE, "get"], words].concat());
    let secret = get(&[
        "secret",
        "kept",
        "-o",
        "jsonpath={.data.word} {.metadata.uid}",
    ])?;
    let status = "jsonpath={.metadata.uid} {.status.containerStatuses[0].containerID}";
    Ok((secret, get(&["pod", "staying", "-o", status])?))
}

/// A Secret, and a pod that stays on the worker.
fn make_objects(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["delete", "namespace", NAMESPACE, "--ignore-not-found"])?;
    cluster.kubectl(&["create", "namespace", NAMESPACE])?;
    let secret = [
        "create",
        "secret",
        "generic",
        "kept",
        "--from-literal=word=canary",
    ];
    cluster.kubectl(&[&["-n", NAMESPACE], &secret[..]].concat())?;
    staying(cluster)?;
    cluster.wait_for_pods(BACK)
}

/// Makes the pod on the worker. Its file is written each time: the host may have been replaced.
fn staying(cluster: &Cluster) -> Result<()> {
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "staying"},
        "spec": {"nodeName": WORKER, "terminationGracePeriodSeconds": 1, "containers": [{
            "name": "staying", "image": halite_upstream::LAB_POD, "args": ["pause"],
        }]},
    });
    fs::write(
        cluster.bootstrap.file("/root/disaster.json"),
        pod.to_string(),
    )?;
    let apply = ["-n", NAMESPACE, "apply", "-f", "/root/disaster.json"];
    // The API refuses pods in a new namespace until the controller manager has made its
    // ServiceAccount.
    wait::until("the namespace to take a pod", BACK, || {
        cluster.kubectl(&apply).map(drop)
    })
}
