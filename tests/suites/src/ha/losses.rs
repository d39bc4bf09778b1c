//! Losses of API servers and their hosts, under a write loop. Judged here are the properties that
//! hold on any machine: no acknowledged write is missing, writes succeed again, and one host holds
//! the address. The length of the gap on one machine is judged by the bench, which has the aims.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use super::{BACK, is_complete, pod, same_content};
use crate::availability::holders::Sampler;
use crate::availability::record::{Gap, WriteRecord, numbers};
use crate::availability::target::{Address, Identity, Target, WriteKind};
use crate::availability::writes::Loop;
use crate::test::Counts;

/// The address in the cluster document.
pub(super) const VIP: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 100);
/// The name that resolves to it, in the certificate of each API server.
pub(super) const NAME: &str = "api.demo.internal";
/// The `kubernetes` Service, which has the first address of the network of services.
const SERVICE: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 96, 0, 1), 443);
/// Limit of the gap between two writes, whatever is lost: three times the sum of the time limits
/// that may expire in it. They are the check of an API server that is slow (`interval` and
/// `timeout` of keepalived: 4 s), missed advertisements (three and a part of a fourth, 0.5 s each:
/// 2 s), an election of etcd that is repeated once (2 s), and two requests of the client (1 s
/// each). In a longer gap nothing took over.
pub(crate) const GAP: Duration = Duration::from_secs(3 * (4 + 2 + 2 + 2));
/// The same behind the proxies, which try another API server at once: three times the aim of the
/// bench. A run in which the machine was held up is repeated.
const PROXY: Duration = Duration::from_secs(3);
/// Limit of the time in which two hosts hold the address: three intervals of advertisements
/// (`advert_int`), of which one ends it. A host that gives it up on purpose still answers at it for
/// two of them (`halite.host.keepalived.aside`). While this machine is held up, no host can release
/// the address.
const SHARED: Duration = Duration::from_millis(3 * 500);
/// Time between two samples of the holders from which on the machine itself was held up.
const HELD_UP: Duration = Duration::from_millis(500);
/// The namespace of the write loop's ConfigMaps.
pub(super) const NAMESPACE: &str = "writes";

/// The client's path to the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiPath {
    /// The virtual address.
    Vip,
    /// The proxy of its own host.
    Proxy,
    /// The `kubernetes` Service, from a pod on the worker.
    Service,
    /// The name of the API, wherever it resolves on the worker at that moment.
    Name,
}

/// The outcome of a loss.
#[derive(Debug)]
pub struct Measured {
    /// The number of acknowledged writes.
    pub acknowledged: usize,
    /// The longest time without an acknowledged write.
    pub gap: Gap,
    /// The hosts that held the address at some time in it.
    pub gap_holders: BTreeSet<String>,
    /// The failures of all writes, in other gaps too.
    pub errors: BTreeSet<String>,
    /// The hosts that held the address at some time.
    pub holders: BTreeSet<String>,
    /// The longest time in which two hosts held the address.
    pub shared: Duration,
    /// The longest time between two samples of the holders, which should be 20 ms apart.
    pub pause: Duration,
}

impl Measured {
    /// Measures, and checks the result. If a limit is exceeded while the machine itself was held
    /// up, it is measured once more.
    pub(super) fn check_of(
        what: &str,
        limit: Duration,
        measure: impl Fn() -> Result<Self>,
    ) -> Result<()> {
        let measured = measure()?;
        match measured.check(what, limit) {
            Err(error) if measured.was_held_up() => {
                println!(
                    "  {what}: again, this machine was held up for {} ms: {error:#}",
                    measured.pause.as_millis()
                );
                measure()?.check(what, limit)
            }
            checked => checked,
        }
    }

    /// Returns whether the machine itself was held up in that time.
    pub(super) fn was_held_up(&self) -> bool {
        self.pause > HELD_UP
    }

    /// Prints the figures.
    pub(super) fn print(&self, what: &str) {
        println!(
            "  {what}: {} writes acknowledged, longest gap {:.1} s; two holders for {} ms",
            self.acknowledged,
            self.gap.length.as_secs_f64(),
            self.shared.as_millis()
        );
    }

    /// Prints the figures, and fails if a limit is exceeded.
    pub(crate) fn check(&self, what: &str, limit: Duration) -> Result<()> {
        self.print(what);
        let Self {
            gap, shared, pause, ..
        } = self;
        ensure!(
            gap.length <= limit,
            "a gap of {:?}: {:?}",
            gap.length,
            gap.errors
        );
        ensure!(
            *shared <= SHARED + *pause,
            "two holders for {shared:?}, of which this machine was held up for {pause:?} at most"
        );
        Ok(())
    }
}

