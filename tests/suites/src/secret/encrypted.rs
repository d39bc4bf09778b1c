//! The guide's page about secrets at rest, on the secret of a manifest.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use halite_lab::cluster::{CTL, Cluster, DOCUMENT};
use halite_lab::wait;

use super::{FILE, HEADING, NAME, NAMESPACE, PAGE, VALUE, holders};
use crate::guide;
use crate::guide::GuideWalk;
use crate::repair::{highstate, quiet};
use crate::test::Counts;

/// The page, and the headings above the commands that are run here.
const SECRETS: &str = "secrets.md";
const HEADINGS: [&str; 3] = [
    "## Encrypt the values",
    "## Change a value",
    "## Replace the identity",
];
/// Parts of their blocks, in order. The second one is run with an editor that needs no keyboard.
const ENCRYPT: &str = "ctl secrets encrypt\n";
const EDIT: &str = "ctl secrets edit";
const ROTATE: &str = "ctl certs rotate secrets --yes";
const CHANGED: &str = "a-third-word-of-no-dictionary";
/// Limit for a restart of the master.
const SOON: Duration = Duration::from_secs(60);
const IDENTITY: &str = "/var/lib/halite/master/secrets/identity";
/// Removes the files that a site without encrypted secrets does not have.
const FILES: &str = "rm -rf /etc/halite/secrets.yaml.age /etc/halite/secrets.recipients /var/lib/halite/master/secrets";

pub(super) fn encrypted(cluster: &Cluster) -> Result<Counts> {
    // The last addition may still move pods.
    wait::until("the cluster to settle", SOON, || quiet(cluster))?;
    let file = cluster.bootstrap.file(DOCUMENT);
    let before = fs::read_to_string(&file)?;
    let secrets = guide::block(PAGE, HEADING, "\nsecrets:")?;
    ensure!(!before.contains("\nsecrets:"), "the site has secrets");
    let manifest = format!("/etc/halite/custom/manifests/{FILE}");
    guide::own_manifest(cluster, FILE, &guide::block(PAGE, HEADING, &manifest)?)?;
    fs::write(&file, format!("{before}{}", secrets.replace('…', VALUE)))?;
    let result = is_followed(cluster);
    fs::write(&file, before)?;
    cluster.bootstrap.sh(FILES)?;
    guide::no_own_states(cluster)?;
    let removed = highstate(cluster, &[]);
    result?;
    removed?;
    quiet(cluster)?;
    Ok(Counts {
        passed: 4,
        failed: 0,
    })
}

fn is_followed(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    let mut page = GuideWalk::new(SECRETS, &HEADINGS)?;
    let shown = page.run(host, ENCRYPT)?;
    ensure!(
        !shown.contains(VALUE) && shown.contains("age1"),
        "the commands show {shown}"
    );
    is_applied(cluster, VALUE)?;
    let edit = page.next(EDIT)?;
    host.sh(&format!(
        "export EDITOR='sed -i s/{VALUE}/{CHANGED}/'\n{edit}"
    ))?;
    is_applied(cluster, CHANGED)?;
    page.run(host, ROTATE)?;
    is_applied(cluster, CHANGED)?;
    page.end()?;
    is_reported_without_identity(cluster)
}

/// The object has the value, and no file of a host has it.
fn is_applied(cluster: &Cluster, value: &str) -> Result<()> {
    highstate(cluster, &[])?;
    let template = "-o=go-template={{.data.password | base64decode}}";
    let held = cluster.kubectl(&["-n", NAMESPACE, "get", "secret", NAME, template])?;
    ensure!(held == value, "the secret holds {held:?}");
    quiet(cluster)?;
    for host in cluster.hosts() {
        let found = holders(host, value)?;
        ensure!(found.is_empty(), "on {}: {found:?}", host.spec.name);
    }
    Ok(())
}

/// A master that starts without its identity says so, and works again once it is back.
fn is_reported_without_identity(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    host.sh(&format!(
        "mv {IDENTITY} {IDENTITY}.aside && systemctl restart halite-master"
    ))?;
    let shown = wait::until("the master to answer", SOON, || {
        let output = host.output(&[CTL, "status"])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(text.contains("is missing on this host"), "{text}");
        Ok(text)
    });
    host.sh(&format!("mv {IDENTITY}.aside {IDENTITY}"))?;
    let shown = shown?;
    ensure!(
        shown.contains("ctl secrets recover --key FILE"),
        "no remedy in {shown}"
    );
    quiet(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_of_the_page_are_those_that_the_suite_runs() {
        let mut page = GuideWalk::new(SECRETS, &HEADINGS).unwrap();
        for part in [ENCRYPT, EDIT, ROTATE] {
            page.next(part).unwrap();
        }
        page.end().unwrap();
    }
}
