//! All checks that a change must pass before it is merged, as named tests in a fixed order.

mod addons;
pub mod availability;
mod background;
mod bare;
mod bench;
mod builder_root;
mod bundle;
mod bundles;
mod checks;
mod cluster;
mod ctl_answer;
mod debian;
mod declare;
mod default_run;
mod destroy;
mod disaster;
mod encrypted;
mod enrolment;
mod etcd;
mod etcd_disk;
mod etcdctl;
mod every_option;
mod explain;
mod external;
mod firewall;
mod guide;
pub mod ha;
mod hardened;
mod health;
mod hosts;
mod image_layout;
mod images;
mod interrupted;
mod iso;
mod keepalived;
mod kills;
pub mod kubeadm;
mod lab_itself;
mod laws;
mod ledger;
mod lifetimes;
mod limits;
mod lived;
mod minor;
mod network;
mod newer;
mod older;
mod operator;
mod own_manifests;
mod packages;
mod part;
mod plan;
mod prebuild;
mod preflight;
mod reboots;
mod registry;
mod release;
mod repair;
mod report;
mod repository;
mod roles;
pub mod rotation;
mod runner;
mod runtime;
mod secret;
mod shipped_tree;
mod site;
mod site_registry;
mod small_disk;
mod source;
mod struck;
mod support;
mod test;
mod turns;
mod tutorial;
mod two_replicas;
mod unit_tests;
mod update;
mod usual;
mod versions;
mod vip;
mod watchdog;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow};
use background::Background;
use halite_lab::build::source_root;
use halite_lab::prerequisites;
use halite_launch::dependencies;
use halite_upstream::versions::{FULL, NEWEST};
use ledger::Ledger;
use plan::Plan;
use runner::Runner;
use site::on_site;

pub use iso::recipe_of;
pub use part::{PART_MINUTES, TestPart};
pub use runner::Options;

/// Runs the suites; the last line that it prints is `N passed, N failed, N skipped`.
///
/// # Errors
/// The filter matches no test, the ledger of a part cannot be used, or the machine lacks something.
pub fn main(options: Options) -> Result<ExitCode> {
    let plan = Plan::of(&options)?;
    let is_default = options.is_default();
    let whole = plan.limit(&options);
    let mut runner = Runner::new(options);
    runner.watch(whole);
    record(&mut runner, &plan)?;
    // Tests of the crates start real programs too: nginx, gpg, apt.
    prerequisites::ensure(&mut |line| println!("  {line}"))?;
    let release = if runner.options.full { FULL } else { NEWEST };
    let iso = (plan.needs_an_iso(&runner)).then(|| prebuild::iso(release));
    let source = runner.run(&plan.source, &());
    // The other tests use it, and some measure times.
    wait_for(iso)?;
    let background = if is_default {
        Background::start(source::in_parallel)
    } else {
        Background::default()
    };
    runner.run(&plan.without_a_cluster, &());
    // One after the other: the machine has room for one cluster.
    for site in &plan.sites {
        on_site(&mut runner, site);
    }
    if background.is_running() {
        println!(
            "  waiting for the tests of the source tree, which run in parallel with the clusters"
        );
    }
    let beside = runner.run(&plan.beside, &background);
    // Only after the lint: it compiles the dependencies in its own way.
    if is_default
        && source.failed + beside.failed == 0
        && let Err(error) = dependencies::store(&source_root().join("target"), "debug")
    {
        println!("  cannot keep the compiled dependencies: {error}");
    }
    Ok(runner.finish())
}

/// Waits for a build; otherwise its child processes would outlive this program.
fn wait_for(build: Option<JoinHandle<()>>) -> Result<()> {
    build
        .map_or(Ok(()), JoinHandle::join)
        .map_err(|_| anyhow!("an early build panicked"))
}

/// Opens the ledger of the run, and limits a part to its remaining tests.
fn record(runner: &mut Runner, plan: &Plan) -> Result<()> {
    let opened = Ledger::open(&runner.options.label());
    let Some((part, _)) = runner.options.part else {
        match opened {
            Ok((ledger, _)) => runner.record(ledger),
            Err(error) => println!("  the run is not recorded: {error:#}"),
        }
        return Ok(());
    };
    let (ledger, states) = opened?;
    let left = part.left(&plan.planned(), &states);
    println!(
        "  part {part}: {} tests have passed, {} {}",
        left.passed,
        left.run.len(),
        if left.again {
            "did not, and are repeated"
        } else {
            "have not started yet"
        }
    );
    runner.record(ledger);
    runner.only(left.run);
    Ok(())
}

/// Prints the names of the tests of a run with these options, one on each line.
///
/// # Errors
/// The filter matches no test.
pub fn list(options: &Options) -> Result<()> {
    let plan = Plan::of(options)?;
    for name in plan.names().iter().filter(|name| options.wants(name)) {
        println!("{name}");
    }
    Ok(())
}

/// Prints the ledger of the present tree: each test of `--full` with its last outcome, and the
/// number of parts of at most [`PART_MINUTES`] minutes. Succeeds if all have passed. With `write`,
/// the times of the passed tests replace their lines in `docs/dev/test-times.tsv`. With a commit,
/// results on it and on later ones count as well, and the files that have changed since each of
/// them are printed: the reader decides whether a result is still valid.
///
/// # Errors
/// The tree has no name, the commit does not precede it, the ledger cannot be read, or the file
/// cannot be written.
pub fn ledger(write: bool, since: Option<&str>) -> Result<ExitCode> {
    let plan = Plan::new()?;
    let tests = plan.names();
    let (directory, present) = ledger::recorded()?;
    let (states, changed) = match since {
        Some(commit) => ledger::recorded_since(commit)?,
        None => (present, BTreeMap::new()),
    };
    print!("{}", states.table(&tests));
    for (commit, files) in changed.iter().filter(|(_, files)| !files.is_empty()) {
        println!("changed since {commit}: {}", files.join(" "));
    }
    if write {
        usual::write(&[tests.clone(), plan.made()].concat(), &states)?;
    }
    let planned = plan.planned();
    let minutes = planned
        .iter()
        .map(|test| test.time)
        .sum::<Duration>()
        .as_secs()
        / 60;
    let parts = part::number(&planned);
    println!(
        "usually {minutes} minutes; in {parts} parts of at most {PART_MINUTES}: cargo lab test --full --part 1/{parts}"
    );
    println!("{}", directory.display());
    Ok(if states.are_complete(&tests) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
