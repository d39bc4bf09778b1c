//! All tests in order.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::layout::TWO;
use halite_upstream::versions::{FULL, NEWEST};

use crate::background::Background;
use crate::default_run::NAMES;
use crate::part::Planned;
use crate::report::suite_of;
use crate::runner::{Options, Runner};
use crate::site::{Site, from_the_iso};
use crate::test::{Case, cases, sequence};
use crate::watchdog::WHOLE;
use crate::{
    addons, bench, bundle, bundles, cluster, debian, destroy, disaster, enrolment, etcd, external,
    firewall, ha, hardened, health, hosts, iso, keepalived, kills, kubeadm, lab_itself, laws,
    limits, lived, minor, network, newer, older, operator, own_manifests, packages, preflight,
    registry, release, repair, repository, roles, rotation, runtime, secret, site_registry, source,
    support, turns, tutorial, update, usual, versions, vip,
};

/// Name of the suites' own lab, which differs from that of a demonstration.
const LAB: &str = "test";

/// The lab of the cluster suites. `HALITE_LAB_NAME` names a running lab; use it with `--keep`.
fn lab_name() -> String {
    std::env::var("HALITE_LAB_NAME").unwrap_or_else(|_| LAB.to_owned())
}

/// The time that a part has after the moment from which it starts no test: for the last test, with
/// its cluster and builds.
const LAST_OF_A_PART: Duration = Duration::from_secs(55 * 60);

/// Tests by the place where they run.
pub(crate) struct Plan {
    /// Tests of the source tree.
    pub(crate) source: Vec<Case<()>>,
    /// Tests that need no cluster.
    pub(crate) without_a_cluster: Vec<Case<()>>,
    /// The clusters with their tests.
    pub(crate) sites: Vec<Site>,
    /// Tests that the default run does in parallel with the clusters.
    pub(crate) beside: Vec<Case<Background>>,
}

impl Plan {
    /// All tests.
    ///
    /// # Errors
    /// A numbered series cannot be made, or two tests have one name.
    pub(crate) fn new() -> Result<Self> {
        let plan = Self {
            source: [source::TESTS, source::FULL]
                .into_iter()
                .flat_map(cases)
                .collect(),
            without_a_cluster: [
                lab_itself::TESTS,
                lab_itself::FULL,
                laws::FULL,
                bundle::TESTS,
                bundle::FULL,
                iso::TESTS,
                packages::TESTS,
                release::FULL,
                tutorial::FULL,
                lived::REFUSED,
                keepalived::TESTS,
                bench::FULL,
            ]
            .into_iter()
            .flat_map(cases)
            .collect(),
            sites: [ordinary()?, ha::site()?, versions::site(), hardened::site()]
                .into_iter()
                .chain(minor::sites())
                .chain(rotation::sites())
                .chain([
                    runtime::site(),
                    turns::site(),
                    older::site(),
                    newer::site(),
                    debian::site(),
                    debian::newer_site(),
                    lived::site(),
                ])
                .collect(),
            beside: cases(source::BESIDE),
        };
        // A ledger identifies a test by its name.
        let mut names = BTreeSet::new();
        for name in plan.names() {
            ensure!(names.insert(name.clone()), "two tests have the name {name}");
        }
        Ok(plan)
    }

    /// The fixed list of tests that each change must pass.
    ///
    /// # Errors
    /// As [`Plan::new`], or the list names a test that does not exist.
    pub(crate) fn default_run() -> Result<Self> {
        let mut plan = Self::new()?;
        let all: BTreeSet<String> = plan.names().into_iter().collect();
        for name in NAMES {
            ensure!(
                all.contains(*name),
                "the default run names {name}, which does not exist"
            );
        }
        let listed = |name: &str| NAMES.contains(&name);
        plan.source.retain(|test| listed(&test.name));
        plan.without_a_cluster.retain(|test| listed(&test.name));
        plan.beside.retain(|test| listed(&test.name));
        for site in &mut plan.sites {
            site.tests.retain(|test| listed(&test.name));
            // The parts that only a full bundle has are for the other tests.
            site.release = NEWEST;
        }
        plan.sites.retain(|site| !site.tests.is_empty());
        Ok(plan)
    }

    /// The tests of a run: all with `full`, else those of the default run.
    ///
    /// # Errors
    /// As [`Plan::default_run`], or the filter matches none of them.
    pub(crate) fn of(options: &Options) -> Result<Self> {
        let plan = if options.full {
            Self::new()?
        } else {
            Self::default_run()?
        };
        let wanted = |names: Vec<String>| names.iter().filter(|name| options.wants(name)).count();
        if wanted(plan.names()) == 0 {
            let filter = options.filter.join(" or ");
            let others = if options.full {
                0
            } else {
                wanted(Self::new()?.names())
            };
            ensure!(
                others == 0,
                "no test of the default run has {filter} in its name; --full has {others}"
            );
            bail!("no test has {filter} in its name");
        }
        Ok(plan)
    }

