//! Links that are cut between the host with the address and the other control planes: the address
//! has another holder while the link is cut, and one holder when the link is back.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use super::losses::{CUT, Measured, VIP, Way, under_writes, wait_for_one_holder};
use super::{BACK, is_complete, same_content};
use crate::availability::holders::Sampler;
use crate::test::Counts;

/// The time for which a link is cut.
const SHORT: Duration = Duration::from_secs(5);
/// Limit of the gap. While the link is cut the host that had the address may still answer for it,
/// and its member of etcd has no leader; after that the limit is that of a host without power.
const GAP: Duration = Duration::from_secs(SHORT.as_secs() + CUT.as_secs());

/// A direction of a link, seen from the host with the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// What it sends to the others.
    Out,
    /// What the others send to it.
    In,
}

/// The link is cut in both directions, then in the one in which the others no longer hear the
/// holder of the address.
pub(super) fn heal(cluster: &Cluster) -> Result<Counts> {
    let both = [Direction::Out, Direction::In];
    for (what, directions) in [("link-both-ways", &both[..]), ("link-one-way", &both[..1])] {
        cut(cluster, what, directions)?.check(what, GAP)?;
    }
    Ok(Counts {
        passed: 2,
        failed: 0,
    })
}

/// Cuts these directions while a client writes. The shared time in the answer begins when the link
/// is back: hosts that do not hear each other may both hold the address.
fn cut(cluster: &Cluster, what: &str, directions: &[Direction]) -> Result<Measured> {
    let mut healed = None;
    let measured = under_writes(cluster, Way::Vip, what, |holder| {
        let start = Instant::now();
        let planes = cluster.control_planes();
        let others = planes
            .iter()
            .filter(|host| host.spec.name != holder.spec.name);
        let others: Vec<&Host> = others.copied().collect();
        // Also after a failure the tests after this one need the links.
        let taken = on_each(holder, &others, directions, |from, to| {
            cluster.lab.cut_link(from, to)
        })
        .and_then(|()| until_another_holds_it(&others, start));
        on_each(holder, &others, directions, |from, to| {
            cluster.lab.restore_link(from, to)
        })?;
        healed = Some(Sampler::start(&planes, VIP));
        taken
    });
    let healed = healed.map(Sampler::end).transpose();
    let measured = measured.with_context(|| what.to_owned())?;
    let shared = healed?.context("the link was not restored")?;
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    wait_for_one_holder(cluster)?;
    same_content(cluster)?;
    Ok(Measured {
        shared: shared.longest_shared(),
        ..measured
    })
}

/// Does something to each direction between the holder and another host.
fn on_each(
    holder: &Host,
    others: &[&Host],
    directions: &[Direction],
    act: impl Fn(&Host, &Host) -> Result<()>,
) -> Result<()> {
    for other in others {
        for direction in directions {
            match direction {
                Direction::Out => act(holder, other)?,
                Direction::In => act(other, holder)?,
            }
        }
    }
    Ok(())
}

/// Waits until one of the hosts that do not hear the holder has the address, and the link was cut
/// for its time.
fn until_another_holds_it(others: &[&Host], start: Instant) -> Result<()> {
    let sampler = Sampler::start(others, VIP);
    let taken = wait::until("another holder of the address", BACK, || {
        let holders = sampler.samples().now();
        ensure!(!holders.is_empty(), "no other host holds it");
        Ok(())
    });
    sampler.end()?;
    taken?;
    wait::until("the end of the cut", 2 * SHORT, || {
        ensure!(start.elapsed() >= SHORT, "{:?}", start.elapsed());
        Ok(())
    })
}
