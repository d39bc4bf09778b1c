//! `ctl support` while the API does not answer and a host is disconnected: one archive with the
//! output of the reachable hosts, and no secret.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_api::{ClusterStatus, SupportArchive, from_text};
use halite_lab::cluster::{BOOTSTRAP, Cluster, DOCUMENT, WORKER};
use halite_lab::wait;
use serde_json::json;

use super::health;
use crate::ctl_answer;
use crate::kills::while_off;
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[Test {
    name: "support: with the API down and a host disconnected there is one archive, without secrets",
    run: without_a_minion,
}];

/// An additional test of `full`: it takes a minute or two until a host that was off works normally
/// again.
pub(super) const FULL: &[Test<Cluster>] = &[Test {
    name: "support: with the API down and a host powered off there is one archive, without secrets",
    run: without_a_host,
}];

/// Limit for the master to notice that the worker is disconnected.
const NOTICED: Duration = Duration::from_secs(180);
/// Limit for the API to answer again. A kubelet waits for up to five minutes before it restarts a
/// program that exited several times.
const BACK: Duration = Duration::from_secs(420);
/// Limit for the API to be gone.
const GONE: Duration = Duration::from_secs(60);

/// The secret of the site, which the master knows.
const OF_SITE: &str = "canary-of-the-site-4711";
/// A secret that is recognizable only by its form.
const OF_FORM: &str = "canary-of-a-header-4712";
/// A line of a private key.
const OF_KEY: &str = "canaryOfAKey4713";
/// A value of a Kubernetes Secret.
const OF_KUBERNETES: &str = "canary-of-kubernetes-4714";
/// Text that must be in the archive.
const HARMLESS: &str = "a word that may be read";

/// A log of a pod, of the namespace whose logs the archive contains.
const LOG: &str = "/var/log/pods/kube-system_halite-test_0/canary/0.log";
/// The directory of [`LOG`], which no pod has made.
const LOGS: &str = "/var/log/pods/kube-system_halite-test_0";
const SECRET: &str = "halite-test-canary";
const ARCHIVE: &str = "/root/halite-test-support.tar.gz";
const UNPACKED: &str = "/root/halite-test-support";

/// The worker's minion has stopped, and its host keeps running.
fn without_a_minion(cluster: &Cluster) -> Result<Counts> {
    let worker = &cluster.worker;
    worker.run(&["systemctl", "stop", "halite-minion"])?;
    let outcome = archived(cluster);
    worker.run(&["systemctl", "start", "halite-minion"])?;
    let well = health::is_well(cluster);
    outcome?;
    well?;
    delete_secret(cluster)?;
    Ok(Counts::ONE)
}

/// The worker's power is off: the master notices it only by the silence.
fn without_a_host(cluster: &Cluster) -> Result<Counts> {
    while_off(cluster, &cluster.worker, WORKER, || {
        let outcome = archived(cluster);
        // The host that comes back needs it.
        let back = wait::until("the API to answer again", BACK, || api(cluster));
        outcome.and(back)
    })?;
    health::is_well(cluster)?;
    delete_secret(cluster)?;
    Ok(Counts::ONE)
}

/// Makes and judges the archive while the API is down. Afterwards the kubelet, which restarts it,
/// runs.
fn archived(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    let document = host.file(DOCUMENT);
    let before = fs::read_to_string(&document)?;
    ensure!(
        !before.contains("\nsecrets:"),
        "the document has `secrets:`"
    );
    let secrets = format!("secrets:\n  canary: {{value: \"{OF_SITE}\", roles: [control-plane]}}\n");
    let separator = if before.ends_with('\n') { "" } else { "\n" };
    fs::write(&document, format!("{before}{separator}{secrets}"))?;
    let outcome = take_away(cluster)
        .and_then(|()| collected(cluster))
        .and_then(|()| judge(&host.file(UNPACKED)));
    fs::write(&document, &before)?;
    host.sh(&format!(
        "rm -rf {LOGS} {ARCHIVE} {UNPACKED}; systemctl start kubelet"
    ))?;
    outcome
}

fn delete_secret(cluster: &Cluster) -> Result<()> {
    let delete = ["delete", "secret", SECRET, "--ignore-not-found"];
    cluster.kubectl(&delete).map(drop)
}

