//! A cluster in its own lab, and the tests that share it.

use anyhow::Result;
use halite_lab::Lab;
use halite_lab::cluster::Cluster;
use halite_lab::layout::Layout;
use halite_lab::progress::Board;
use halite_upstream::prepare;
use halite_upstream::versions::Release;

use crate::explain;
use crate::runner::Runner;
use crate::test::{Case, Counts};

/// A cluster in its own lab, and the tests that share it.
pub(crate) struct Site {
    /// The lab's name.
    pub(crate) lab: String,
    /// The name of its creation in the report.
    pub(crate) made: &'static str,
    /// Its hosts.
    pub(crate) layout: &'static Layout,
    /// The release in its bundle.
    pub(crate) release: Release,
    /// Makes it: boots the hosts of the layout in the lab of that name, and makes a cluster.
    pub(crate) make: fn(&str, &Layout, &Release) -> Result<Cluster>,
    /// The tests, in order.
    pub(crate) tests: Vec<Case<Cluster>>,
}

/// Makes a cluster of the hosts, from a release's ISO.
pub(crate) fn from_the_iso(lab: &str, layout: &Layout, release: &Release) -> Result<Cluster> {
    prepare::cluster(lab, layout, release, &Board::plain())
}

/// Makes the cluster and runs its tests; removes it unless one failed. In that case its hosts are
/// switched off, so that the next site has the whole machine, and their disks and logs remain.
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
        wanted.iter().for_each(|test| runner.skip(&test.name));
        return;
    }
    // Without it a second run would remove the hosts of the first one.
    let _held = match lab(&site.lab).and_then(|lab| lab.hold()) {
        Ok(held) => held,
        Err(error) => {
            runner.report(site.made, || Err(error));
            wanted.iter().for_each(|test| runner.skip(&test.name));
            return;
        }
    };
    let keep = runner.options.keep;
    runner.on_hosts_of(Some(&site.lab));
    let mut made = None;
    let mut counts = runner.report(site.made, || {
        made = Some(open_cluster(keep, site)?);
        Ok(Counts::ONE)
    });
    match &made {
        Some(cluster) => counts.add(runner.run_explained(wanted, cluster, explain::state)),
        None => wanted.iter().for_each(|test| runner.skip(&test.name)),
    }
    runner.on_hosts_of(None);
    let ended = match counts.failed {
        _ if keep => return,
        0 => lab(&site.lab).and_then(|lab| lab.down()),
        _ => switch_off(&site.lab),
    };
    if let Err(error) = ended {
        println!("FAILED {}: end: {error:#}", site.made);
        runner.fail(site.made);
    }
}

fn open_cluster(keep: bool, site: &Site) -> Result<Cluster> {
    let lab = lab(&site.lab)?;
    if keep
        && let Ok(running) = Cluster::attach(lab.clone())
        && running.is_of(site.layout)
        && running.bootstrap.init().is_some()
    {
        return Ok(running);
    }
    lab.room_for(site.layout)?;
    (site.make)(&site.lab, site.layout, &site.release)
}

fn lab(name: &str) -> Result<Lab> {
    Lab::new(name, &halite_lab::cache().join("base-root"))
}

/// Cuts the power of all hosts of a lab: their disks remain.
pub(crate) fn switch_off(name: &str) -> Result<()> {
    let lab = lab(name)?;
    let mut on = lab.hosts()?;
    on.retain(|host| host.init().is_some());
    let names: Vec<String> = on.into_iter().map(|host| host.spec.name).collect();
    if !names.is_empty() {
        lab.power_off(&names, false)?;
    }
    println!(
        "  the hosts are off, and their files are kept below {}; to inspect them: cargo lab power-on --lab {name} {}",
        halite_lab::run_dir().join(name).display(),
        names.join(" ")
    );
    Ok(())
}
