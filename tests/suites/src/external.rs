//! External services of a cluster: certificates that hosts trust, mirrors of registries, a proxy,
//! time servers. When declared, all of them are used on both hosts; when removed from the document,
//! nothing of them is left on the hosts.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, Cluster, DOCUMENT, WORKER};
use halite_lab::host::Host;
use halite_lab::wait;
use halite_upstream::versions::BUSYBOX;

use super::repair::{highstate, pods, quiet, settled};
use super::site_registry::{forget, run_pod};
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "external services: declared ones are configured on both hosts, and used",
        run: declared,
    },
    Test {
        name: "external services: an outdated trust store is updated",
        run: lagging,
    },
    Test {
        name: "external services: removed ones leave nothing",
        run: taken_out,
    },
];

/// Directory with the document, and the hosts' state, before the tests.
const BEFORE: &str = "/root/before-outside";
/// Directory of the lab's mirror on its host.
const MIRROR: &str = "/root/mirror";
const PORT: u16 = 5443;
const PROXY: &str = "http://127.0.0.1:3128";
/// Log of the proxy's requests.
const ASKED: &str = "/root/asked-of-the-proxy";
/// An address that is on no network (RFC 5737).
const NOWHERE: &str = "192.0.2.9";
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
const READY: std::time::Duration = std::time::Duration::from_secs(90);

/// The state of a host at all paths where these settings are written.
fn found(host: &Host) -> Result<String> {
    host.sh(&format!(
        "sha256sum {BUNDLE}; find /etc/ssl/certs -type l -printf '%p %l\\n' | sort; \
         find /usr/local/share/ca-certificates /etc/containerd /etc/systemd/system/containerd.service.d -type f 2>/dev/null \
         | sort | xargs sha256sum; \
         find /etc/chrony/halite.conf /etc/systemd/system/chrony.service.d -type f 2>/dev/null; true"
    ))
}

/// Makes the lab's own certificate authority, and a registry with a certificate from it. Halite
/// manages neither.
fn mirror(host: &Host) -> Result<()> {
    let address = host.control_plane_address();
    host.sh(&format!(
        "mkdir -p {MIRROR} && cd {MIRROR} && \
         openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=corp -keyout ca.key -out ca.crt && \
         openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=mirror -keyout tls.key -out tls.csr && \
         printf 'subjectAltName=IP:{address}\\n' > san && \
         openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile san -out tls.crt"
    ))?;
    let configuration = format!(
        "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: {MIRROR}/data}}}}\n\
         http: {{addr: '{address}:{PORT}', tls: {{certificate: {MIRROR}/tls.crt, key: {MIRROR}/tls.key}}}}\n"
    );
    fs::write(host.file(&format!("{MIRROR}/config.yml")), configuration)?;
    // The port stays open until firewalld reloads.
    host.sh(&format!(
        "apt-get install -y -q distribution-registry >/dev/null 2>&1 && \
         systemd-run --quiet --collect --unit=lab-mirror -E OTEL_TRACES_EXPORTER=none registry serve {MIRROR}/config.yml && \
         firewall-cmd --quiet --add-port={PORT}/tcp"
    ))?;
    wait::until("the mirror to answer", READY, || {
        host.sh(&format!(
            "curl -sS --noproxy '*' --cacert {MIRROR}/ca.crt https://{address}:{PORT}/v2/"
        ))
    })?;
    let (source, image) = (
        format!("docker.io/library/busybox:{BUSYBOX}"),
        format!("{address}:{PORT}/team/tool:1"),
    );
    host.sh(&format!(
        "ctr -n k8s.io images pull --hosts-dir /etc/containerd/certs.d {source} >/dev/null && \
         ctr -n k8s.io images tag --force {source} {image} >/dev/null && \
         ctr -n k8s.io images push --local --tlscacert {MIRROR}/ca.crt {image} >/dev/null"
    ))?;
    forget(host, &image)
}

/// Makes a host's chrony unable to set the clock: the lab's hosts share the machine's clock.
pub(super) fn harmless_chrony(host: &Host) -> Result<()> {
    let status = host.sh("grep CapBnd /proc/1/status")?;
    let capabilities = status
        .split_whitespace()
        .last()
        .context("no capabilities")?;
    let may_set = u64::from_str_radix(capabilities, 16)? >> 25 & 1 == 1;
    ensure!(
        !may_set,
        "{} could set the machine's clock: boot the lab again",
        host.spec.name
    );
    host.sh("mkdir -p /etc/systemd/system/chrony.service.d && \
         printf '[Unit]\\nConditionCapability=\\n' > /etc/systemd/system/chrony.service.d/lab.conf && \
         printf 'DAEMON_OPTS=\"-F 1 -x\"\\n' > /etc/default/chrony")?;
    Ok(())
}

