//! Scans while hosts leave and join the site of three control planes: at no moment do more ports
//! answer than the roles open, nor fewer between hosts that the command does not change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::net::Network;

use super::STRANGER;
use super::source::{ScanSource, Stranger};
use super::table::SSH;

/// The position of a source, as the rules see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// A control plane, which is a member of etcd.
    ControlPlane,
    /// A worker.
    Worker,
    /// Not a host of the site, in the network of the control plane.
    Plane,
    /// Not a host of the site, in the workload network.
    Workload,
}

use Position::{ControlPlane, Plane, Worker, Workload};

/// The hosts of the site, the first one first, and the virtual address.
const PLANES: &[&str] = &["cp-1", "cp-2", "cp-3"];
const ALL: &[&str] = &["cp-1", "cp-2", "cp-3", "worker-1"];
const VIP: &str = "the VIP";

/// The master and the bundle server, which are on one host, or on two while they move.
const MASTER: [u16; 2] = [4550, 4551];

/// The API, which answers while the cluster works.
const API: u16 = 6443;

/// A row of the table: ports, the hosts at whose control-plane address they answer, and the sources
/// that reach them.
type Row = (&'static [u16], &'static [&'static str], &'static [Position]);

/// The table, written by hand from the roles; without metrics-server only control planes reach a
/// kubelet.
const TABLE: &[Row] = &[
    (&[API], PLANES, &[ControlPlane, Worker, Plane]),
    (&[API], &[VIP], &[Worker, Plane]),
    // the master, or a standby
    (&[4550], PLANES, &[ControlPlane, Worker, Plane]),
    // etcd
    (&[2379, 2380], PLANES, &[ControlPlane]),
    // kubelet
    (&[10250], ALL, &[ControlPlane]),
];

/// The number of other ports that are probed each time.
const OTHERS: usize = 50;

/// The number of further scans of a port that should answer and does not.
const ATTEMPTS: usize = 3;

/// The ports that may answer at an address of a host; `masters` are the hosts that may have the
/// master.
fn allowed(host: &str, is_control_plane: bool, from: Position, masters: &[&str]) -> BTreeSet<u16> {
    let of_master = is_control_plane && masters.contains(&host) && from != Workload;
    let rows = TABLE.iter().filter(|(_, hosts, sources)| {
        is_control_plane && hosts.contains(&host) && sources.contains(&from)
    });
    // SSH belongs to the operator's own zone, at each address.
    rows.flat_map(|(ports, _, _)| ports.iter().copied())
        .chain(MASTER.into_iter().filter(|_| of_master))
        .chain([SSH])
        .collect()
}

/// The ports that are let through at each moment between hosts that a command does not change.
fn needed(host: &str, is_control_plane: bool, from: Position, masters: &[&str]) -> BTreeSet<u16> {
    let mut needed = allowed(host, is_control_plane, from, masters);
    if masters.len() > 1 {
        // It moves.
        needed.retain(|port| !MASTER.contains(port));
    }
    needed
}

/// One source and one address.
struct Ask<'a> {
    source: &'a ScanSource,
    from: Position,
    host: String,
    to: String,
    is_control_plane: bool,
    /// The command changes neither of the two.
    is_steady: bool,
}

/// The findings of the scans.
#[derive(Default)]
struct Found {
    /// More than in the table.
    wrong: BTreeSet<String>,
    /// Fewer than the roles open.
    closed: BTreeSet<String>,
    /// The number of scans of each pair, and of those in which its API answered.
    asked: BTreeMap<(String, String), (usize, usize)>,
}

/// Does something while all hosts and the virtual address are scanned repeatedly from each
/// position. `masters` are the hosts that may have the master at any moment, and `changed` those
/// that it removes, adds, or restarts.
///
/// # Errors
/// The action fails, a port answers that is not in the table, or a port in the table does not.
pub(crate) fn during<T>(
    cluster: &Cluster,
    vip: Ipv4Addr,
    masters: &[&str],
    changed: &[&str],
    act: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let vip = vip.to_string();
    let [plane, workload] = [Network::ControlPlane0, Network::Workload]
        .map(|network| Stranger::plug(cluster, network, STRANGER));
    let (plane, workload) = (plane?, workload?);
    // The one between them may be off.
    let (first, last) = (cluster.host(PLANES[0])?, cluster.host(PLANES[2])?);
    let (first, last) = (ScanSource::host(first), ScanSource::host(last));
    let worker = ScanSource::host(&cluster.worker);
    let sources = [
        (&first, ControlPlane),
        (&last, ControlPlane),
        (&worker, Worker),
        (&plane.source, Plane),
        (&workload.source, Workload),
    ];
    let asks = asks(cluster, &vip, &sources, changed);
    let ended = AtomicBool::new(false);
    let (outcome, found) = thread::scope(|scope| {
        let scans = scope.spawn(|| scan_until(&ended, &asks, masters));
        let outcome = act();
        ended.store(true, Ordering::Relaxed);
        (outcome, scans.join())
    });
    let outcome = outcome?;
    judge(&found.map_err(|_| anyhow!("the scans panicked"))??, &vip)?;
    Ok(outcome)
}

