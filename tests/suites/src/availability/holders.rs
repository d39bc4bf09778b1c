//! A sampler of the hosts that hold an address, such as the VIP, by the kernels' own tables.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Result, anyhow};
use halite_lab::host::Host;

/// Time from one sample to the next.
const INTERVAL: Duration = Duration::from_millis(20);

/// The samples of a time, as the changes from one set of holders to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Samples {
    /// The times, from the start of the sampler, at which the holders were found to have changed.
    changes: Vec<(Duration, BTreeSet<String>)>,
    /// The time of the last sample.
    last: Duration,
    /// The longest time between two samples: a change in it was noticed late.
    pause: Duration,
}

impl Samples {
    fn add(&mut self, at: Duration, holders: BTreeSet<String>) {
        if self.changes.last().is_none_or(|(_, last)| *last != holders) {
            self.changes.push((at, holders));
        }
        self.pause = self.pause.max(at.saturating_sub(self.last));
        self.last = at;
    }

    /// The holders of the last sample.
    #[must_use]
    pub fn now(&self) -> BTreeSet<String> {
        let last = self.changes.last();
        last.map(|(_, holders)| holders.clone()).unwrap_or_default()
    }

    /// The changes, the first sample included.
    #[must_use]
    pub fn changes(&self) -> &[(Duration, BTreeSet<String>)] {
        &self.changes
    }

    /// The hosts that held the address at some time.
    #[must_use]
    pub fn holders(&self) -> BTreeSet<String> {
        let holders = self.changes.iter().flat_map(|(_, holders)| holders);
        holders.cloned().collect()
    }

    /// The hosts that held the address at some time between these two.
    #[must_use]
    pub fn holders_between(&self, from: Duration, to: Duration) -> BTreeSet<String> {
        let before = self.changes.iter().rposition(|(at, _)| *at <= from);
        let during = self.changes.iter().skip(before.unwrap_or_default());
        let during = during.take_while(|(at, _)| *at <= to);
        during.flat_map(|(_, holders)| holders).cloned().collect()
    }

    /// The longest time for which no host held the address.
    #[must_use]
    pub fn longest_free(&self) -> Duration {
        self.longest(|holders| holders == 0)
    }

    /// The longest time for which several hosts held the address.
    #[must_use]
    pub fn longest_shared(&self) -> Duration {
        self.longest(|holders| holders > 1)
    }

    /// The precision of the times.
    #[must_use]
    pub fn longest_pause(&self) -> Duration {
        self.pause
    }

    /// The longest time in which the number of holders fits without interruption.
    fn longest(&self, fits: impl Fn(usize) -> bool) -> Duration {
        let (mut longest, mut since) = (Duration::ZERO, None);
        let mut until = |since: Option<Duration>, time: Duration| {
            let length = since.map_or(Duration::ZERO, |since| time.saturating_sub(since));
            longest = longest.max(length);
        };
        for (at, holders) in &self.changes {
            if fits(holders.len()) {
                since.get_or_insert(*at);
            } else {
                until(since.take(), *at);
            }
        }
        until(since, self.last);
        longest
    }
}

/// A network that may hold an address.
pub(crate) struct Network {
    /// The name of its host.
    pub(crate) name: String,
    /// A process in it, if there is one.
    pub(crate) process: Box<dyn Fn() -> Option<u32> + Send>,
}

/// A running sampler.
#[derive(Debug)]
pub struct Sampler {
    samples: Arc<Mutex<Samples>>,
    alive: Sender<()>,
    thread: JoinHandle<()>,
}

impl Sampler {
    /// Starts to sample which hosts hold the address. A host without power holds nothing.
    #[must_use]
    pub fn start(hosts: &[&Host], address: Ipv4Addr) -> Self {
        let networks = hosts.iter().map(|host| {
            let (name, host) = (host.spec.name.clone(), (*host).clone());
            Network {
                name,
                process: Box::new(move || host.init()),
            }
        });
        Self::of_networks(networks.collect(), address)
    }

    /// The same for the networks of any processes.
    #[must_use]
    pub(crate) fn of_networks(networks: Vec<Network>, address: Ipv4Addr) -> Self {
        let samples = Arc::new(Mutex::new(Samples::default()));
        let (alive, end) = channel::<()>();
        let shared = Arc::clone(&samples);
        let thread = thread::spawn(move || {
            let start = Instant::now();
            let mut next = Duration::ZERO;
            while end.recv_timeout(next.saturating_sub(start.elapsed()))
                == Err(RecvTimeoutError::Timeout)
            {
                let at = start.elapsed();
                let found = holders(&networks, address);
                let mut samples = shared.lock().unwrap_or_else(PoisonError::into_inner);
                samples.add(at, found);
                next = at + INTERVAL;
            }
        });
        Self {
            samples,
            alive,
            thread,
        }
    }