/// Runs a proxy that logs each request and refuses it.
fn proxy(host: &Host) -> Result<()> {
    let answer = format!("head -n 1 >> {ASKED}; printf \"HTTP/1.1 403 Forbidden\\r\\n\\r\\n\"");
    fs::write(host.file("/root/proxy"), format!("#!/bin/sh\n{answer}\n"))?;
    host.sh(&format!(
        "chmod +x /root/proxy; : > {ASKED}; \
         systemd-run --quiet --collect --unit=lab-proxy socat TCP-LISTEN:3128,bind=127.0.0.1,fork,reuseaddr EXEC:/root/proxy"
    ))?;
    Ok(())
}

fn document(before: &str, certificate: &str, mirror: &str, time: &str) -> Result<String> {
    let certificate = serde_json::to_string(certificate)?;
    let registries = format!(
        "{{mirrored.corp: {{mirrors: [\"https://{mirror}\"]}}, docker.io: {{mirrors: [\"https://{mirror}\"]}}, \
         outside.corp: {{mirrors: [\"https://{NOWHERE}\"]}}}}"
    );
    let mut text = before.to_owned();
    for (section, line) in [
        ("containerd:\n", format!("  registries: {registries}\n")),
        ("host:\n", "  manageTime: true\n".to_owned()),
    ] {
        ensure!(
            text.contains(section),
            "the document has no {section:?}: {text}"
        );
        text = text.replacen(section, &format!("{section}{line}"), 1);
    }
    Ok(format!(
        "{text}trust: {{certificates: {{corp: {certificate}}}}}\nproxy: {{http: {PROXY}, https: {PROXY}, noProxy: [.corp]}}\n\
         time: {{servers: [{time}]}}\n"
    ))
}

fn pull(host: &Host, image: &str) -> Result<String> {
    host.sh(&format!(
        "ctr -n k8s.io images pull --hosts-dir /etc/containerd/certs.d {image} 2>&1"
    ))
}

fn declared(cluster: &Cluster) -> Result<Counts> {
    let before = fs::read_to_string(cluster.bootstrap.file(DOCUMENT))?;
    fs::write(cluster.bootstrap.file(BEFORE), &before)?;
    for host in cluster.hosts() {
        fs::write(
            host.file(&format!("{BEFORE}.{}", host.spec.name)),
            found(host)?,
        )?;
        harmless_chrony(host)?;
        proxy(host)?;
    }
    mirror(&cluster.worker)?;
    let certificate = fs::read_to_string(cluster.worker.file(&format!("{MIRROR}/ca.crt")))?;
    let address = format!("{}:{PORT}", cluster.worker.control_plane_address());
    let time = cluster.bootstrap.control_plane_address();
    fs::write(
        cluster.bootstrap.file(DOCUMENT),
        document(&before, &certificate, &address, &time)?,
    )?;
    let running = pods(cluster)?;
    highstate(cluster, &[])?;
    quiet(cluster)?;
    for host in cluster.hosts() {
        on_host(host, &address, &certificate, &time)
            .with_context(|| format!("on {}", host.spec.name))?;
    }
    let image = "mirrored.corp/team/tool:1";
    for node in [BOOTSTRAP, WORKER] {
        let said = run_pod(cluster, "mirrored", node, image, None)?;
        ensure!(said.trim() == "it runs", "on {node}: {said:?}");
    }
    // Images of the bundle came from the bundle; the others were requested from the mirror.
    let log = cluster
        .worker
        .sh("journalctl -q --no-pager -o cat -u lab-mirror")?;
    ensure!(
        log.contains("team/tool") && !log.contains("library/busybox"),
        "{log}"
    );
    settled(cluster, running)?;
    Ok(Counts {
        passed: 4,
        failed: 0,
    })
}

