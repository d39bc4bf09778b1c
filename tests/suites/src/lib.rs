//! All checks that a change must pass before it is merged, as named tests in a fixed order.

mod addons;
pub mod availability;
mod bare;
mod bundle;
mod bundles;
mod checks;
mod cluster;
mod day;
mod deadline;
mod destroy;
mod disaster;
mod enrolment;
mod etcd;
mod every_option;
mod explain;
mod external;
mod firewall;
mod guide;
pub mod ha;
mod health;
mod iso;
mod kills;
pub mod kubeadm;
mod lab_itself;
mod lifetimes;
mod limits;
mod network;
mod operator;
mod packages;
mod prebuild;
mod preflight;
mod registry;
mod repair;
mod repository;
mod runner;
mod secret;
mod site;
mod site_registry;
mod source;
mod table;
mod test;
mod update;
mod versions;
mod vip;

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use halite_lab::cluster::Cluster;
use halite_lab::layout::TWO;
use halite_lab::progress::Board;
use halite_lab::{dependencies, prerequisites};
use halite_upstream::prepare;
use runner::Runner;
use site::{Site, on_site};
use test::Test;

pub use iso::recipe_of;
pub use runner::{MINUTES, Options};

/// Name of the suites' own lab, which differs from that of a demonstration.
const LAB: &str = "test";

/// The lab of the cluster suites. `HALITE_LAB_NAME` names a lab that already runs; use it with
/// `--keep`.
fn lab_name() -> String {
    std::env::var("HALITE_LAB_NAME").unwrap_or_else(|_| LAB.to_owned())
}

/// Runs the suites; the last line that it prints is `N passed, N failed, N skipped`.
pub fn main(options: Options) -> Result<ExitCode> {
    if options.budget.is_some() {
        deadline::watch();
    }
    // Tests of the crates start real programs too: nginx, gpg, apt.
    prerequisites::ensure(&mut |line| println!("  {line}"))?;
    if let Err(error) = dependencies::restore() {
        println!("  dependencies are compiled again: {error:#}");
    }
    let is_whole = options.filter.is_empty();
    let prebuild = is_whole.then(prebuild::begin);
    let mut runner = Runner::new(options);
    let source = runner.run(source::TESTS, &());
    // Only after the lint too: it compiles the dependencies in its own way.
    if is_whole
        && source.failed == 0
        && let Err(error) = dependencies::store("debug")
    {
        println!("  cannot keep the compiled dependencies: {error:#}");
    }
    runner.run(lab_itself::TESTS, &());
    runner.run(bundle::TESTS, &());
    runner.run(iso::TESTS, &());
    runner.run(packages::TESTS, &());
    // One after the other: the machine has room for one cluster. The one that is last may be
    // skipped on a slow machine, so each is first on every third day.
    let mut sites = [versions::site(), ordinary(&runner.options), ha::site()];
    let first = day::today()? % sites.len();
    sites.rotate_left(first);
    for site in sites {
        on_site(&mut runner, &site);
    }
    // The thread has normally ended long ago. Wait for it, or its child processes would outlive
    // this program.
    if let Some(prebuild) = prebuild {
        prebuild
            .join()
            .map_err(|_| anyhow!("the early build panicked"))?;
    }
    Ok(runner.finish())
}

fn ordinary(options: &Options) -> Site {
    Site {
        lab: lab_name(),
        made: "cluster: bootstrap and node add",
        layout: &TWO,
        make: |lab, layout| prepare::cluster(lab, layout, &Board::plain()),
        tests: on_cluster(options).collect(),
    }
}

/// The tests that share one cluster, in their order: tests that only read, tests that repair their
/// own damage, tests that cut power, one that makes the cluster again, and at the end a test that no
/// packet tried to leave the lab.
fn on_cluster(options: &Options) -> impl Iterator<Item = &'static Test<Cluster>> {
    cluster::TESTS
        .iter()
        .chain(kubeadm::TESTS)
        .chain(firewall::TESTS)
        .chain(vip::TESTS)
        .chain(health::TESTS)
        .chain(preflight::TESTS)
        .chain(operator::TESTS)
        .chain(enrolment::TESTS)
        .chain(update::TESTS)
        .chain(limits::TESTS)
        .chain(secret::TESTS)
        .chain(registry::TESTS)
        .chain(repository::TESTS)
        .chain(site_registry::TESTS)
        .chain(external::TESTS)
        .chain(versions::BESIDE)
        .chain(bundles::TESTS)
        .chain(addons::TESTS)
        .chain(network::TESTS)
        .chain(repair::TESTS)
        .chain(kills::tests(options.full))
        .chain(disaster::TESTS)
        .chain(destroy::TESTS)
        .chain(etcd::tests(options.full || !options.filter.is_empty()))
        .chain(cluster::AT_THE_END)
}
