//! The election of the holder of the virtual address, with the real keepalived, the configuration
//! of the state tree, and API servers that are ready on demand.

mod nodes;
mod rendered;

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use halite_lab::layout::HA;
use halite_lab::progress::Board;
use halite_lab::{base, cache, wait};
use halite_upstream::prepare;
use nodes::{Node, Nodes};

use crate::availability::holders::{Sampler, Samples};
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<()>] = &[Test {
    name: "keepalived: one of three holds the address, whatever fails and whichever link is cut",
    run: elections,
}];

/// The address in the cluster document.
const VIP: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 100);
/// Limit for the holder to change: failed checks and an election take about three seconds.
const CHANGE: Duration = Duration::from_secs(60);
/// The number of advertisements in which nothing may change: more than twice as many as it takes to
/// miss a holder.
const STEADY: u32 = 8;
/// Attempts at a period in which this machine is not held up.
const WATCHES: u32 = 20;
/// The suite judges three times the aim, which is one interval of advertisements.
const GENEROUS: u32 = 3;

/// A cut of links from the holder, to the holder, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Both,
    From,
    To,
}

fn elections((): &()) -> Result<Counts> {
    let bundle = prepare::bundle(&Board::plain())?;
    let base = base::ensure(&cache(), &mut |_| {})?;
    let nodes = Nodes::start(&base, &bundle)?;
    let scene = Scene::new(&nodes)?;
    scene
        .play()
        .map_err(|error| anyhow!("{error:#}; what keepalived printed:\n{}", nodes.logs()))
}

struct Scene<'a> {
    nodes: &'a Nodes,
    /// The time from one advertisement to the next.
    interval: Duration,
}

impl<'a> Scene<'a> {
    fn new(nodes: &'a Nodes) -> Result<Self> {
        let first = HA.hosts.first().context("the layout has no host")?;
        Ok(Self {
            nodes,
            interval: rendered::advertisement(&rendered::files(first)?)?,
        })
    }

    fn play(&self) -> Result<Counts> {
        let sampler = self.sampler();
        holder(&sampler, |_| true)?;
        self.one_at_a_time("the first election", &sampler.end()?)?;
        watched(|| {
            let first = self.holder()?;
            let second = self.fails(&first)?;
            self.stays_away(&first, &second)
        })?;
        for cut in [Cut::Both, Cut::From, Cut::To] {
            watched(|| self.cut_and_back(cut))?;
        }
        watched(|| Ok(self.is_steady()?.is_some()))?;
        Ok(Counts {
            passed: 6,
            failed: 0,
        })
    }

    fn sampler(&self) -> Sampler {
        Sampler::of_networks(self.nodes.networks(), VIP)
    }

    fn holder(&self) -> Result<String> {
        let sampler = self.sampler();
        let only = holder(&sampler, |_| true)?;
        sampler.end()?;
        Ok(only)
    }

    /// Fails if two hosts held the address for longer than a change may take. While this machine is
    /// held up, none can release it.
    fn one_at_a_time(&self, what: &str, samples: &Samples) -> Result<()> {
        println!(
            "  {what}: two holders for {} ms, none for {:.1} s",
            samples.longest_shared().as_millis(),
            samples.longest_free().as_secs_f64()
        );
        let limit = self.interval * GENEROUS + samples.longest_pause();
        ensure!(
            samples.longest_shared() <= limit,
            "{what}: two holders for longer than {limit:?}: {:?}",
            samples.changes()
        );
        Ok(())
    }

    /// The address moves when the API server of its holder is not ready; returns the next holder.
    fn fails(&self, first: &str) -> Result<String> {
        let sampler = self.sampler();
        self.nodes.node_named(first)?.set_ready(false)?;
        let second = holder(&sampler, |name| name != first)?;
        self.one_at_a_time("an API server that is not ready", &sampler.end()?)?;
        Ok(second)
    }

