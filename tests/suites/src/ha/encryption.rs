//! Encryption of Secrets on three control planes that run: it begins, and the key is rotated, while
//! a client writes.

use std::fs;

use anyhow::{Result, ensure};
use halite_api::{CheckState, Health};
use halite_lab::cluster::{CTL, Cluster, DOCUMENT};

use super::fewer::as_before;
use super::losses::{GAP, at_the_vip};
use crate::ctl_answer;
use crate::encrypted::{has_only, is_encrypted_with, is_plain_text, make_secret, writer};
use crate::test::{Counts, Test};

/// Tests that leave the cluster as it was, except for its keys.
pub(super) const TESTS: &[Test<Cluster>] = &[Test {
    name: "ha: encryption begins on three control planes and its key is rotated, and no write is lost",
    run: begins_and_is_rotated,
}];

/// The section of the document, and the same with encryption.
const PLAIN: &str = "apiServer:\n";
const ENCRYPTED: &str = "apiServer:\n  encryption: {}\n";
const ROTATE: [&str; 5] = [CTL, "certs", "rotate", "encryption", "--yes"];

fn begins_and_is_rotated(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    make_secret(cluster)?;
    is_plain_text(cluster)?;
    replace(cluster, PLAIN, ENCRYPTED)?;
    first.run(&[CTL, "highstate"])?;
    is_plain_text(cluster)?;
    ensure!(
        check(cluster)? == CheckState::Warning,
        "no finding says that nothing is encrypted yet"
    );
    let mut older = String::new();
    let measured = at_the_vip(cluster, first, "keys", || {
        first.run(&ROTATE)?;
        older = writer(first)?;
        is_encrypted_with(cluster, &older)?;
        first.run(&ROTATE)?;
        Ok(())
    })?;
    measured.check("the key is rotated", GAP)?;
    let newer = writer(first)?;
    is_encrypted_with(cluster, &newer)?;
    for host in cluster.control_planes() {
        has_only(host, &newer, &older)?;
    }
    ensure!(check(cluster)? == CheckState::Good, "a finding is left");
    as_before(cluster)?;

    // Plain text again, as the guide says.
    replace(
        cluster,
        ENCRYPTED,
        "apiServer:\n  encryption: {resources: []}\n",
    )?;
    first.run(&[CTL, "highstate"])?;
    first.run(&ROTATE)?;
    is_plain_text(cluster)?;
    replace(cluster, "  encryption: {resources: []}\n", "")?;
    first.run(&[CTL, "highstate"])?;
    as_before(cluster)
}

/// Replaces a text of the cluster document.
fn replace(cluster: &Cluster, from: &str, to: &str) -> Result<()> {
    let file = cluster.bootstrap.file(DOCUMENT);
    let text = fs::read_to_string(&file)?;
    ensure!(text.contains(from), "the document has no {from:?}");
    Ok(fs::write(&file, text.replacen(from, to, 1))?)
}

/// The result of the check of encryption. The pod of an API server that has just restarted may be
/// another check's failure.
fn check(cluster: &Cluster) -> Result<CheckState> {
    let (_, health): (_, Health) = ctl_answer::in_any_case(&cluster.bootstrap, &["health"])?;
    let mut checks = health.checks.into_iter();
    let check = checks.find(|check| check.name == "encryption");
    Ok(check.map_or(CheckState::Failure, |check| check.state))
}