    /// The samples so far.
    #[must_use]
    pub fn samples(&self) -> Samples {
        let samples = self.samples.lock();
        samples.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops it and returns all samples.
    pub fn end(self) -> Result<Samples> {
        drop(self.alive);
        self.thread
            .join()
            .map_err(|_| anyhow!("the sampler panicked"))?;
        let samples = self.samples.lock();
        Ok(samples.unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn holders(networks: &[Network], address: Ipv4Addr) -> BTreeSet<String> {
    let holds = |network: &&Network| {
        // A host that loses its power in between has no table.
        (network.process)()
            .and_then(|process| fs::read_to_string(format!("/proc/{process}/net/fib_trie")).ok())
            .is_some_and(|table| is_local(&table, address))
    };
    let holding = networks.iter().filter(holds);
    holding.map(|network| network.name.clone()).collect()
}

/// Returns whether a kernel's table (`/proc/net/fib_trie`) has the address as one of its own.
fn is_local(table: &str, address: Ipv4Addr) -> bool {
    let leaf = format!("|-- {address}");
    let mut lines = table.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if line == leaf
            && lines
                .by_ref()
                .take_while(|line| line.starts_with('/'))
                .any(|line| line.ends_with("host LOCAL"))
        {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As printed by Linux 6, shortened.
    const TABLE: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     |-- 10.10.0.101
        /32 link UNICAST
     |-- 10.10.0.0
        /24 link UNICAST
Local:
  +-- 10.10.0.0/24 2 0 2
     +-- 10.10.0.0/28 2 0 2
        |-- 10.10.0.11
           /32 host LOCAL
     |-- 10.10.0.100
        /32 link UNICAST
        /32 host LOCAL
     |-- 10.10.0.255
        /32 link BROADCAST
";

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn samples(list: &[(u64, &[&str])]) -> Samples {
        let mut samples = Samples::default();
        for (time, holders) in list {
            samples.add(at(*time), holders.iter().map(|h| (*h).to_owned()).collect());
        }
        samples
    }

    #[test]
    fn only_an_address_of_the_host_itself_is_held() {
        for held in ["10.10.0.11", "10.10.0.100"] {
            assert!(is_local(TABLE, held.parse().unwrap()), "{held}");
        }
        // A route to a host, the network, its broadcast address, the start of another address.
        for other in [
            "10.10.0.101",
            "10.10.0.0",
            "10.10.0.255",
            "10.10.0.10",
            "10.10.0.1",
        ] {
            assert!(!is_local(TABLE, other.parse().unwrap()), "{other}");
        }
    }

    #[test]
    fn an_address_that_moves_is_free_or_shared_for_a_time() {
        let moved = samples(&[
            (0, &["cp-1"]),
            (20, &["cp-1"]),
            (40, &[]),
            (60, &[]),
            (100, &["cp-2"]),
            (120, &["cp-1", "cp-2"]),
            (140, &["cp-1", "cp-3"]),
            (160, &["cp-1"]),
        ]);
        assert_eq!(moved.longest_free(), at(60));
        // Which two they are does not matter.
        assert_eq!(moved.longest_shared(), at(40));
        assert_eq!(moved.longest_pause(), at(40));
        assert_eq!(moved.now(), ["cp-1".to_owned()].into());
        assert_eq!(moved.changes().len(), 6);
        assert_eq!(
            moved.holders(),
            ["cp-1", "cp-2", "cp-3"].map(str::to_owned).into()
        );
        let between = |from, to| moved.holders_between(at(from), at(to)).into_iter();
        assert!(between(10, 90).eq(["cp-1"]));
        assert!(between(50, 110).eq(["cp-2"]));
        assert!(between(130, 170).eq(["cp-1", "cp-2", "cp-3"]));
        assert!(between(200, 300).eq(["cp-1"]));
    }

    #[test]
    fn a_time_until_the_end_counts() {
        assert_eq!(
            samples(&[(0, &["a"]), (20, &[]), (80, &[])]).longest_free(),
            at(60)
        );
        assert_eq!(
            samples(&[(0, &["a", "b"]), (50, &["a", "b"])]).longest_shared(),
            at(50)
        );
        assert_eq!(samples(&[(0, &["a"]), (50, &["a"])]).longest_free(), at(0));
    }
}