    /// A host whose API server is ready again does not take the address back; `false` if this
    /// machine was held up.
    fn stays_away(&self, first: &str, second: &str) -> Result<bool> {
        let back = self.nodes.node_named(first)?;
        let before = back.times_a_backup();
        back.set_ready(true)?;
        wait::until("the former holder to compete again", CHANGE, || {
            ensure!(back.times_a_backup() > before, "it does not yet");
            Ok(())
        })?;
        let Some(only) = self.is_steady()? else {
            return Ok(false);
        };
        ensure!(only == second, "{only} has taken the address from {second}");
        Ok(true)
    }

    /// Returns whether the holders changed while this machine was held up for longer than an
    /// advertisement takes to arrive: the timers of the hosts were late as well, and any of them
    /// may have been the first.
    fn was_held_up(&self, samples: &Samples) -> bool {
        let (changes, pause) = (samples.changes(), samples.longest_pause());
        let is_held_up = changes.len() > 1 && pause > self.interval;
        if is_held_up {
            println!(
                "  again, this machine was held up for {} ms: {changes:?}",
                pause.as_millis()
            );
        }
        is_held_up
    }

    /// Watches for a while in which nothing may change; returns the holder, or `None` if this
    /// machine was held up.
    fn is_steady(&self) -> Result<Option<String>> {
        let sampler = self.sampler();
        let only = holder(&sampler, |_| true)?;
        thread::sleep(self.interval * STEADY);
        let samples = sampler.end()?;
        if self.was_held_up(&samples) {
            return Ok(None);
        }
        ensure!(
            samples.changes().len() == 1 && samples.now() == [only.clone()].into(),
            "the holders changed without a reason: {:?}",
            samples.changes()
        );
        Ok(Some(only))
    }

    /// Cuts the links of the holder to both others. While they do not hear it, another one holds
    /// the address too; once they do, one is left at once. `false` if this machine was held up.
    fn cut_and_back(&self, cut: Cut) -> Result<bool> {
        let mut is_watched = true;
        let sampler = self.sampler();
        let held = holder(&sampler, |_| true)?;
        let node = self.nodes.node_named(&held)?;
        self.each_link(node, cut, true)?;
        if cut == Cut::To {
            // The others hear the holder, so nothing changes.
            thread::sleep(self.interval * STEADY);
            let samples = sampler.end()?;
            is_watched = !self.was_held_up(&samples);
            ensure!(
                !is_watched || samples.changes().len() == 1,
                "{held} is heard, and the holders changed: {:?}",
                samples.changes()
            );
        } else {
            wait::until("another holder where this one is not heard", CHANGE, || {
                let now = sampler.samples().now();
                ensure!(now.iter().any(|name| *name != held), "held by {now:?}");
                Ok(())
            })?;
            sampler.end()?;
        }
        let sampler = self.sampler();
        self.each_link(node, cut, false)?;
        holder(&sampler, |_| true)?;
        self.one_at_a_time(&format!("links that are back: {cut:?}"), &sampler.end()?)?;
        Ok(is_watched)
    }

    fn each_link(&self, node: &Node, cut: Cut, is_cut: bool) -> Result<()> {
        let change = |from: &Node, to: &Node| {
            if is_cut {
                self.nodes.lab.cut_link(&from.host, &to.host)
            } else {
                self.nodes.lab.restore_link(&from.host, &to.host)
            }
        };
        let others = self.nodes.all.iter();
        for other in others.filter(|other| other.host.spec.name != node.host.spec.name) {
            if cut != Cut::To {
                change(node, other)?;
            }
            if cut != Cut::From {
                change(other, node)?;
            }
        }
        Ok(())
    }
}

/// Repeats something until it returns `true`, which it does not while this machine is held up.
fn watched(mut act: impl FnMut() -> Result<bool>) -> Result<()> {
    for _ in 0..WATCHES {
        if act()? {
            return Ok(());
        }
    }
    bail!("this machine was held up in each of {WATCHES} attempts")
}

/// Waits until exactly one host holds the address, and it fits.
fn holder(sampler: &Sampler, fits: impl Fn(&str) -> bool) -> Result<String> {
    wait::until("one holder of the address", CHANGE, || {
        let now = sampler.samples().now();
        match (now.len(), now.first()) {
            (1, Some(name)) if fits(name) => Ok(name.clone()),
            _ => Err(anyhow!("held by {now:?}")),
        }
    })
}
