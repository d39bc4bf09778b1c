//! Certificates that the master renews by itself on three control planes: they have expired while
//! the hosts were off, including those of minions and master, or they expire soon, and a client
//! writes.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_api::{CertificateList, HostCertificate, Job, JobList, Renewer};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use super::fewer::as_before;
use super::losses::{GAP, at_the_vip, wait_for_one_holder};
use super::{is_complete, same_content};
use crate::ctl_answer;
use crate::declare::declare;
use crate::guide::{self, GuideWalk};
use crate::health;
use crate::lifetimes::{self, Lifetimes};
use crate::test::{Counts, Test};

/// Tests that leave the cluster unchanged. They need the bundle of the first ISO.
pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "ha: certificates that expired while all hosts were off are renewed by commands if so declared",
        run: comes_back_by_hand,
    },
    Test {
        name: "ha: certificates that expire soon are renewed on one control plane after the other, and no write is lost",
        run: renewed_in_turn,
    },
    Test {
        name: "ha: the commands of the guide renew certificates on one control plane after the other, and no write is lost",
        run: renewed_by_the_guide,
    },
];

/// The page about the commands, and the headings above those that are run.
const PAGE: &str = "certificates.md";
const LIST_AND_RENEW: [&str; 2] = ["## List the certificates", "## Renew certificates now"];
/// Part of each of their blocks.
const BLOCKS: [&str; 2] = ["ctl certs list -o json", "ctl certs renew --yes"];
/// The least days for which a certificate that was renewed is valid: it may have been made a day
/// ago.
const RENEWED_DAYS: i64 = 363;

/// The heading of the guide's section.
const HEADING: &str = "## All certificates have expired";

/// Limit for four hosts to boot and enrol, for the control planes' programs to come out of the
/// kubelet's restart backoff, and for the worker after them.
const RENEWED: Duration = Duration::from_secs(720);

/// Texts of errors that name a certificate or a refused handshake: those of the client's library,
/// of Go's in an API server's message about etcd, and of an API server that does not accept the
/// client's certificate. A connection that ends in the middle of a handshake does not count: it has
/// met a program that stops or starts.
const OF_CERTIFICATES: [&str; 7] = [
    "certificate",
    "x509",
    "received fatal alert",
    "peer is incompatible",
    "peer misbehaved",
    "remote error: tls",
    "401 Unauthorized",
];

/// No command is run: the master starts, the minions enrol with their keys, the members of etcd,
/// which no longer accept each other, are renewed in parallel, and the API returns.
pub(super) fn comes_back(cluster: &Cluster) -> Result<Counts> {
    let names = off_for_long(cluster)?;
    guide::run(&cluster.bootstrap, HEADING, "ctl health")?;
    wait::until("the API to return", RENEWED, || is_complete(cluster))?;
    lifetimes::wait_until_renewed(cluster, RENEWED)?;
    for host in cluster.control_planes() {
        lifetimes::is_served(host)?;
    }
    let outcomes = lifetimes::outcomes(cluster)?;
    let renewed = |name: &String| {
        let mut lines = outcomes.iter();
        lines.any(|line| line.contains(name.as_str()) && line.ends_with(": ok"))
    };
    let missing: Vec<&String> = names.iter().filter(|name| !renewed(name)).collect();
    ensure!(missing.is_empty(), "{missing:?}: {outcomes:#?}");
    let said = guide::run(&cluster.bootstrap, HEADING, "ctl audit")?;
    ensure!(
        names.iter().all(|name| said.contains(name.as_str())),
        "{said}"
    );
    wait_for_one_holder(cluster)?;
    same_content(cluster)?;
    health::is_well(cluster)?;
    Ok(Counts::ONE)
}

/// The master only reports expired certificates if so declared, and the commands of the guide
/// renew them.
fn comes_back_by_hand(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    declare(cluster, "certificates", "{renew: report}")?;
    let before = renewals(first)?.into_iter().max();
    off_for_long(cluster)?;
    guide::run(first, HEADING, "halite-master init")?;
    // Minions enrol again at their own pace, and a missing host makes the command fail.
    wait::until("a highstate of all hosts", RENEWED, || {
        guide::run(first, HEADING, "ctl highstate")
    })?;
    wait::until("the API to return", RENEWED, || is_complete(cluster))?;
    lifetimes::wait_until_renewed(cluster, RENEWED)?;
    for host in cluster.control_planes() {
        lifetimes::is_served(host)?;
    }
    let last = renewals(first)?.into_iter().max();
    declare(cluster, "certificates", "")?;
    ensure!(last == before, "the master renewed them in job {last:?}");
    wait_for_one_holder(cluster)?;
    same_content(cluster)?;
    health::is_well(cluster)?;
    as_before(cluster)
}

