//! The part of the guide's page that upgrades a cluster.

use anyhow::Result;
use halite_lab::cluster::NEWER;
use halite_lab::host::Host;
use halite_upstream::ISO;
use halite_upstream::versions::{Release, UPGRADE_FROM};

use crate::guide::GuideWalk;

/// The page, and the heading above its commands.
const PAGE: &str = "upgrade.md";
const HEADINGS: [&str; 1] = ["## Step by step"];

/// Parts of its blocks after those of the variables, in order.
pub(super) const LOOK: &str = "ctl health --wait";
pub(super) const ADD: &str = "ctl bundle add $ISO";
pub(super) const PLAN: &str = "ctl upgrade $NEW --test";
pub(super) const UPGRADE: &str = "ctl upgrade $NEW --yes";
pub(super) const CHECK: &str = "ctl highstate --test --exit-code";
pub(super) const REMOVE: &str = "ctl bundle remove $OLD --yes";

/// The values of the page's variables in the lab, for the upgrade to this release.
fn values(newer: &Release) -> [(&'static str, String); 3] {
    [
        ("ISO", format!("{NEWER}/{ISO}")),
        ("OLD", UPGRADE_FROM.bundle()),
        ("NEW", newer.bundle()),
    ]
}

/// Begins to follow the page on a host, for the upgrade to this release.
///
/// # Errors
/// The page begins with other blocks.
pub(super) fn walk(host: &Host, newer: &Release) -> Result<GuideWalk> {
    GuideWalk::new(PAGE, &HEADINGS)?.with_variables(host, &values(newer))
}

#[cfg(test)]
mod tests {
    use halite_upstream::versions::UPGRADE_TO;

    use super::*;
    use crate::guide;

    #[test]
    fn the_blocks_of_the_page_are_those_that_the_suite_runs() {
        let mut page = GuideWalk::new(PAGE, &HEADINGS).unwrap();
        let variables = page.next("<<'END'").unwrap();
        guide::with_values(&variables, &values(&UPGRADE_TO)).unwrap();
        for part in [". ", LOOK, ADD, PLAN, UPGRADE, CHECK, REMOVE] {
            page.next(part).unwrap();
        }
        page.end().unwrap();
    }

    /// Its lines are read while it runs, so nothing else may print there.
    #[test]
    fn the_block_that_upgrades_has_one_command() {
        let blocks = guide::blocks_below(PAGE, "sh", &HEADINGS).unwrap();
        assert!(blocks.contains(&format!("{UPGRADE}\n")), "{blocks:?}");
    }
}