    /// The time after which a run with these options, builds included, has failed: a build that
    /// hangs is in no test's time. Other runs than the default one and parts have the sum of their
    /// tests' limits, if that is longer.
    pub(crate) fn limit(&self, options: &Options) -> Duration {
        if let Some((_, budget)) = options.part {
            return budget + LAST_OF_A_PART;
        }
        if options.is_default() {
            return WHOLE;
        }
        let names = self.names();
        let wanted = names.iter().filter(|name| options.wants(name));
        let limits: Duration = wanted.map(|name| usual::limit(name)).sum();
        limits.max(WHOLE)
    }

    /// Returns whether a wanted test needs the lab's ISO. Tests of the lab itself, of the laws and
    /// of the source tree do not.
    pub(crate) fn needs_an_iso(&self, runner: &Runner) -> bool {
        let on_sites = self.sites.iter().flat_map(|site| &site.tests);
        on_sites
            .map(|test| &test.name)
            .chain(self.without_a_cluster.iter().map(|test| &test.name))
            .any(|name| !matches!(suite_of(name), "lab" | "laws") && runner.wants(name))
    }

    /// The names of all tests, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.planned().into_iter().map(|test| test.name).collect()
    }

    /// The names under which the creation of the clusters is reported.
    pub(crate) fn made(&self) -> Vec<String> {
        self.sites.iter().map(|site| site.made.to_owned()).collect()
    }

    /// All tests with their usual times, in order.
    pub(crate) fn planned(&self) -> Vec<Planned> {
        let planned = |name: &str, follows| Planned {
            name: name.to_owned(),
            time: usual::time(name),
            follows,
        };
        let hostless = self.source.iter().chain(&self.without_a_cluster);
        let hostless = hostless.map(|test| planned(&test.name, test.follows));
        let sites = self.sites.iter().flat_map(|site| &site.tests);
        let sites = sites.map(|test| planned(&test.name, test.follows));
        let beside = self.beside.iter();
        let beside = beside.map(|test| planned(&test.name, test.follows));
        hostless.chain(sites).chain(beside).collect()
    }
}

fn ordinary() -> Result<Site> {
    Ok(Site {
        lab: lab_name(),
        made: "cluster: bootstrap and node add",
        layout: &TWO,
        release: FULL,
        make: from_the_iso,
        tests: on_cluster()?,
    })
}

/// The tests that share one cluster, in order: tests that only read, tests that repair their own
/// damage, tests that cut power, one that makes the cluster again, and at the end a test that no
/// packet tried to leave the lab.
fn on_cluster() -> Result<Vec<Case<Cluster>>> {
    // The tests of each table build on each other, except those of the last ones.
    let tables = [
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
        own_manifests::TESTS,
        registry::TESTS,
        repository::TESTS,
        site_registry::TESTS,
        external::TESTS,
        versions::BESIDE,
        bundles::TESTS,
        addons::TESTS,
        network::TESTS,
    ];
    let killed = [
        support::FULL,
        limits::FULL,
        disaster::FULL,
        roles::TESTS,
        disaster::TESTS,
        hosts::TESTS,
    ];
    let end = [
        destroy::TESTS,
        etcd::TESTS,
        etcd::PLACEMENTS,
        cluster::AT_THE_END,
    ];
    Ok(
        (tables.into_iter().flat_map(|table| sequence(cases(table))))
            .chain(cases(repair::TESTS))
            .chain(kills::tests())
            .chain(killed.into_iter().flat_map(cases))
            .chain(disaster::numbered())
            .chain(destroy::numbered()?)
            .chain(end.into_iter().flat_map(cases))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_run_has_exactly_its_list_in_its_order() {
        assert_eq!(Plan::default_run().unwrap().names(), NAMES);
    }

    #[test]
    fn the_default_run_is_a_small_part_of_all() {
        let all = Plan::new().unwrap().names();
        assert!(all.len() > NAMES.len() + 200, "{}", all.len());
    }

    #[test]
    fn each_run_has_an_end_and_its_tests_have_their_time() {
        let of = |options: Options| Plan::of(&options).unwrap().limit(&options);
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let part = |budget| Options {
            full: true,
            part: Some(("1/1".parse().unwrap(), budget)),
            ..Options::default()
        };
        let all = Options {
            full: true,
            ..Options::default()
        };
        let one = Options {
            filter: vec!["source: format".to_owned()],
            ..Options::default()
        };
        assert_eq!(of(Options::default()), minutes(85));
        assert_eq!(of(part(minutes(30))), minutes(85));
        assert_eq!(of(part(minutes(200))), minutes(255));
        assert_eq!(of(one), minutes(85));
        let usual: Duration = (Plan::new().unwrap().planned().iter())
            .map(|test| test.time)
            .sum();
        assert!(of(all) > 5 * usual, "{usual:?}");
    }
}
