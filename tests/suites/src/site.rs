//! A cluster of its own lab, and the tests that share it.

use anyhow::Result;
use halite_lab::Lab;
use halite_lab::cluster::Cluster;

use crate::runner::Runner;
use crate::test::{Counts, Test};

/// A cluster of its own lab, and the tests that share it.
pub(crate) struct Site {
    /// The lab's name.
    pub(crate) lab: String,
    /// What making it is called in the report.
    pub(crate) made: &'static str,
    /// Makes it.
    pub(crate) make: fn(&str) -> Result<Cluster>,
    /// The tests, in their order.
    pub(crate) tests: Vec<&'static Test<Cluster>>,
}

/// Makes the cluster and runs its tests; takes it down unless one failed.
pub(crate) fn on_site(runner: &mut Runner, site: &Site) {
    let wanted: Vec<_> = site
        .tests
        .iter()
        .copied()
        .filter(|test| runner.options.wants(test.name))
        .collect();
    if wanted.is_empty() {
        return;
    }
    if !runner.fits(site.made) {
        for test in wanted {
            runner.fits(test.name);
        }
        return;
    }
    let mut made = None;
    let keep = runner.options.keep;
    let mut counts = runner.report(site.made, || {
        made = Some(open_cluster(keep, site)?);
        Ok(Counts::ONE)
    });
    let Some(cluster) = made else {
        println!(
            "  the hosts are kept below {}",
            halite_lab::run_dir().join(&site.lab).display()
        );
        return;
    };
    counts.add(runner.run(wanted, &cluster));
    if counts.failed > 0 {
        println!(
            "  the hosts are kept: cargo lab status --lab {}, files below {}",
            site.lab,
            halite_lab::run_dir().join(&site.lab).display()
        );
    } else if !keep && let Err(error) = cluster.lab.down() {
        println!("FAILED {}: take down: {error:#}", site.made);
        runner.fail();
    }
}

fn open_cluster(keep: bool, site: &Site) -> Result<Cluster> {
    if keep
        && let Ok(running) =
            Cluster::attach(Lab::new(&site.lab, &halite_lab::cache().join("base-root"))?)
        && running.bootstrap.init().is_some()
    {
        return Ok(running);
    }
    (site.make)(&site.lab)
}
