//! All checks that a change must pass before it is merged, as named tests in a fixed order.

mod addons;
mod bundle;
mod bundles;
mod checks;
mod cluster;
mod every_option;
mod external;
mod firewall;
mod guide;
mod iso;
mod kills;
pub mod kubeadm;
mod lab_itself;
mod network;
mod operator;
mod packages;
mod prebuild;
mod registry;
mod repair;
mod repository;
mod runner;
mod secret;
mod site;
mod site_registry;
mod source;
mod test;
mod versions;
mod vip;

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use halite_lab::cluster::Cluster;
use halite_lab::prerequisites;
use halite_upstream::prepare;
use runner::run;
use site::{Site, on_site};
use test::{Counts, Test};

pub use iso::recipe_of;
pub use runner::Options;

/// Name of the suites' own lab, which differs from that of a demonstration.
const LAB: &str = "test";

/// The lab of the cluster suites. `HALITE_LAB_NAME` names a lab that already runs; use it with
/// `--keep`.
fn lab_name() -> String {
    std::env::var("HALITE_LAB_NAME").unwrap_or_else(|_| LAB.to_owned())
}

/// Runs the suites; the last line that it prints is `N passed, N failed`.
pub fn main(options: Options) -> Result<ExitCode> {
    // Tests of the crates start real programs too: nginx, gpg, apt.
    prerequisites::ensure(&mut |line| println!("  {line}"))?;
    let meanwhile = options.filter.is_empty().then(prebuild::begin);
    let mut total = Counts::default();
    total.add(run(&options, source::TESTS, &()));
    total.add(run(&options, lab_itself::TESTS, &()));
    total.add(run(&options, bundle::TESTS, &()));
    total.add(run(&options, iso::TESTS, &()));
    total.add(run(&options, packages::TESTS, &()));
    // One after the other: the machine has room for one cluster.
    for site in [versions::site(), ordinary(&options)] {
        if site.tests.iter().any(|test| options.wants(test.name)) {
            total.add(on_site(&options, &site));
        }
    }
    // The thread has normally ended long ago. Wait for it, or its child processes would outlive
    // this program.
    if let Some(meanwhile) = meanwhile {
        meanwhile
            .join()
            .map_err(|_| anyhow!("the thread that prepares the lab panicked"))?;
    }
    println!("\n{} passed, {} failed", total.passed, total.failed);
    Ok(if total.failed == 0 && total.passed > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn ordinary(options: &Options) -> Site {
    Site {
        lab: lab_name(),
        made: "cluster: bootstrap and node add",
        make: |lab| prepare::cluster(lab, &mut |line| println!("  {line}")),
        tests: on_cluster(options.full).collect(),
    }
}

/// The tests that share one cluster, in their order: tests that only read, tests that repair their
/// own damage, tests that cut power, and at the end a test that no packet tried to leave the lab.
fn on_cluster(full: bool) -> impl Iterator<Item = &'static Test<Cluster>> {
    cluster::TESTS
        .iter()
        .chain(kubeadm::TESTS)
        .chain(firewall::TESTS)
        .chain(vip::TESTS)
        .chain(operator::TESTS)
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
        .chain(kills::tests(full))
        .chain(cluster::AT_THE_END)
}