/// Lets all certificates expire while all hosts are off. Returns the names of the hosts, which are
/// on again.
fn off_for_long(cluster: &Cluster) -> Result<Vec<String>> {
    let names: Vec<String> = (cluster.hosts().iter())
        .map(|host| host.spec.name.clone())
        .collect();
    lifetimes::set(cluster, Lifetimes::Ended)?;
    cluster.lab.power_off(&names, false)?;
    cluster.lab.power_on(&names)?;
    Ok(names)
}

/// Certificates that expire in two days are renewed without a command, on one control plane after
/// the other. A client writes all the time, and no write fails because of a certificate.
fn renewed_in_turn(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    lifetimes::set(cluster, Lifetimes::EndSoon)?;
    let newest = renewals(first)?.into_iter().max().unwrap_or_default();
    let measured = at_the_vip(cluster, first, "renewed", || {
        // It checks when it starts.
        first.run(&["systemctl", "restart", "halite-master"])?;
        lifetimes::wait_until_renewed(cluster, RENEWED)?;
        for host in cluster.control_planes() {
            lifetimes::is_served(host)?;
        }
        Ok(())
    })?;
    measured.check("certificates are renewed in turn", GAP)?;
    names_no_certificate(&measured.errors)?;
    are_in_turn(cluster, &newest)?;
    health::is_well(cluster)?;
    as_before(cluster)
}

/// Certificates that expire in two days are listed and renewed by the commands of the guide, while
/// the master only reports them: on one control plane after the other, and no write fails because
/// of a certificate.
fn renewed_by_the_guide(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    declare(cluster, "certificates", "{renew: report}")?;
    lifetimes::set(cluster, Lifetimes::EndSoon)?;
    let before: CertificateList = ctl_answer::of(first, &["certs", "list"])?;
    ensure!(before.silent.is_empty(), "{:?}", before.silent);
    ensure!(before.authorities.len() == 5, "{:?}", before.authorities);
    for host in cluster.hosts() {
        let due = renewed_by_operators(&before, &host.spec.name)?;
        let soon = due.iter().any(|one| one.days_left <= 2);
        ensure!(soon, "{}: {due:#?}", host.spec.name);
    }
    let newest = renewals(first)?.into_iter().max().unwrap_or_default();
    let measured = at_the_vip(cluster, first, "certs", || {
        let mut page = GuideWalk::new(PAGE, &LIST_AND_RENEW)?;
        for part in BLOCKS {
            page.run(first, part)?;
        }
        page.end()?;
        for host in cluster.control_planes() {
            lifetimes::is_served(host)?;
        }
        Ok(())
    })?;
    measured.check("certificates are renewed by the guide", GAP)?;
    names_no_certificate(&measured.errors)?;
    are_in_turn(cluster, &newest)?;
    let after: CertificateList = ctl_answer::of(first, &["certs", "list"])?;
    for host in cluster.hosts() {
        for one in renewed_by_operators(&after, &host.spec.name)? {
            let renewed = one.days_left >= RENEWED_DAYS && one.signed_by.is_some();
            ensure!(renewed, "{}: {one:?}", host.spec.name);
        }
    }
    lifetimes::wait_until_renewed(cluster, RENEWED)?;
    declare(cluster, "certificates", "")?;
    health::is_well(cluster)?;
    as_before(cluster)
}

/// The certificates of a host that an operator renews.
fn renewed_by_operators<'a>(
    list: &'a CertificateList,
    host: &str,
) -> Result<Vec<&'a HostCertificate>> {
    let own = list.hosts.iter().find(|own| own.host.as_str() == host);
    let own = own.with_context(|| format!("{host} is not in the list"))?;
    let all = own.certificates.iter();
    let found: Vec<&HostCertificate> = all
        .filter(|one| one.renewed_by == Renewer::Operator)
        .collect();
    ensure!(!found.is_empty(), "{host}: {:?}", own.certificates);
    Ok(found)
}

/// Fails if an error of a write names a certificate.
fn names_no_certificate(errors: &BTreeSet<String>) -> Result<()> {
    let named = errors.iter().find(|error| is_of_certificates(error));
    ensure!(
        named.is_none(),
        "a write failed because of a certificate: {named:?}, of {errors:?}"
    );
    Ok(())
}