fn on_host(host: &Host, mirror: &str, certificate: &str, time: &str) -> Result<()> {
    // Verify through the directory of hashes, and through the single file of certificates.
    fs::write(host.file("/root/corp.crt"), certificate)?;
    host.sh(
        "openssl verify -no-CAfile -CApath /etc/ssl/certs /root/corp.crt && rm /root/corp.crt",
    )?;
    host.sh(&format!(
        "curl -sS --fail --noproxy '*' https://{mirror}/v2/"
    ))?;

    let environment =
        host.sh("tr '\\0' '\\n' < /proc/$(systemctl show -p MainPID --value containerd)/environ")?;
    for part in [
        "HTTP_PROXY=http://127.0.0.1:3128\n",
        "HTTPS_PROXY=http://127.0.0.1:3128\n",
        "NO_PROXY=localhost,127.0.0.0/8,10.10.0.0/24,10.10.1.0/24,10.20.0.0/24,10.233.0.0/16,10.96.0.0/12,10.10.0.100,\
         api.demo.internal,.svc,.cluster.local,.corp\n",
    ] {
        ensure!(
            environment.contains(part),
            "{part:?} is not in {environment}"
        );
    }
    for unit in ["kubelet", "halite-minion"] {
        let other = host.sh(&format!(
            "tr '\\0' '\\n' < /proc/$(systemctl show -p MainPID --value {unit})/environ"
        ))?;
        ensure!(!other.contains("_PROXY="), "{unit}: {other}");
    }
    // One registry of the bundle, one of the mirror, and one that only the proxy could reach.
    let busybox = format!("docker.io/library/busybox:{BUSYBOX}");
    forget(host, &busybox)?;
    pull(host, &busybox)?;
    forget(host, "mirrored.corp/team/tool:1")?;
    pull(host, "mirrored.corp/team/tool:1")?;
    let asked = host.sh(&format!("cat {ASKED}"))?;
    ensure!(
        asked.is_empty(),
        "the proxy was asked for artifacts of the site: {asked}"
    );
    ensure!(
        pull(host, "outside.corp/team/tool:1").is_err(),
        "there is no connection to the outside"
    );
    let asked = host.sh(&format!("cat {ASKED}"))?;
    let all = asked
        .lines()
        .all(|line| line.starts_with(&format!("CONNECT {NOWHERE}:443 ")));
    ensure!(all && !asked.is_empty(), "the proxy was asked: {asked}");

    let parsed = host.sh("chronyd -p -f /etc/chrony/halite.conf")?;
    let servers: Vec<&str> = parsed
        .lines()
        .filter(|line| line.starts_with("server") || line.starts_with("pool"))
        .collect();
    ensure!(servers == [format!("server {time} iburst")], "{parsed}");
    let command =
        host.sh("tr '\\0' ' ' < /proc/$(systemctl show -p MainPID --value chrony)/cmdline")?;
    ensure!(
        command.trim() == "/usr/sbin/chronyd -F 1 -x -f /etc/chrony/halite.conf",
        "{command}"
    );
    let sources = host.sh("chronyc -n -c sources")?;
    let sources: Vec<&str> = sources
        .lines()
        .filter_map(|line| line.split(',').nth(2))
        .collect();
    ensure!(sources == [time], "chrony asks {sources:?}");
    Ok(())
}

fn lagging(cluster: &Cluster) -> Result<Counts> {
    let worker = &cluster.worker;
    let whole = worker.sh(&format!("cat {BUNDLE}"))?;
    let place = "/usr/local/share/ca-certificates/halite/halite-corp.crt";
    // A run interrupted between the two leaves this: the file exists, and no program has read it.
    worker.sh(&format!(
        "mv {place} /root/corp.crt && update-ca-certificates >/dev/null 2>&1 && mv /root/corp.crt {place}"
    ))?;
    ensure!(
        worker.sh(&format!("cat {BUNDLE}"))? != whole,
        "it is not outdated"
    );
    let planned = highstate(cluster, &["--test"])?.changed;
    let repaired = highstate(cluster, &[])?.changed;
    let wanted = ["[trust-store-whole]", "service.running containerd "];
    let only = wanted.iter().all(|part| {
        repaired
            .iter()
            .any(|tag| tag.starts_with(WORKER) && tag.contains(part))
    });
    ensure!(only && repaired.len() == wanted.len(), "{repaired:#?}");
    ensure!(
        repaired.is_subset(&planned),
        "{repaired:#?}, but the plan was {planned:#?}"
    );
    ensure!(
        worker.sh(&format!("cat {BUNDLE}"))? == whole,
        "{BUNDLE} has changed"
    );
    quiet(cluster)?;
    Ok(Counts::ONE)
}

fn taken_out(cluster: &Cluster) -> Result<Counts> {
    let running = pods(cluster)?;
    let before = fs::read_to_string(cluster.bootstrap.file(BEFORE))?;
    fs::write(cluster.bootstrap.file(DOCUMENT), before)?;
    highstate(cluster, &[])?;
    quiet(cluster)?;
    for host in cluster.hosts() {
        let name = &host.spec.name;
        // With the configuration of its package, chrony would query servers on the internet.
        let chrony = host.sh("systemctl is-active chrony; systemctl is-enabled chrony; true")?;
        ensure!(
            chrony.split_whitespace().eq(["inactive", "disabled"]),
            "on {name}: {chrony}"
        );
        host.sh(
            "systemctl stop lab-proxy; apt-get purge -y -q chrony >/dev/null 2>&1; \
             rm -rf /etc/systemd/system/chrony.service.d /etc/default/chrony /etc/chrony /root/proxy; systemctl daemon-reload",
        )?;
        let environment = host
            .sh("tr '\\0' '\\n' < /proc/$(systemctl show -p MainPID --value containerd)/environ")?;
        ensure!(!environment.contains("PROXY"), "on {name}: {environment}");
        let was = fs::read_to_string(host.file(&format!("{BEFORE}.{name}")))?;
        let is = found(host)?;
        ensure!(is == was, "on {name} there was {was}\nand there is {is}");
        forget(host, "mirrored.corp/team/tool:1")?;
        ensure!(
            pull(host, "mirrored.corp/team/tool:1").is_err(),
            "on {name} the mirror is still used"
        );
        host.sh(&format!("rm -f {BEFORE}* {ASKED}"))?;
    }
    cluster.worker.sh(&format!(
        "systemctl stop lab-mirror; firewall-cmd --quiet --remove-port={PORT}/tcp; rm -rf {MIRROR}; \
         apt-get purge -y -q distribution-registry >/dev/null 2>&1"
    ))?;
    settled(cluster, running)?;
    Ok(Counts::ONE)
}
