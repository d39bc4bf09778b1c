//! A cluster of its own lab, and the tests that share it.

use anyhow::Result;
use halite_lab::Lab;
use halite_lab::cluster::Cluster;
use halite_lab::layout::Layout;

use crate::explain;
use crate::runner::Runner;
use crate::test::{Case, Counts};

/// A cluster of its own lab, and the tests that share it.
pub(crate) struct Site {
    /// The lab's name.
    pub(crate) lab: String,
    /// What making it is called in the report.
    pub(crate) made: &'static str,
    /// Its hosts.
    pub(crate) layout: &'static Layout,
    /// Makes it: boots the hosts of the layout in the lab of that name, and makes a cluster.
    pub(crate) make: fn(&str, &Layout) -> Result<Cluster>,
    /// The tests, in their order.
    pub(crate) tests: Vec<Case<Cluster>>,
}

/// Makes the cluster and runs its tests; takes it down unless one failed.
pub(crate) fn on_site(runner: &mut Runner, site: &Site) {
    let wanted: Vec<_> = site
        .tests
        .iter()
        .filter(|test| runner.wants(&test.name))
        .collect();
    if wanted.is_empty() {
        return;
    }
    if !runner.fits(site.made) {
        for test in wanted {
            runner.fits(&test.name);
        }
        return;
    }
    let mut made = None;
    let keep = runner.options.keep;
    let kept = runner.kept.clone();
    let mut counts = runner.report(site.made, || {
        made = Some(open_cluster(keep, &kept, site)?);
        Ok(Counts::ONE)
    });
    let Some(cluster) = made else {
        println!(
            "  the hosts are kept below {}",
            halite_lab::run_dir().join(&site.lab).display()
        );
        runner.kept.push(site.lab.clone());
        return;
    };
    runner.has_a_cluster();
    counts.add(runner.run_explained(wanted, &cluster, explain::state));
    if counts.failed > 0 {
        println!(
            "  the hosts are kept: cargo lab status --lab {}, files below {}",
            site.lab,
            halite_lab::run_dir().join(&site.lab).display()
        );
        runner.kept.push(site.lab.clone());
    } else if !keep && let Err(error) = cluster.lab.down() {
        println!("FAILED {}: take down: {error:#}", site.made);
        runner.fail();
    }
}

fn open_cluster(keep: bool, kept: &[String], site: &Site) -> Result<Cluster> {
    let lab = lab(&site.lab)?;
    if keep
        && let Ok(running) = Cluster::attach(lab.clone())
        && running.is_of(site.layout)
        && running.bootstrap.init().is_some()
    {
        return Ok(running);
    }
    if lab.room_for(site.layout).is_err() {
        make_room(kept)?;
        lab.room_for(site.layout)?;
    }
    (site.make)(&site.lab, site.layout)
}

fn lab(name: &str) -> Result<Lab> {
    Lab::new(name, &halite_lab::cache().join("base-root"))
}

/// Cuts the power of the hosts of labs that were kept because a test failed: their disks remain.
fn make_room(kept: &[String]) -> Result<()> {
    for name in kept {
        let lab = lab(name)?;
        let mut on = lab.hosts()?;
        on.retain(|host| host.init().is_some());
        let names: Vec<String> = on.into_iter().map(|host| host.spec.name).collect();
        if !names.is_empty() {
            lab.power_off(&names, false)?;
            let names = names.join(" ");
            println!(
                "  off, to make room: {names}; afterwards: cargo lab power-on {names} --lab {name}"
            );
        }
    }
    Ok(())
}
