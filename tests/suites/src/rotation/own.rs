//! Halite's own CAs are replaced: those of identities and of the site's servers.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use halite_api::CertificateList;
use halite_lab::cluster::{CTL, Cluster};
use halite_lab::host::Host;
use halite_lab::wait;

use super::{page, rotate, writing};
use crate::test::Counts;

/// The file of an operator, which `ctl` updates, and a directory with the same, which it does not.
const FILE: &str = "/root/rotation/carol.pem";
const OLD: &str = "/root/rotation/carol";
/// The commands of the guide's page.
const SCRIPT: &str = "/root/rotation/halite.sh";
/// The identity of root on a control plane.
pub(super) const ROOT: &str = "/etc/halite/operator";
/// The CAs that a minion trusts.
pub(super) const MINION_CA: &str = "/var/lib/halite/minion/ca.crt";
pub(super) const SITE_CA: &str = "/etc/halite/pki/site-ca.crt";
/// Limit for a stage to reach both hosts.
const STAGE: Duration = Duration::from_secs(180);

/// The number of certificates in a file.
fn count(host: &Host, file: &str) -> Result<usize> {
    Ok(host.run(&["cat", file])?.matches("BEGIN").count())
}

/// Runs a command of an operator, with the identity in this file or directory.
pub(super) fn with_identity(host: &Host, identity: &str) -> Result<()> {
    host.run(&[CTL, "--identity", identity, "job", "list"])?;
    Ok(())
}

/// Runs a command with the certificate from before.
fn with_old_certificate(host: &Host) -> Result<()> {
    with_identity(host, OLD)
}

/// The CAs of a name, as `ctl certs list` shows them.
fn listed(host: &Host, name: &str) -> Result<usize> {
    // The exit code is 1 while a host does not answer.
    let text = host.sh(&format!("{CTL} certs list -o json || true"))?;
    let list: CertificateList = serde_json::from_str(&text)?;
    Ok((list.authorities.iter())
        .filter(|ca| ca.name == name)
        .count())
}

pub(super) fn identities(cluster: &Cluster) -> Result<Counts> {
    writing(cluster, "halite", || identities_are_replaced(cluster))?;
    Ok(Counts::ONE)
}

fn identities_are_replaced(cluster: &Cluster) -> Result<()> {
    let (host, worker) = (&cluster.bootstrap, &cluster.worker);
    host.sh(&format!(
        "mkdir -p {OLD} && {CTL} operator create carol --role viewer --out {FILE} && openssl pkey -in {FILE} -out {OLD}/operator.key && \
         openssl x509 -in {FILE} -out {OLD}/operator.crt && awk '/BEGIN CERTIFICATE/ {{ n++ }} n == 2' {FILE} > {OLD}/ca.crt"
    ))?;
    let before = worker.run(&["cat", MINION_CA])?;
    // The worker is off when the rotation begins, which waits for it.
    worker.run(&["systemctl", "stop", "halite-minion"])?;
    fs::write(host.file(SCRIPT), page::IDENTITIES.scripts()?.concat())?;
    host.sh(&format!(
        "systemd-run --quiet --unit=rotation-halite --remain-after-exit sh {SCRIPT}"
    ))?;
    wait::until("two CAs of identities", STAGE, || {
        let number = listed(host, "halite")?;
        ensure!(number == 2, "{number} CAs");
        Ok(())
    })?;
    wait::until(
        "the minion of the master's host to trust both",
        STAGE,
        || {
            let number = count(host, MINION_CA)?;
            ensure!(number == 2, "{number} CAs");
            Ok(())
        },
    )?;
    with_old_certificate(host)?;
    ensure!(
        worker.run(&["cat", MINION_CA])? == before,
        "the worker is on"
    );
    let findings = host.sh(&format!("{CTL} health -o json || true"))?;
    ensure!(
        findings.contains("the rotation of the CA halite has not ended"),
        "{findings}"
    );
    worker.run(&["systemctl", "start", "halite-minion"])?;
    // The new one signs, and the run waits for the operator.
    wait::until("the new CA to sign", STAGE, || {
        let number = count(worker, MINION_CA)?;
        ensure!(number == 2, "{number} CAs");
        let first = worker.sh(&format!(
            "openssl x509 -in {MINION_CA} -noout -fingerprint -sha256"
        ))?;
        let old = format!("printf %s '{before}' | openssl x509 -noout -fingerprint -sha256");
        ensure!(first != worker.sh(&old)?, "the old one is the first");
        Ok(())
    })?;
    with_old_certificate(host)?;
    let active = "systemctl show --property=SubState --value rotation-halite";
    ensure!(
        host.sh(active)?.trim() == "running",
        "the run has not waited"
    );
    // Any command of the operator.
    with_identity(host, FILE)?;
    wait::until("the rotation to end", STAGE, || {
        let state = host.sh(active)?;
        ensure!(state.trim() != "running", "it is running");
        Ok(())
    })?;
    let result = host.sh("systemctl show --property=Result --value rotation-halite")?;
    host.sh("systemctl stop rotation-halite 2>/dev/null; true")?;
    ensure!(
        result.trim() == "success",
        "the rotation has failed: {result}"
    );
    identities_are_new(cluster, &before)?;
    ensure!(
        with_old_certificate(host).is_err(),
        "the old certificate is accepted"
    );
    for identity in [FILE, ROOT] {
        with_identity(host, identity)?;
    }
    host.run(&[CTL, "operator", "revoke", "carol", "--yes"])?;
    host.run(&[CTL, "cmd", "*", "--", "true"])?;
    Ok(())
}

/// Checks that each minion trusts only the new CA, which has signed its certificate. `before` is
/// the CA that was replaced.
pub(super) fn identities_are_new(cluster: &Cluster, before: &str) -> Result<()> {
    let number = listed(&cluster.bootstrap, "halite")?;
    ensure!(number == 1, "{number} CAs of identities");
    for each in cluster.hosts() {
        let now = each.run(&["cat", MINION_CA])?;
        ensure!(
            now != before && now.matches("BEGIN").count() == 1,
            "{}: {now}",
            each.spec.name
        );
        let verified =
            format!("openssl verify -CAfile {MINION_CA} /var/lib/halite/minion/identity.crt");
        each.sh(&verified)?;
    }
    Ok(())
}

pub(super) fn servers(cluster: &Cluster) -> Result<Counts> {
    let before = cluster.worker.run(&["cat", SITE_CA])?;
    let host = &cluster.bootstrap;
    writing(cluster, "site", || rotate(host, "site", &[]))?;
    servers_are_new(cluster, &before)?;
    Ok(Counts::ONE)
}

/// Checks that each host trusts only the new CA of servers, and fetches from the bundle server by
/// it. `before` is the CA that was replaced.
pub(super) fn servers_are_new(cluster: &Cluster, before: &str) -> Result<()> {
    let address = cluster.bootstrap.control_plane_address();
    for host in cluster.hosts() {
        let now = host.run(&["cat", SITE_CA])?;
        ensure!(
            now != before && now.matches("BEGIN").count() == 1,
            "{}: {now}",
            host.spec.name
        );
        host.sh(&format!(
            "curl --silent --show-error --fail --noproxy '*' --cacert {SITE_CA} --output /dev/null https://{address}:4551/join"
        ))?;
    }
    Ok(())
}
