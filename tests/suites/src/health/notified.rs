//! Notifications: findings of the real cluster reach a webhook, and resolve.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_api::{FindingNews, Notification, from_text};
use halite_lab::cluster::{CTL, Cluster, DOCUMENT, WORKER};
use halite_lab::wait;

use super::{is_well, status};
use crate::declare::declare;
use crate::lifetimes;
use crate::lifetimes::Lifetimes;
use crate::test::Counts;

/// The webhook, a program that socat runs for each connection, and the bodies that it has received,
/// one on each line.
const HOOK: &str = "/root/webhook";
const RECEIVED: &str = "/root/webhook.log";
const UNIT: &str = "lab-webhook";
const SCRIPT: &str = r#"#!/bin/bash
length=0
while IFS= read -r line; do
  line=${line%$'\r'}
  [ -n "$line" ] || break
  case ${line,,} in content-length:*) length=${line#*: };; esac
done
body=$(head -c "$length")
printf '%s\n' "$body" >> /root/webhook.log
printf 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'
"#;
/// The directory of a backup that is too old.
const OLD: &str = "/root/old-backups";
/// A finding needs two rounds of a minute, its resolution three; the kubelet, a minute to count as
/// not ready.
const NOTICED: Duration = Duration::from_secs(300);

/// Checks each cause by itself: while it lasts, the webhook gets the finding; afterwards, its
/// resolution.
pub(super) fn webhook(cluster: &Cluster) -> Result<Counts> {
    is_well(cluster)?;
    let host = &cluster.bootstrap;
    let before = fs::read_to_string(host.file(DOCUMENT))?;
    fs::write(host.file(HOOK), SCRIPT)?;
    start(cluster)?;
    declare(
        cluster,
        "notify",
        "{sinks: {lab: {url: \"http://127.0.0.1:8099/\"}}}",
    )?;
    let tried = causes(cluster);
    fs::write(host.file(DOCUMENT), before)?;
    host.sh(&format!("systemctl stop {UNIT}; rm -rf {OLD}"))?;
    tried?;
    is_well(cluster)?;
    Ok(Counts {
        passed: 5,
        failed: 0,
    })
}

fn start(cluster: &Cluster) -> Result<()> {
    let line = format!("chmod +x {HOOK}; : > {RECEIVED}");
    cluster.bootstrap.sh(&line)?;
    start_again(cluster)
}

fn causes(cluster: &Cluster) -> Result<()> {
    let (host, worker) = (&cluster.bootstrap, &cluster.worker);
    host.run(&[CTL, "notify", "test", "lab"])?;
    received(cluster, &FindingNews::New, "test")?;

    worker.sh("echo 0 > /proc/sys/net/ipv4/ip_forward")?;
    received(cluster, &FindingNews::New, "pod-network-setup")?;
    host.run(&[CTL, "highstate", WORKER])?;
    received(cluster, &FindingNews::Resolved, "pod-network-setup")?;

    worker.run(&["systemctl", "stop", "containerd"])?;
    let found = received(cluster, &FindingNews::New, "nodes");
    // While the webhook is down, the master keeps what it has to say.
    host.run(&["systemctl", "stop", UNIT])?;
    worker.run(&["systemctl", "start", "containerd"])?;
    found?;
    std::thread::sleep(NOTICED);
    let missed = last(cluster, &FindingNews::Resolved, "nodes")?;
    ensure!(!missed, "a stopped webhook has received something");
    start_again(cluster)?;
    received(cluster, &FindingNews::Resolved, "nodes")?;

    let name = status(cluster)?.cluster;
    host.sh(&format!(
        "mkdir -p {OLD} && touch {OLD}/{name}-20200101T000000Z.halite-backup"
    ))?;
    let own = fs::read_to_string(host.file(DOCUMENT))?;
    declare(cluster, "backup", &format!("{{directory: {OLD}}}"))?;
    received(cluster, &FindingNews::New, "backup")?;
    fs::write(host.file(DOCUMENT), own)?;
    received(cluster, &FindingNews::Resolved, "backup")?;

    declare(cluster, "certificates", "{renew: report}")?;
    lifetimes::set(cluster, Lifetimes::EndSoon)?;
    received(cluster, &FindingNews::New, "certificates-ending")?;
    host.run(&[CTL, "highstate"])?;
    received(cluster, &FindingNews::Resolved, "certificates-ending")?;
    Ok(())
}

/// Starts the webhook without forgetting what it has received.
fn start_again(cluster: &Cluster) -> Result<()> {
    let line = format!(
        "systemd-run --quiet --collect --unit={UNIT} \
         socat TCP-LISTEN:8099,bind=127.0.0.1,fork,reuseaddr EXEC:{HOOK}"
    );
    cluster.bootstrap.sh(&line).map(drop)
}

/// Waits until the webhook has received a finding of a check with this news.
fn received(cluster: &Cluster, news: &FindingNews, check: &str) -> Result<()> {
    let what = format!("the webhook to receive {check} as {news}");
    wait::until(&what, NOTICED + NOTICED, || {
        ensure!(last(cluster, news, check)?, "{}", log(cluster)?);
        Ok(())
    })
}

/// Returns whether the last news of a check that the webhook has received are these.
fn last(cluster: &Cluster, news: &FindingNews, check: &str) -> Result<bool> {
    let mut found = false;
    for line in log(cluster)?.lines() {
        let received: Notification = from_text(line).context("not a notification")?;
        let mut findings = received.findings.iter().filter(|one| one.check == check);
        found = findings.next_back().map_or(found, |one| one.news == *news);
    }
    Ok(found)
}

fn log(cluster: &Cluster) -> Result<String> {
    Ok(fs::read_to_string(cluster.bootstrap.file(RECEIVED))?)
}