/// Fails unless the API answers.
fn api(cluster: &Cluster) -> Result<()> {
    let ready = ["get", "--raw", "/readyz", "--request-timeout=5s"];
    cluster.kubectl(&ready).map(drop)
}

/// Waits until the master has noticed that the worker is disconnected. For a host that has just
/// lost its power, a job would wait for the return.
fn wait_until_lost(cluster: &Cluster) -> Result<()> {
    wait::until(
        "the master to notice that the worker is away",
        NOTICED,
        || {
            let status = health::status(cluster)?;
            let mut nodes = status.nodes.iter();
            let lost = nodes.any(|node| node.name == WORKER && !node.connected);
            ensure!(lost, "it is connected: {:?}", status.nodes);
            Ok(())
        },
    )
}

/// Puts the secrets where they might be collected, stops the API server, and waits until the master
/// has noticed both that and the loss of the worker.
fn take_away(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET},
        "stringData": {"password": OF_KUBERNETES},
    });
    let file = host.file("/root/halite-test-secret.json");
    fs::write(&file, secret.to_string())?;
    delete_secret(cluster)?;
    cluster.kubectl(&["create", "-f", "/root/halite-test-secret.json"])?;
    fs::remove_file(&file)?;
    // The kubelet would restart it, and remove the log of a pod that it does not know.
    host.sh("systemctl stop kubelet && pkill -KILL -x kube-apiserver")?;
    let log = host.file(LOG);
    fs::create_dir_all(log.parent().context("a log without a directory")?)?;
    fs::write(
        log,
        format!(
            "{HARMLESS}\nthe password is {OF_SITE}, again {OF_SITE}\nAuthorization: Bearer {OF_FORM}\n\
             -----BEGIN PRIVATE KEY-----\n{OF_KEY}\n-----END PRIVATE KEY-----\n"
        ),
    )?;
    wait_until_lost(cluster)?;
    wait::until("the API to be unavailable", GONE, || {
        ensure!(api(cluster).is_err(), "it answers");
        Ok(())
    })
}

/// Makes the archive and unpacks it.
fn collected(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    host.run(&["rm", "-rf", ARCHIVE, UNPACKED])?;
    let made: SupportArchive = ctl_answer::of(host, &["support", "--out", ARCHIVE])?;
    ensure!(
        made.hosts == 1 && made.missing.keys().eq([WORKER]),
        "not only {BOOTSTRAP}: {made:?}"
    );
    let mode = host.run(&["stat", "-c", "%a", ARCHIVE])?;
    ensure!(mode.trim() == "600", "the mode of the archive is {mode}");
    host.sh(&format!(
        "mkdir {UNPACKED} && tar -xzf {ARCHIVE} -C {UNPACKED} --strip-components=1"
    ))?;
    Ok(())
}

/// Judges the unpacked archive.
fn judge(directory: &Path) -> Result<()> {
    let read =
        |name: &str| fs::read_to_string(directory.join(name)).with_context(|| format!("no {name}"));
    let host = read(&format!("hosts/{BOOTSTRAP}.txt"))?;
    for part in [
        HARMLESS,
        "(secret)",
        "[redacted]",
        "Active: inactive (dead)",
        "===== ctr --namespace k8s.io tasks list",
        "===== kubectl",
    ] {
        ensure!(
            host.contains(part),
            "{part:?} is not in the output of {BOOTSTRAP}"
        );
    }
    let missing = read("missing.txt")?;
    ensure!(
        missing.lines().count() == 1 && missing.starts_with(&format!("{WORKER}: ")),
        "missing: {missing}"
    );
    from_text::<ClusterStatus>(&read("status.json")?)?;
    let encoded = STANDARD.encode(OF_KUBERNETES);
    let canaries = [OF_SITE, OF_FORM, OF_KEY, OF_KUBERNETES, encoded.as_str()];
    let all = ["status.json", "jobs.json", "grains.json"].map(read);
    for text in all.into_iter().chain([Ok(host), Ok(missing)]) {
        let text = text?;
        for canary in canaries {
            let line = text.lines().find(|line| line.contains(canary));
            ensure!(line.is_none(), "{canary} is in the archive: {line:?}");
        }
    }
    Ok(())
}