fn asks<'a>(
    cluster: &Cluster,
    vip: &str,
    sources: &[(&'a ScanSource, Position)],
    changed: &[&str],
) -> Vec<Ask<'a>> {
    let mut asks = Vec::new();
    let stays = |name: &str| !changed.contains(&name);
    for (source, from) in sources {
        let mut ask = |host: &str, to: String, is_control_plane| {
            asks.push(Ask {
                source,
                from: *from,
                host: host.to_owned(),
                to,
                is_control_plane,
                // The virtual address moves, and has no firewall of its own.
                is_steady: host != VIP && stays(host) && stays(&source.name),
            });
        };
        for host in cluster.hosts() {
            let name = host.spec.name.as_str();
            if name != source.name {
                ask(name, host.control_plane_address(), true);
                ask(name, host.workload_address(), false);
            }
        }
        // Its holder would reach itself, which no firewall sees.
        if *from != ControlPlane {
            ask(VIP, vip.to_owned(), true);
        }
    }
    asks
}

/// Scans each pair at least once, and until the end.
fn scan_until(ended: &AtomicBool, asks: &[Ask<'_>], masters: &[&str]) -> Result<Found> {
    let mut found = Found::default();
    // The same ports in each run.
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    loop {
        for ask in asks {
            let of_table = TABLE.iter().flat_map(|(ports, _, _)| ports.iter().copied());
            let others: Vec<u16> = (0..OTHERS).map(|_| random.port()).collect();
            let ports: BTreeSet<u16> = of_table.chain(MASTER).chain([SSH]).chain(others).collect();
            let answers = ask.source.among(&ask.to, &ports)?;
            let reached = answers.reached();
            let open = answers.open;
            let allowed = allowed(&ask.host, ask.is_control_plane, ask.from, masters);
            found.wrong.extend(open.difference(&allowed).map(|port| {
                format!(
                    "{} ({:?}) reaches port {port} of {} at {}",
                    ask.source.name, ask.from, ask.host, ask.to
                )
            }));
            if ask.is_steady {
                let needed = needed(&ask.host, ask.is_control_plane, ask.from, masters);
                let missed = needed.difference(&reached).copied().collect();
                found
                    .closed
                    .extend(still_closed(ask, missed)?.iter().map(|port| {
                        format!(
                            "{} ({:?}) does not reach port {port} of {} at {}",
                            ask.source.name, ask.from, ask.host, ask.to
                        )
                    }));
            }
            let pair = (ask.source.name.clone(), ask.to.clone());
            let (times, api) = found.asked.entry(pair).or_default();
            *times += 1;
            *api += usize::from(open.contains(&API));
            if ended.load(Ordering::Relaxed) && found.asked.len() == asks.len() {
                return Ok(found);
            }
        }
    }
}

/// Probes ports again that did not answer: a packet can get lost.
fn still_closed(ask: &Ask<'_>, mut missed: BTreeSet<u16>) -> Result<BTreeSet<u16>> {
    for _ in 0..ATTEMPTS {
        if missed.is_empty() {
            break;
        }
        let reached = ask.source.among(&ask.to, &missed)?.reached();
        missed.retain(|port| !reached.contains(port));
    }
    Ok(missed)
}

fn judge(found: &Found, vip: &str) -> Result<()> {
    let Found {
        wrong,
        closed,
        asked,
    } = found;
    let least = asked.values().map(|(times, _)| *times).min();
    println!(
        "  scans: {} pairs of a source and an address, each at least {} times",
        asked.len(),
        least.context("nothing was scanned")?
    );
    ensure!(wrong.is_empty(), "more than the roles open: {wrong:#?}");
    ensure!(closed.is_empty(), "fewer than the roles open: {closed:#?}");
    // Otherwise the scans would not have noticed an open port either.
    let mut of_vip = asked.iter().filter(|((_, to), _)| to == vip);
    ensure!(
        of_vip.any(|(_, (_, api))| *api > 0),
        "the API answered no scan: {asked:?}"
    );
    Ok(())
}

/// A generator of ports (xorshift, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn port(&mut self) -> u16 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u16::try_from(self.0 % u64::from(u16::MAX)).map_or(1, |port| port + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_position_has_its_ports() {
        let ports = |host, plane, from| {
            let allowed = allowed(host, plane, from, &["cp-1"]);
            allowed.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(ports("cp-1", true, Plane), [SSH, 4550, 4551, API]);
        assert_eq!(ports("cp-2", true, Worker), [SSH, 4550, API]);
        assert_eq!(
            ports("cp-2", true, ControlPlane),
            [SSH, 2379, 2380, 4550, API, 10250]
        );
        assert_eq!(ports("cp-2", false, ControlPlane), [SSH]);
        assert_eq!(ports("cp-1", false, Plane), [SSH]);
        assert_eq!(ports("cp-1", true, Workload), [SSH]);
        assert_eq!(ports("worker-1", true, Plane), [SSH]);
        assert_eq!(ports(VIP, true, Workload), [SSH]);
    }

    #[test]
    fn only_ports_that_move_with_the_master_may_be_closed() {
        let of_one = needed("cp-1", true, Plane, &["cp-1"]);
        assert_eq!(of_one, allowed("cp-1", true, Plane, &["cp-1"]));
        let of_two = needed("cp-1", true, Plane, &["cp-1", "cp-2"]);
        assert_eq!(of_two, BTreeSet::from([SSH, API]));
    }

    #[test]
    fn ports_are_spread() {
        let mut random = Random(1);
        let ports: BTreeSet<u16> = (0..1000).map(|_| random.port()).collect();
        assert!(ports.len() > 900 && !ports.contains(&0), "{}", ports.len());
        assert!(ports.first() < Some(&1000) && ports.last() > Some(&60_000));
    }
}
