//! A cluster of its own lab, and the tests that share it.

use std::time::Instant;

use anyhow::Result;
use halite_lab::Lab;
use halite_lab::cluster::Cluster;

use crate::runner::{Options, report, run};
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

pub(crate) fn on_site(options: &Options, site: &Site) -> Counts {
    let start = Instant::now();
    let cluster = match open_cluster(options, site) {
        Ok(cluster) => cluster,
        Err(error) => {
            report(site.made, start.elapsed(), Err(&error));
            println!(
                "  the hosts are kept below {}",
                halite_lab::run_dir().join(&site.lab).display()
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
            halite_lab::run_dir().join(&site.lab).display()
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
        && let Ok(running) =
            Cluster::attach(Lab::new(&site.lab, &halite_lab::cache().join("base-root"))?)
        && running.bootstrap.init().is_some()
    {
        return Ok(running);
    }
    (site.make)(&site.lab)
}