/// Cuts the power of the host with the address (behind proxies, of the last control plane), and
/// switches it on again.
///
/// # Errors
/// An acknowledged write is missing, or the host does not come back.
pub fn power(cluster: &Cluster, way: ApiPath) -> Result<Measured> {
    let mut lost = Vec::new();
    let measured = under_writes(cluster, way, "power-cut", |holder| {
        lost.push(holder.spec.name.clone());
        cluster.lab.power_off(&lost, false)
    })?;
    cluster.lab.power_on(&lost)?;
    wait::until("the lost host to be back", BACK, || is_complete(cluster))?;
    same_content(cluster)?;
    Ok(measured)
}

/// Kills the API server of the host with the address. Another host takes the address long before
/// the API server is back.
///
/// # Errors
/// An acknowledged write is missing, no other host takes the address, or the API server does not
/// come back.
pub fn api_server(cluster: &Cluster) -> Result<Measured> {
    let mut lost = String::new();
    let measured = under_writes(cluster, ApiPath::Vip, "api-server", |holder| {
        lost.clone_from(&holder.spec.name);
        kill(holder, "kube-apiserver")
    })?;
    ensure!(
        measured.holders.iter().any(|holder| *holder != lost),
        "no host took the address from {lost}, whose API server was killed"
    );
    wait::until("the API server to be back", BACK, || is_complete(cluster))?;
    Ok(measured)
}

/// Kills the keepalived of the host with the address.
///
/// # Errors
/// An acknowledged write is missing, or no host holds the address afterwards.
pub fn keepalived(cluster: &Cluster) -> Result<Measured> {
    let measured = under_writes(cluster, ApiPath::Vip, "keepalived", |holder| {
        kill(holder, "keepalived")
    })?;
    wait_for_one_holder(cluster)?;
    Ok(measured)
}

/// Kills the API server of a host, while the worker writes through its proxy.
///
/// # Errors
/// An acknowledged write is missing, or the API server does not come back.
pub fn behind_the_proxy(cluster: &Cluster, host: &Host) -> Result<Measured> {
    let prefix = format!("proxy-{}", host.spec.name);
    let measured = under_writes(cluster, ApiPath::Proxy, &prefix, |_| {
        kill(host, "kube-apiserver")
    })?;
    wait::until("the API server to be back", BACK, || is_complete(cluster))?;
    Ok(measured)
}

pub(super) fn of_power(cluster: &Cluster) -> Result<Counts> {
    Measured::check_of("power-cut", GAP, || power(cluster, ApiPath::Vip))?;
    Ok(Counts::ONE)
}

pub(super) fn of_the_api_server(cluster: &Cluster) -> Result<Counts> {
    Measured::check_of("api-server", GAP, || api_server(cluster))?;
    Ok(Counts::ONE)
}

pub(super) fn of_keepalived(cluster: &Cluster) -> Result<Counts> {
    Measured::check_of("keepalived", GAP, || keepalived(cluster))?;
    Ok(Counts::ONE)
}

pub(super) fn of_proxies(cluster: &Cluster) -> Result<Counts> {
    for host in cluster.control_planes() {
        let what = format!("proxy-{}", host.spec.name);
        Measured::check_of(&what, PROXY, || behind_the_proxy(cluster, host))?;
    }
    Ok(Counts::ONE)
}

/// Kills the processes of that name.
pub(super) fn kill(host: &Host, name: &str) -> Result<()> {
    let line = format!(
        "killed=; for comm in /proc/[0-9]*/comm; do if [ \"$(cat $comm 2>/dev/null)\" = {name} ]; then pid=${{comm%/comm}}; \
         kill -KILL ${{pid#/proc/}} && killed=1; fi; done; [ -n \"$killed\" ]"
    );
    host.sh(&line)
        .with_context(|| format!("no {name} to kill"))?;
    Ok(())
}

/// Waits until one control plane holds the address; returns its name.
pub(super) fn wait_for_one_holder(cluster: &Cluster) -> Result<String> {
    let sampler = Sampler::start(&cluster.control_planes(), VIP);
    let found = wait::until("one holder of the address", BACK, || {
        let now = sampler.samples().now();
        match (now.len(), now.first()) {
            (1, Some(name)) => Ok(name.clone()),
            _ => Err(anyhow!("held by {now:?}")),
        }
    });
    sampler.end()?;
    found
}

