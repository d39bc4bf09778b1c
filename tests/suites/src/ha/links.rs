//! Links that are cut between the host with the address and the other control planes: the address
//! gets another holder while the link is cut, and has one holder when the link is back.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use super::losses::{ApiPath, GAP, Measured, VIP, under_writes, wait_for_one_holder};
use super::standbys::{STANDBYS, answers, wait_for_followers};
use super::{BACK, is_complete, same_content};
use crate::availability::holders::Sampler;
use crate::test::Counts;

/// The time for which a link is cut, and the limits of the gap and of the time until all hosts
/// serve again.
#[derive(Debug, Clone, Copy)]
struct Time {
    cut: Duration,
    gap: Duration,
    back: Duration,
}

/// While the link is cut the host that had the address may still answer for it, and its member of
/// etcd has no leader; after that the limit is that of any loss.
const SHORT: Time = Time {
    cut: Duration::from_secs(5),
    gap: Duration::from_secs(5 + GAP.as_secs()),
    back: BACK,
};
/// The link does not come back in the gap: the host that had the address gives it up, because its
/// API server is not ready, and the client learns its new place. Without etcd this API server exits
/// again and again, and its kubelet may wait for five minutes before it starts it.
const LONG: Time = Time {
    cut: Duration::from_secs(180),
    gap: GAP,
    back: Duration::from_secs(600),
};

/// A direction of a link, seen from the host with the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// Packets from it to the others.
    Out,
    /// Packets from the others to it.
    In,
}

const BOTH: [Direction; 2] = [Direction::Out, Direction::In];
/// The prefix of objects that are written while they are cut.
const BOTH_WAYS: &str = "link-both-ways";

/// The link is cut in both directions, then in the one in which the others no longer hear the
/// holder of the address.
pub(super) fn heal(cluster: &Cluster) -> Result<Counts> {
    both_and_one(cluster, SHORT, || Ok(()))
}

/// The same for minutes, in which the node is not Ready and the minion disconnected, or the master
/// without its standbys. Each time they come back.
pub(super) fn heal_after_minutes(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    both_and_one(cluster, LONG, || {
        wait_for_followers(first, &STANDBYS)?;
        answers(cluster, first, "")
    })
}

/// Cuts the links between the host with the address and the other control planes in both directions
/// for a short time. The shared time in the result starts when the links are back.
///
/// # Errors
/// An acknowledged write is missing, no other host takes the address, or the hosts do not come
/// back.
pub fn both_ways(cluster: &Cluster) -> Result<Measured> {
    cut(cluster, BOTH_WAYS, &BOTH, SHORT).map(|(measured, _)| measured)
}

fn both_and_one(cluster: &Cluster, time: Time, is_back: impl Fn() -> Result<()>) -> Result<Counts> {
    for (what, directions) in [(BOTH_WAYS, &BOTH[..]), ("link-one-way", &BOTH[..1])] {
        let (measured, own) = cut(cluster, what, directions, time)?;
        match measured.check(what, time.gap + own) {
            Err(error) if measured.was_held_up() => {
                println!("  {what}: again, this machine was held up: {error:#}");
                let (measured, own) = cut(cluster, what, directions, time)?;
                measured.check(what, time.gap + own)?;
            }
            checked => checked?,
        }
        is_back()?;
    }
    Ok(Counts {
        passed: 2,
        failed: 0,
    })
}

/// Cuts these directions for a time while a client writes. The shared time in the result starts
/// when the link is back: hosts that do not hear each other may both hold the address. The second
/// result is the time for which only some of the links were cut, which is the lab's own.
fn cut(
    cluster: &Cluster,
    what: &str,
    directions: &[Direction],
    time: Time,
) -> Result<(Measured, Duration)> {
    let (mut healed, mut own) = (None, Duration::ZERO);
    let measured = under_writes(cluster, ApiPath::Vip, what, |holder| {
        let start = Instant::now();
        let planes = cluster.control_planes();
        let others = planes
            .iter()
            .filter(|host| host.spec.name != holder.spec.name);
        let others: Vec<&Host> = others.copied().collect();
        // Also after a failure: the tests after this one need the links.
        let taken = on_each(holder, &others, directions, |from, to| {
            cluster.lab.cut_link(from, to)
        })
        .and_then(|()| {
            own = start.elapsed();
            until_another_holds_it(&others, start + own, time.cut)
        });
        let restored = Instant::now();
        on_each(holder, &others, directions, |from, to| {
            cluster.lab.restore_link(from, to)
        })?;
        own += restored.elapsed();
        healed = Some(Sampler::start(&planes, VIP));
        taken
    });
    let healed = healed.map(Sampler::end).transpose();
    let measured = measured.with_context(|| what.to_owned())?;
    let shared = healed?.context("the link was not restored")?;
    wait::until("all hosts to serve", time.back, || is_complete(cluster))?;
    wait_for_one_holder(cluster)?;
    same_content(cluster)?;
    let measured = Measured {
        shared: shared.longest_shared(),
        ..measured
    };
    Ok((measured, own))
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
/// for its full time.
fn until_another_holds_it(others: &[&Host], start: Instant, time: Duration) -> Result<()> {
    let sampler = Sampler::start(others, VIP);
    let taken = wait::until("another holder of the address", BACK, || {
        let holders = sampler.samples().now();
        ensure!(!holders.is_empty(), "no other host holds it");
        Ok(())
    });
    sampler.end()?;
    taken?;
    wait::until("the end of the cut", 2 * time, || {
        ensure!(start.elapsed() >= time, "{:?}", start.elapsed());
        Ok(())
    })
}
