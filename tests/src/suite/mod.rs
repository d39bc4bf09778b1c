//! Everything that must be true before a change lands, one named test after the other.

mod addons;
mod bundle;
mod bundles;
mod cluster;
mod everything;
mod firewall;
mod guide;
mod iso;
mod kills;
pub(crate) mod kubeadm;
mod lab_itself;
mod meanwhile;
mod network;
mod operator;
mod outside;
mod packages;
mod registry;
mod repair;
mod repository;
mod secret;
mod site_registry;
mod source;
mod versions;
mod vip;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::cluster::Cluster;
use crate::lab::{Lab, prerequisites};
use crate::{demo, lab};

pub(crate) use iso::recipe_of;

/// Name of the suites' own lab, so that they leave a demonstration alone.
const LAB: &str = "test";

/// The lab of the cluster suites. `HALITE_LAB_NAME` names one that runs already: give `--keep` with
/// it.
fn lab_name() -> String {
    std::env::var("HALITE_LAB_NAME").unwrap_or_else(|_| LAB.to_owned())
}

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The heavy forms too.
    pub full: bool,
    /// Use a cluster that runs, and leave it running.
    pub keep: bool,
    /// Only tests whose name contains one of these.
    pub filter: Vec<String>,
}

/// One named test. `passed` can be more than one where it runs a whole set.
struct Test<C> {
    name: &'static str,
    run: fn(&C) -> Result<Counts>,
}

/// How many tests passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
}

impl Counts {
    const ONE: Self = Self {
        passed: 1,
        failed: 0,
    };

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Runs the suites; the last line that it prints is `N passed, N failed`.
pub fn main(options: Options) -> Result<ExitCode> {
    // Tests of the crates start real programs too: nginx, gpg, apt.
    prerequisites::ensure(&mut |line| println!("  {line}"))?;
    let meanwhile = options.filter.is_empty().then(meanwhile::begin);
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
    // It has ended long ago, or the programs that it started would outlive this one.
    if let Some(meanwhile) = meanwhile {
        meanwhile
            .join()
            .map_err(|_| anyhow!("what is made meanwhile panicked"))?;
    }
    println!("\n{} passed, {} failed", total.passed, total.failed);
    Ok(if total.failed == 0 && total.passed > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A cluster of its own lab, and the tests that share it.
struct Site {
    /// The lab's name.
    lab: String,
    /// What making it is called in the report.
    made: &'static str,
    /// Makes it.
    make: fn(&str) -> Result<Cluster>,
    /// The tests, in their order.
    tests: Vec<&'static Test<Cluster>>,
}

fn ordinary(options: &Options) -> Site {
    Site {
        lab: lab_name(),
        made: "cluster: bootstrap and node add",
        make: |lab| demo::cluster(lab, &mut |line| println!("  {line}")),
        tests: on_cluster(options.full).collect(),
    }
}

/// The tests that share one cluster, in their order: those that only look, those that mend what
/// they damage, those that take power away, and at the end whether any of it tried to leave.
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
        .chain(outside::TESTS)
        .chain(versions::BESIDE)
        .chain(bundles::TESTS)
        .chain(addons::TESTS)
        .chain(network::TESTS)
        .chain(repair::TESTS)
        .chain(kills::tests(full))
        .chain(cluster::AT_THE_END)
}

fn on_site(options: &Options, site: &Site) -> Counts {
    let start = Instant::now();
    let cluster = match open_cluster(options, site) {
        Ok(cluster) => cluster,
        Err(error) => {
            report(site.made, start.elapsed(), Err(&error));
            println!(
                "  the hosts are kept below {}",
                lab::run_dir().join(&site.lab).display()
            );
            return Counts {
                passed: 0,
                failed: 1,
            };
        }
    };
    report(site.made, start.elapsed(), Ok(Counts::ONE));
    let mut counts = Counts::ONE;
    counts.add(run(options, site.tests.iter().copied(), &cluster));
    if counts.failed > 0 {
        println!(
            "  the hosts are kept: cargo lab status --lab {}, files below {}",
            site.lab,
            lab::run_dir().join(&site.lab).display()
        );
    } else if !options.keep
        && let Err(error) = cluster.lab.down()
    {
        println!("FAILED {}: take down: {error:#}", site.made);
        counts.failed += 1;
    }
    counts
}

fn open_cluster(options: &Options, site: &Site) -> Result<Cluster> {
    if options.keep
        && let Ok(running) = Cluster::attach(Lab::new(&site.lab, &lab::cache().join("base-root"))?)
        && running.bootstrap.init().is_some()
    {
        return Ok(running);
    }
    (site.make)(&site.lab)
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.filter.is_empty() || self.filter.iter().any(|f| name.contains(f.as_str()))
    }
}

fn run<'a, C: 'a>(
    options: &Options,
    tests: impl IntoIterator<Item = &'a Test<C>>,
    context: &C,
) -> Counts {
    let mut counts = Counts::default();
    for test in tests.into_iter().filter(|t| options.wants(t.name)) {
        let start = Instant::now();
        let result = (test.run)(context);
        report(test.name, start.elapsed(), result.as_ref().map(|c| *c));
        counts.add(result.unwrap_or(Counts {
            passed: 0,
            failed: 1,
        }));
    }
    counts
}

fn report(name: &str, took: Duration, result: Result<Counts, &anyhow::Error>) {
    let seconds = took.as_secs_f64();
    match result {
        Ok(Counts {
            failed: 0,
            passed: 1,
        }) => println!("ok     {name} ({seconds:.1} s)"),
        Ok(Counts { failed: 0, passed }) => {
            println!("ok     {name}: {passed} tests ({seconds:.1} s)")
        }
        Ok(Counts { passed, failed }) => {
            println!("FAILED {name}: {passed} passed, {failed} failed ({seconds:.1} s)")
        }
        Err(error) => println!("FAILED {name} ({seconds:.1} s): {error:#}"),
    }
}