/// Fails unless the renewals after the job `newest` worked on each control plane, one at a time.
fn are_in_turn(cluster: &Cluster, newest: &str) -> Result<()> {
    let mut new = renewals(&cluster.bootstrap)?;
    new.retain(|job| job.as_str() > newest);
    let mut turns = Vec::new();
    for job in new {
        turns.extend(turns_of(cluster, &job)?);
    }
    turns.sort();
    let hosts = cluster.control_planes().len();
    ensure!(
        turns.len() >= hosts,
        "fewer than {hosts} renewals: {turns:?}"
    );
    for (before, after) in turns.iter().zip(turns.iter().skip(1)) {
        ensure!(before.ended <= after.started, "two at a time: {turns:#?}");
    }
    Ok(())
}

/// Returns whether an error of a write names a certificate.
fn is_of_certificates(error: &str) -> bool {
    OF_CERTIFICATES.iter().any(|part| error.contains(part))
}

/// The ids of all renewals.
fn renewals(first: &Host) -> Result<Vec<String>> {
    let jobs: JobList = ctl_answer::of(first, &["job", "list", "--limit", "200"])?;
    let renewals = jobs.jobs.iter();
    let renewals = renewals.filter(|job| job.function == "state.certificates" && !job.test);
    Ok(renewals.map(|job| job.job.to_string()).collect())
}

/// The time in which a control plane was worked on; ordered by its start.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    started: String,
    ended: String,
    host: String,
}

/// The control planes of a job, with the times of their parts.
fn turns_of(cluster: &Cluster, job: &str) -> Result<Vec<Turn>> {
    let shown: Job = ctl_answer::of(&cluster.bootstrap, &["job", "show", job])?;
    let parts = shown.returns.context("a job without parts")?;
    let planes = cluster.control_planes();
    let mut turns = Vec::new();
    // One that was not sent was retried in another job.
    for part in parts {
        let Some(started) = part.started else {
            continue;
        };
        let ended = part.ended.context("a part that has not ended")?;
        let turn = Turn {
            started: started.to_string(),
            ended: ended.to_string(),
            host: part.minion.to_string(),
        };
        if planes.iter().any(|plane| plane.spec.name == turn.host) {
            turns.push(turn);
        }
    }
    Ok(turns)
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, CertificateError, Error};

    use super::{BLOCKS, LIST_AND_RENEW, PAGE, is_of_certificates};
    use crate::guide::{self, GuideWalk};

    #[test]
    fn the_page_has_the_commands_that_list_and_renew() {
        let mut page = GuideWalk::new(PAGE, &LIST_AND_RENEW).unwrap();
        for part in BLOCKS {
            page.next(part).unwrap();
        }
        page.end().unwrap();
        let blocks = guide::blocks_below(PAGE, "sh", &LIST_AND_RENEW).unwrap();
        let blocks = blocks.concat();
        for line in [
            "ctl certs list ",
            "ctl certs renew --test ",
            "ctl certs renew worker-1 --yes ",
            "ctl certs renew --yes ",
        ] {
            assert!(blocks.contains(line), "{line}");
        }
        let lines = blocks.lines().all(|line| line.starts_with("ctl certs "));
        assert!(lines, "{blocks}");
    }

    #[test]
    fn errors_of_certificates_are_told_from_those_of_connections() {
        let expired = Error::InvalidCertificate(CertificateError::Expired);
        let refused = Error::AlertReceived(AlertDescription::BadCertificate);
        for error in [
            format!("io: {expired}"),
            format!("io: {refused}"),
            "401 Unauthorized: Unauthorized".to_owned(),
            "500 Internal Server Error: transport: authentication handshake failed: tls: failed to verify \
             certificate: x509: certificate has expired"
                .to_owned(),
            "500 Internal Server Error: remote error: tls: handshake failure".to_owned(),
        ] {
            assert!(is_of_certificates(&error), "{error}");
        }
        for error in [
            "timeout: global",
            "io: Connection refused (os error 111)",
            "io: peer closed connection without sending TLS close_notify: \
             https://docs.rs/rustls/latest/rustls/manual/_03_howto/index.html#unexpected-eof",
            "500 Internal Server Error: etcdserver: leader changed",
            "500 Internal Server Error: transport: authentication handshake failed: EOF",
        ] {
            assert!(!is_of_certificates(error), "{error}");
        }
    }
}
