//! Links between control planes that are cut: those that do not hear each other may both hold the address,
//! and the members of etcd elect another leader; no acknowledged write is lost.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use super::losses::{CUT, Way, under_writes, wait_for_one_holder};
use super::{BACK, is_complete, same_content};
use crate::test::Counts;

/// The length of a cut. The member of the holder may be without a leader for that time.
const LENGTH: Duration = Duration::from_secs(5);

/// Cuts the link between the holder of the address and another control plane: what the holder hears, then
/// both directions.
pub(super) fn cut(cluster: &Cluster) -> Result<Counts> {
    for (what, both) in [("link-one-way", false), ("link", true)] {
        let measured = under_writes(cluster, Way::Vip, what, |holder| {
            let planes = cluster.control_planes();
            let mut others = planes
                .iter()
                .filter(|host| host.spec.name != holder.spec.name);
            let other = others.next().context("no other control plane")?;
            let restored = cut_for_a_while(cluster, holder, other, both);
            for (from, to) in [(*other, holder), (holder, *other)] {
                cluster.lab.restore_link(from, to)?;
            }
            restored
        })?;
        wait_for_one_holder(cluster)?;
        let (gap, shared) = (measured.gap.length, measured.shared);
        println!(
            "  {what}: {} writes acknowledged, longest gap {:.1} s; two holders for {} ms",
            measured.acknowledged,
            gap.as_secs_f64(),
            shared.as_millis()
        );
        ensure!(gap <= CUT, "a gap of {gap:?}: {:?}", measured.gap.errors);
        // Until they hear each other again, and a while.
        ensure!(shared <= LENGTH + CUT, "two holders for {shared:?}");
        wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
        same_content(cluster)?;
    }
    Ok(Counts::ONE)
}

fn cut_for_a_while(cluster: &Cluster, holder: &Host, other: &Host, both: bool) -> Result<()> {
    cluster.lab.cut_link(other, holder)?;
    if both {
        cluster.lab.cut_link(holder, other)?;
    }
    // The length of the cut is what is tested, and no wait for anything.
    thread::sleep(LENGTH);
    Ok(())
}
