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
mod etcd_disk;
mod every_option;
mod explain;
mod external;
mod firewall;
mod guide;
pub mod ha;
mod health;
mod images;
mod interrupted;
mod iso;
mod keepalived;
mod kills;
pub mod kubeadm;
mod lab_itself;
mod ledger;
mod lifetimes;
mod limits;
mod network;
mod operator;
mod packages;
mod part;
mod plan;
mod prebuild;
mod preflight;
mod registry;
mod repair;
mod repository;
mod roles;
mod runner;
mod secret;
mod shipped_tree;
mod site;
mod site_registry;
mod small_disk;
mod source;
mod support;
mod table;
mod test;
mod update;
mod versions;
mod vip;

use std::process::ExitCode;

use anyhow::{Result, anyhow, ensure};
use halite_lab::{dependencies, prerequisites};
use ledger::Ledger;
use plan::Plan;
use runner::Runner;
use site::on_site;

pub use iso::recipe_of;
pub use part::{PART_MINUTES, Part};
pub use runner::{MINUTES, Options};

/// Runs the suites; the last line that it prints is `N passed, N failed, N skipped`.
pub fn main(options: Options) -> Result<ExitCode> {
    if let Some(budget) = options.budget {
        deadline::watch(budget);
    }
    let mut plan = Plan::new(options.full)?;
    let mut runner = Runner::new(options);
    if let Some(part) = runner.options.part {
        let (ledger, states) = Ledger::open(&part.to_string())?;
        let left = part.left(&plan.names(), &states);
        println!(
            "  part {part}: {} tests have passed, {} {}",
            left.passed,
            left.run.len(),
            if left.again {
                "did not, and are run again"
            } else {
                "have not begun yet"
            }
        );
        let names = plan.names();
        ensure!(
            names.iter().any(|name| runner.options.wants(name)),
            "no test has {} in its name",
            runner.options.filter.join(" or ")
        );
        let is_done = left.run.is_empty();
        runner.record(ledger, left.run);
        if is_done {
            return Ok(runner.finish());
        }
    }
    // Tests of the crates start real programs too: nginx, gpg, apt.
    prerequisites::ensure(&mut |line| println!("  {line}"))?;
    if let Err(error) = dependencies::restore() {
        println!("  dependencies are compiled again: {error:#}");
    }
    let is_whole = runner.options.is_whole();
    let prebuild = is_whole.then(prebuild::begin);
    let source = runner.run(&plan.source, &());
    // Only after the lint too: it compiles the dependencies in its own way.
    if is_whole
        && source.failed == 0
        && let Err(error) = dependencies::store("debug")
    {
        println!("  cannot keep the compiled dependencies: {error:#}");
    }
    runner.run(&plan.without_a_cluster, &());
    // One after the other: the machine has room for one cluster.
    plan.take_turns(day::today()?);
    for site in &plan.sites {
        on_site(&mut runner, site);
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

/// Prints the ledger of the present tree: each test of `--full` with its last outcome. Succeeds if all
/// have passed.
///
/// # Errors
/// The tree has no name, or the ledger cannot be read.
pub fn ledger() -> Result<ExitCode> {
    let tests = Plan::new(true)?.names();
    let (directory, states) = ledger::recorded()?;
    print!("{}", states.table(&tests));
    println!("{}", directory.display());
    Ok(if states.are_complete(&tests) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
