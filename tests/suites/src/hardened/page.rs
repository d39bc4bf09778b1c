//! The guide's page about hardening: its declarations, and its commands on a cluster with the
//! profile.

use anyhow::{Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;

use crate::encrypted::ENCRYPTED;
use crate::guide::{self, GuideWalk};
use crate::test::Counts;

/// The page, and the headings above the commands that are run here.
const PAGE: &str = "hardening.md";
const HEADINGS: [&str; 3] = ["## The profile", "## Audit", "## Encryption of Secrets"];

/// Parts of the blocks of commands, in order.
const APPLY: &str = "ctl highstate --test";
const POD_SECURITY: &str = "--dry-run=server";
const AUDIT: &str = "/var/log/kubernetes/audit/audit.log";
const ETCD: &str = "get /registry/secrets/default/login";

/// The section about the rotation, and its command.
const ROTATE: (&str, &str) = ("### Rotate the key", "ctl certs rotate encryption --yes");

/// The content of the page's Secret.
const PASSWORD: &str = "sesame";

/// The declaration of the profile.
///
/// # Errors
/// The page has none.
pub(super) fn profile() -> Result<String> {
    guide::block(PAGE, HEADINGS[0], "profile: hardened")
}

/// Each block of commands succeeds, and shows what the page says.
///
/// # Errors
/// The first block that does not.
pub(super) fn is_followed(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let mut page = GuideWalk::new(PAGE, &HEADINGS)?;
    page.run(host, APPLY)?;
    page.run(host, POD_SECURITY)?;
    let event = page.run(host, AUDIT)?;
    ensure!(
        event.contains("\"verb\":\"create\"") && !event.contains(PASSWORD),
        "the audit log has {event}"
    );
    is_ciphertext(&page.run(host, ETCD)?)?;
    page.end()?;
    Ok(Counts::ONE)
}

/// Rotates the key as the page says.
///
/// # Errors
/// The page has other commands, or one fails.
pub(super) fn rotates_the_key(host: &Host) -> Result<()> {
    let (heading, command) = ROTATE;
    let mut page = GuideWalk::new(PAGE, &[heading])?;
    page.run(host, command)?;
    page.end()
}

/// The command of the page still shows ciphertext of its Secret.
///
/// # Errors
/// It shows something else.
pub(super) fn shows_ciphertext(host: &Host) -> Result<()> {
    let block = guide::block(PAGE, HEADINGS[2], ETCD)?;
    is_ciphertext(&host.sh(&block)?)
}

fn is_ciphertext(shown: &str) -> Result<()> {
    ensure!(
        shown.contains(ENCRYPTED) && !shown.contains(PASSWORD),
        "etcd has {shown}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use halite_lab::cluster::CLUSTER;
    use halite_lab::layout::TWO;

    use super::*;
    use crate::shipped_tree::declaration;

    #[test]
    fn the_blocks_of_the_page_are_those_that_the_suite_runs() {
        let mut page = GuideWalk::new(PAGE, &HEADINGS).unwrap();
        for part in [APPLY, POD_SECURITY, AUDIT, ETCD] {
            page.next(part).unwrap();
        }
        page.end().unwrap();
        let (heading, command) = ROTATE;
        let mut page = GuideWalk::new(PAGE, &[heading]).unwrap();
        page.next(command).unwrap();
        page.end().unwrap();
    }

    #[test]
    fn each_declaration_of_the_page_is_valid() {
        let others = [
            "## Authentication",
            "## Admission, feature gates, files and patches",
        ];
        let headings = [&HEADINGS[..], &others].concat();
        let blocks = guide::blocks_below(PAGE, "yaml", &headings).unwrap();
        assert_eq!(blocks.len(), headings.len());
        for block in blocks {
            let own = "apiServer:\n";
            let document = match block.starts_with(own) {
                true => CLUSTER.replacen(own, &block, 1),
                false => format!("{CLUSTER}{block}"),
            };
            if let Err(error) = declaration(&document, &TWO) {
                panic!("{block}\n{error:#}");
            }
        }
    }
}
