//! Notifications and metrics: findings of the real cluster reach webhooks and a Prometheus, and
//! resolve.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_api::{CheckState, FindingNews, Notification, NotifiedFinding, SinkList, from_text};
use halite_lab::cluster::{CTL, Cluster, DOCUMENT};
use halite_lab::host::Host;
use halite_lab::wait;

use super::prometheus::{AlertState, Prometheus};
use super::remedies::{command, found, is_gone};
use super::{findings, health, is_well, status};
use crate::ctl_answer;
use crate::declare::declare;
use crate::lifetimes;
use crate::lifetimes::Lifetimes;
use crate::test::Counts;

/// The webhooks' program, which socat runs for each connection with the name of the webhook. It
/// adds the body to that webhook's file, one on each line.
const HOOK: &str = "/root/webhook";
const SCRIPT: &str = r#"#!/bin/bash
length=0
while IFS= read -r line; do
  line=${line%$'\r'}
  [ -n "$line" ] || break
  case ${line,,} in content-length:*) length=${line#*: };; esac
done
body=$(head -c "$length")
printf '%s\n' "$body" >> "/root/webhook.$1.log"
printf 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'
"#;
/// The webhook that gets everything.
const ALL: Webhook = Webhook {
    name: "all",
    port: 8099,
};
/// The webhook that gets failures, and is down for a while. The finding that it is down is a
/// warning, so it gets nothing about itself.
const SEVERE: Webhook = Webhook {
    name: "severe",
    port: 8098,
};
/// The directory of a backup that is too old. The master sees no home directory.
const OLD: &str = "/srv/old-backups";
/// A finding needs two rounds of a minute, its resolution three; the kubelet, a minute to count as
/// not ready.
const NOTICED: Duration = Duration::from_secs(300);
/// An alert needs a round and a scrape; one of a failure fires two minutes later.
const ALERTED: Duration = Duration::from_secs(240);

/// Causes each finding: while it lasts, the webhook has it and an alert is there; afterwards, the
/// webhook has its resolution, and the alert is gone.
pub(super) fn everywhere(cluster: &Cluster) -> Result<Counts> {
    is_well(cluster)?;
    let host = &cluster.bootstrap;
    let before = fs::read_to_string(host.file(DOCUMENT))?;
    fs::write(host.file(HOOK), SCRIPT)?;
    host.sh(&format!("chmod +x {HOOK}; rm -f /root/webhook.*.log"))?;
    let tried = observed(cluster);
    fs::write(host.file(DOCUMENT), before)?;
    for hook in [ALL, SEVERE] {
        hook.stop(host)?;
    }
    host.sh(&format!("rm -rf {OLD} /root/webhook*"))?;
    Prometheus::remove(cluster)?;
    tried?;
    host.run(&[CTL, "highstate"])?;
    is_well(cluster)?;
    Ok(Counts {
        passed: 5,
        failed: 0,
    })
}

fn observed(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    for hook in [ALL, SEVERE] {
        hook.start(host)?;
    }
    let sinks = format!(
        "{{sinks: {{all: {{url: \"{}\"}}, severe: {{url: \"{}\", severity: failure}}}}}}",
        ALL.url(),
        SEVERE.url()
    );
    declare(cluster, "notify", &sinks)?;
    let prometheus = Prometheus::start(cluster)?;
    host.run(&[CTL, "notify", "test", ALL.name])?;
    ALL.received(host, &FindingNews::New, "test")?;
    at_once(cluster, &prometheus)?;
    during_an_outage(cluster, &prometheus)
}

/// A node without pod network, an overdue backup and an ending certificate.
fn at_once(cluster: &Cluster, prometheus: &Prometheus<'_>) -> Result<()> {
    const CHECKS: [&str; 3] = ["pod-network-setup", "backup", "certificates-ending"];
    let (host, worker) = (&cluster.bootstrap, &cluster.worker);
    let own = fs::read_to_string(host.file(DOCUMENT))?;
    let name = status(cluster)?.cluster;
    host.sh(&format!(
        "mkdir -p {OLD} && touch {OLD}/{name}-20200101T000000Z.halite-backup"
    ))?;
    declare(cluster, "certificates", "{renew: report}")?;
    declare(cluster, "backup", &format!("{{directory: {OLD}}}"))?;
    lifetimes::set(cluster, Lifetimes::EndSoon)?;
    worker.sh("echo 0 > /proc/sys/net/ipv4/ip_forward")?;
    for check in CHECKS {
        let finding = ALL.received(host, &FindingNews::New, check)?;
        prometheus.alerts(check, state(&finding), ALERTED)?;
    }
    remedied(cluster)?;
    fs::write(host.file(DOCUMENT), own)?;
    host.run(&[CTL, "highstate"])?;
    for check in CHECKS {
        ALL.received(host, &FindingNews::Resolved, check)?;
        prometheus.alerts(check, AlertState::Gone, ALERTED)?;
    }
    Ok(())
}

/// Runs the commands of the remedies: a new backup in the declared directory, and a highstate of
/// each host, which renews its certificates and lets its kernel forward packets.
fn remedied(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    let backup = found(cluster, "backup", OLD)?;
    host.sh(&command(&backup, "ctl backup create")?)?;
    is_gone(cluster, "backup")?;
    let (_, health) = health(cluster)?;
    let ending = findings(&health, "certificates-ending");
    let commands = ending.iter().map(|one| command(one, "ctl highstate "));
    let commands = commands.collect::<Result<BTreeSet<String>>>()?;
    ensure!(!commands.is_empty(), "no certificate ends: {health:#?}");
    for line in &commands {
        host.sh(line)?;
    }
    for check in [
        "certificates-ending",
        "certificates-renewed",
        "pod-network-setup",
    ] {
        is_gone(cluster, check)?;
    }
    Ok(())
}

/// A stopped containerd, which runs again while a webhook is down: that one gets the resolution
/// once it is back, and nothing twice.
fn during_an_outage(cluster: &Cluster, prometheus: &Prometheus<'_>) -> Result<()> {
    let (host, worker) = (&cluster.bootstrap, &cluster.worker);
    worker.run(&["systemctl", "stop", "containerd"])?;
    let found = ALL.received(host, &FindingNews::New, "nodes");
    let alerted = found.and_then(|finding| prometheus.alerts("nodes", state(&finding), ALERTED));
    let severe = SEVERE.received(host, &FindingNews::New, "nodes");
    SEVERE.stop(host)?;
    worker.run(&["systemctl", "start", "containerd"])?;
    alerted?;
    severe?;
    ALL.received(host, &FindingNews::Resolved, "nodes")?;
    prometheus.alerts("nodes", AlertState::Gone, ALERTED)?;
    wait::until(
        "the master to lack an answer of the webhook",
        NOTICED,
        || {
            let list: SinkList = ctl_answer::of(host, &["notify", "list"])?;
            let mut sinks = list.sinks.iter().filter(|sink| sink.name == SEVERE.name);
            let sink = sinks.next().context("the sink is not declared")?;
            // With no present finding, only a resolution can be due.
            ensure!(
                sink.findings == 0 && sink.failure.is_some(),
                "ctl notify list: {list:#?}"
            );
            Ok(())
        },
    )?;
    let known = SEVERE.notified(host)?.len();
    SEVERE.start(host)?;
    SEVERE.received(host, &FindingNews::Resolved, "nodes")?;
    let later = SEVERE.notified(host)?.split_off(known);
    let is_repeated = |one: &NotifiedFinding| one.check == "nodes" && one.news == FindingNews::New;
    ensure!(
        !later.iter().any(is_repeated),
        "the webhook got what it knew: {later:#?}"
    );
    Ok(())
}

/// The state of the alert about a finding. That of a warning fires only after a quarter of an hour.
fn state(finding: &NotifiedFinding) -> AlertState {
    match finding.severity {
        CheckState::Failure => AlertState::Firing,
        _ => AlertState::Pending,
    }
}

/// A webhook on the master's host.
struct Webhook {
    name: &'static str,
    port: u16,
}

impl Webhook {
    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Starts it; what it has received stays.
    fn start(&self, host: &Host) -> Result<()> {
        let Self { name, port } = self;
        host.sh(&format!(
            "systemd-run --quiet --collect --unit=lab-webhook-{name} \
             socat TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr EXEC:'{HOOK} {name}'"
        ))
        .map(drop)
    }

    /// Stops it if it runs.
    fn stop(&self, host: &Host) -> Result<()> {
        let unit = format!("lab-webhook-{}", self.name);
        host.sh(&format!(
            "! systemctl -q is-active {unit} || systemctl stop {unit}"
        ))
        .map(drop)
    }

    /// Waits until the last news of a check that it has received are these; returns the finding.
    fn received(&self, host: &Host, news: &FindingNews, check: &str) -> Result<NotifiedFinding> {
        let what = format!("the webhook {} to receive {check} as {news}", self.name);
        wait::until(&what, NOTICED + NOTICED, || {
            let all = self.notified(host)?;
            let last = all.iter().rfind(|one| one.check == check);
            let last = last.filter(|one| one.news == *news).cloned();
            last.with_context(|| format!("it has received {all:#?}"))
        })
    }

    /// The findings that it has received, in their order.
    fn notified(&self, host: &Host) -> Result<Vec<NotifiedFinding>> {
        let log = host.file(&format!("/root/webhook.{}.log", self.name));
        let mut findings = Vec::new();
        // It has received nothing yet.
        if !log.exists() {
            return Ok(findings);
        }
        for line in fs::read_to_string(log)?.lines() {
            let received: Notification = from_text(line).context("not a notification")?;
            findings.extend(received.findings);
        }
        Ok(findings)
    }
}