/// Does something to the holder of the address (behind proxies, and if the client follows the name,
/// to the last control plane) while a client writes. No acknowledged write may be missing.
pub(super) fn under_writes(
    cluster: &Cluster,
    way: ApiPath,
    prefix: &str,
    lose: impl FnOnce(&Host) -> Result<()>,
) -> Result<Measured> {
    let planes = cluster.control_planes();
    let holder = || cluster.host(&wait_for_one_holder(cluster)?);
    let last = || planes.last().copied().context("no control plane");
    let fixed = |address: (Ipv4Addr, u16)| Address::Fixed(address.into());
    let (lost, address) = match way {
        ApiPath::Vip => (holder()?, at_vip()),
        ApiPath::Proxy => (last()?, fixed((Ipv4Addr::LOCALHOST, 6443))),
        ApiPath::Service => (holder()?, fixed(SERVICE)),
        ApiPath::Name => (last()?, Address::Hosts(cluster.worker.file("/etc/hosts"))),
    };
    // The last, because the first may be the one that leaves.
    let mut others = planes.iter().rev();
    let rest = others.find(|host| host.spec.name != lost.spec.name);
    let rest = rest.context("no other control plane")?;
    let start = |target: &Target| match way {
        ApiPath::Vip | ApiPath::Proxy | ApiPath::Name => Loop::start(&cluster.worker, target),
        ApiPath::Service => Loop::start_in(&pod::network(cluster, NAMESPACE)?, target),
    };
    sampled(cluster, || {
        written(cluster, rest, address, prefix, start, || lose(lost))
    })
}

/// Does something while the worker writes to the virtual address; `asked` is a control plane that
/// stays, from which the written objects are read. No acknowledged write may be missing.
pub(crate) fn at_the_vip(
    cluster: &Cluster,
    asked: &Host,
    prefix: &str,
    act: impl FnOnce() -> Result<()>,
) -> Result<Measured> {
    let start = |target: &Target| Loop::start(&cluster.worker, target);
    sampled(cluster, || {
        written(cluster, asked, at_vip(), prefix, start, act)
    })
}

/// The same with a client on the lab's router: it writes whichever host is lost.
pub(crate) fn from_the_router(
    cluster: &Cluster,
    asked: &Host,
    prefix: &str,
    act: impl FnOnce() -> Result<()>,
) -> Result<Measured> {
    let start = |target: &Target| Loop::start_at_router(&cluster.lab.router, target);
    sampled(cluster, || {
        written(cluster, asked, at_vip(), prefix, start, act)
    })
}

/// Measures writes and the hosts that hold the address in that time.
fn sampled(cluster: &Cluster, write: impl FnOnce() -> Result<WriteRecord>) -> Result<Measured> {
    let start = Instant::now();
    let sampler = Sampler::start(&cluster.control_planes(), VIP);
    let record = write()?;
    let held = sampler.end()?;
    let gap = record.longest_gap();
    // The times of the writes count from the start of their loop.
    let writes = record.started.unwrap_or(start);
    let from = writes.saturating_duration_since(start) + gap.from;
    Ok(Measured {
        acknowledged: record.acknowledged().len(),
        gap_holders: held.holders_between(from, from + gap.length),
        gap,
        errors: record.errors(),
        holders: held.holders(),
        shared: held.longest_shared(),
        pause: held.longest_pause(),
    })
}

/// Does something while the worker writes to the API server of a host. No acknowledged write may be
/// missing there; the host stays a control plane.
///
/// # Errors
/// A write is missing, or the action fails.
pub(crate) fn while_written(
    cluster: &Cluster,
    asked: &Host,
    prefix: &str,
    act: impl FnOnce() -> Result<()>,
) -> Result<WriteRecord> {
    let start = |target: &Target| Loop::start(&cluster.worker, target);
    let address: Ipv4Addr = asked.control_plane_address().parse()?;
    let address = Address::Fixed((address, 6443).into());
    written(cluster, asked, address, prefix, start, act)
}

/// Does something while a client writes to that address; the written objects are read from `rest`.
fn written(
    cluster: &Cluster,
    rest: &Host,
    address: Address,
    prefix: &str,
    start: impl FnOnce(&Target) -> Result<Loop>,
    act: impl FnOnce() -> Result<()>,
) -> Result<WriteRecord> {
    let writer = ConfigMapWriter::start(cluster, rest, address, prefix, start)?;
    let before = writer.listed()?.len();
    act()?;
    writer.adds_to(before)?;
    writer.end()
}

/// A client that writes ConfigMaps until it is ended.
pub(crate) struct ConfigMapWriter<'c> {
    cluster: &'c Cluster,
    /// The control plane from which the written objects are read.
    asked: &'c Host,
    prefix: String,
    writes: Loop,
}

