//! All tests in their order.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::layout::TWO;
use halite_lab::progress::Board;
use halite_upstream::prepare;

use crate::day::{in_turn, today};
use crate::site::Site;
use crate::test::{Case, cases};
use crate::{
    addons, bundle, bundles, cluster, destroy, disaster, enrolment, etcd, external, firewall, ha,
    health, iso, keepalived, kills, kubeadm, lab_itself, limits, network, operator, packages,
    preflight, registry, repair, repository, roles, secret, site_registry, source, support, update,
    versions, vip,
};

/// Name of the suites' own lab, which differs from that of a demonstration.
const LAB: &str = "test";

/// The lab of the cluster suites. `HALITE_LAB_NAME` names a lab that already runs; use it with
/// `--keep`.
fn lab_name() -> String {
    std::env::var("HALITE_LAB_NAME").unwrap_or_else(|_| LAB.to_owned())
}

/// All tests, by where they run.
pub(crate) struct Plan {
    /// Those of the source tree.
    pub(crate) source: Vec<Case<()>>,
    /// Those that need no cluster.
    pub(crate) without_a_cluster: Vec<Case<()>>,
    /// The clusters with their tests.
    pub(crate) sites: Vec<Site>,
}

impl Plan {
    /// The tests of a usual run, or all of them.
    ///
    /// # Errors
    /// A numbered series cannot be made, or two tests have one name.
    pub(crate) fn new(full: bool) -> Result<Self> {
        let plan = Self {
            source: [source::TESTS, if full { source::FULL } else { &[] }]
                .into_iter()
                .flat_map(cases)
                .collect(),
            without_a_cluster: [
                lab_itself::TESTS,
                bundle::TESTS,
                iso::TESTS,
                packages::TESTS,
                keepalived::TESTS,
            ]
            .into_iter()
            .flat_map(cases)
            .collect(),
            sites: vec![versions::site(), ordinary(full)?, ha::site(full)?],
        };
        // A ledger knows a test by its name.
        let mut names = BTreeSet::new();
        for name in plan.names() {
            ensure!(names.insert(name.clone()), "two tests have the name {name}");
        }
        Ok(plan)
    }

    /// Orders the clusters for a day: the last may be skipped on a slow machine, so the long ones change places
    /// each day. The first one takes minutes only, and stays where it is.
    pub(crate) fn take_turns(&mut self, day: usize) {
        if let Some(long) = self.sites.get_mut(1..)
            && !long.is_empty()
        {
            long.rotate_left(day % long.len());
        }
    }

    /// The names of all tests, in an order that does not depend on the day.
    pub(crate) fn names(&self) -> Vec<String> {
        let hostless = self.source.iter().chain(&self.without_a_cluster);
        let hostless = hostless.map(|test| test.name.clone());
        let sites = self.sites.iter().flat_map(|site| &site.tests);
        hostless
            .chain(sites.map(|test| test.name.clone()))
            .collect()
    }
}

fn ordinary(full: bool) -> Result<Site> {
    Ok(Site {
        lab: lab_name(),
        made: "cluster: bootstrap and node add",
        layout: &TWO,
        make: |lab, layout| prepare::cluster(lab, layout, &Board::plain()),
        tests: on_cluster(full)?,
    })
}

/// The tests that share one cluster, in their order: tests that only read, tests that repair their
/// own damage, tests that cut power, one that makes the cluster again, and at the end a test that no
/// packet tried to leave the lab.
fn on_cluster(full: bool) -> Result<Vec<Case<Cluster>>> {
    let before = [
        cluster::TESTS,
        kubeadm::TESTS,
        firewall::TESTS,
        vip::TESTS,
        health::TESTS,
        support::TESTS,
        preflight::TESTS,
        operator::TESTS,
        enrolment::TESTS,
        update::TESTS,
        limits::TESTS,
        secret::TESTS,
        registry::TESTS,
        repository::TESTS,
        site_registry::TESTS,
        external::TESTS,
        versions::BESIDE,
        bundles::TESTS,
        addons::TESTS,
        network::TESTS,
        repair::TESTS,
    ];
    let (killed, restored, ends) = if full {
        let further = [support::FULL, limits::FULL, disaster::FULL];
        (
            further.into_iter().flat_map(cases).collect(),
            disaster::numbered(),
            destroy::numbered()?,
        )
    } else {
        (Vec::new(), Vec::new(), Vec::new())
    };
    let day = if full { None } else { Some(today()?) };
    let [roles, placements] = in_turn([roles::IN_TURN, etcd::IN_TURN], day);
    let before = before.into_iter().flat_map(cases);
    Ok(before
        .chain(kills::tests(full))
        .chain(killed)
        .chain(roles)
        .chain(cases(disaster::TESTS))
        .chain(restored)
        .chain(cases(destroy::TESTS))
        .chain(ends)
        .chain(cases(etcd::TESTS))
        .chain(placements)
        .chain(cases(cluster::AT_THE_END))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_clusters_change_places_each_day() {
        let labs = |day| {
            let mut plan = Plan::new(false).unwrap();
            plan.take_turns(day);
            let labs = plan.sites.into_iter().map(|site| site.lab);
            labs.collect::<Vec<_>>().join(" ")
        };
        let days = [0, 1, 2].map(labs);
        assert_eq!(
            days,
            ["versions test ha", "versions ha test", "versions test ha"]
        );
    }

    #[test]
    fn the_whole_plan_has_the_usual_tests_and_the_numbered_ones() {
        let usual = Plan::new(false).unwrap().names();
        let full = Plan::new(true).unwrap().names();
        // Those whose place in full is taken by more than the same.
        let part = |name: &&String| {
            let parts = ["of the day", "five of", "and replaces its host"];
            parts.iter().any(|part| name.contains(part))
        };
        let missing: Vec<&String> = (usual.iter())
            .filter(|name| !part(name) && !full.contains(name))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(
            full.len() > usual.len() + 200,
            "{} and {}",
            usual.len(),
            full.len()
        );
    }
}