impl<'c> ConfigMapWriter<'c> {
    /// Starts it on the worker, with the virtual address.
    pub(super) fn on_the_worker(
        cluster: &'c Cluster,
        asked: &'c Host,
        prefix: &str,
    ) -> Result<Self> {
        let start = |target: &Target| Loop::start(&cluster.worker, target);
        Self::start(cluster, asked, at_vip(), prefix, start)
    }

    /// Starts it on the lab's router, with the virtual address. It keeps writing, whichever host is
    /// lost.
    pub(crate) fn at_the_router(
        cluster: &'c Cluster,
        asked: &'c Host,
        prefix: &str,
    ) -> Result<Self> {
        let start = |target: &Target| Loop::start_at_router(&cluster.lab.router, target);
        Self::start(cluster, asked, at_vip(), prefix, start)
    }

    /// Waits until it has written.
    fn start(
        cluster: &'c Cluster,
        asked: &'c Host,
        address: Address,
        prefix: &str,
        start: impl FnOnce(&Target) -> Result<Loop>,
    ) -> Result<Self> {
        // It may exist from an earlier attempt.
        let name = asked.spec.name.as_str();
        cluster.kubectl_on(
            name,
            &["delete", "namespace", NAMESPACE, "--ignore-not-found"],
        )?;
        cluster.kubectl_on(name, &["create", "namespace", NAMESPACE])?;
        let target = Target {
            kind: WriteKind::Kubernetes {
                namespace: NAMESPACE.to_owned(),
            },
            url: format!("https://{NAME}:6443"),
            address: Some(address),
            prefix: prefix.to_owned(),
            identity: Some(administrator(asked)?),
        };
        let writer = Self {
            cluster,
            asked,
            prefix: prefix.to_owned(),
            writes: start(&target)?,
        };
        wait::until("the first writes", Duration::from_secs(60), || {
            let count = writer.listed()?.len();
            ensure!(count > 20, "{count} writes");
            Ok(())
        })?;
        Ok(writer)
    }

    /// The numbers of the written objects that exist.
    fn listed(&self) -> Result<BTreeSet<u64>> {
        let names = config_maps(self.cluster, self.asked)?;
        Ok(numbers(&self.prefix, names.lines()))
    }

    /// Waits until it writes again. The API must answer again.
    ///
    /// # Errors
    /// It does not write.
    pub(crate) fn continues(&self) -> Result<()> {
        self.adds_to(self.listed()?.len())
    }

    /// Waits until 100 more objects exist than `before`.
    fn adds_to(&self, before: usize) -> Result<()> {
        wait::until("further writes", BACK, || {
            let count = self.listed()?.len();
            ensure!(count > before + 100, "{count} writes, {before} before");
            Ok(())
        })
    }

    /// Ends it, and deletes its objects. The API must answer again.
    ///
    /// # Errors
    /// An acknowledged write is missing.
    pub(crate) fn end(self) -> Result<WriteRecord> {
        let Self {
            cluster,
            asked,
            prefix,
            writes,
        } = self;
        let record = writes.end()?;
        let names = config_maps(cluster, asked)?;
        let missing = record.missing(&numbers(&prefix, names.lines()));
        ensure!(missing.is_empty(), "acknowledged but missing: {missing:?}");
        cluster.kubectl_on(&asked.spec.name, &["delete", "namespace", NAMESPACE])?;
        Ok(record)
    }
}

/// The virtual address of the API.
fn at_vip() -> Address {
    Address::Fixed((VIP, 6443).into())
}

/// The identity in the kubeconfig file of a control plane's root.
pub(super) fn administrator(host: &Host) -> Result<Identity> {
    let text = fs::read_to_string(host.file("/etc/kubernetes/admin.conf"))?;
    let extract = |key: &str, name: &str| -> Result<PathBuf> {
        let value = text.lines().find_map(|line| line.trim().strip_prefix(key));
        let value = value.with_context(|| format!("no {key} in admin.conf"))?;
        let file = host.file(&format!("/root/loop-{name}.pem"));
        fs::write(&file, STANDARD.decode(value.trim().trim_matches('"'))?)?;
        Ok(file)
    };
    Ok(Identity {
        authority: extract("certificate-authority-data:", "authority")?,
        certificate: extract("client-certificate-data:", "certificate")?,
        key: extract("client-key-data:", "key")?,
    })
}

/// Names of the ConfigMaps, queried on a host that is on.
fn config_maps(cluster: &Cluster, host: &Host) -> Result<String> {
    let name = "-o=custom-columns=NAME:.metadata.name";
    let words = ["get", "configmaps", "-n", NAMESPACE, "--no-headers", name];
    cluster.kubectl_on(&host.spec.name, &words)
}
