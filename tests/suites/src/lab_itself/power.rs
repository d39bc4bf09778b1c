//! The power switches of the lab: off and on again with the disks, without them, and with the
//! previous ones.

use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::host::Host;
use halite_lab::{Lab, command, wait};

use super::{bare, bare_host};
use crate::availability::holders::Sampler;
use crate::test::Counts;

/// Directories of the marker: on the host's overlay, and on a separate disk.
const MARKER: [&str; 2] = ["/root/marker", "/var/lib/etcd/marker"];

/// The host's path of the directory that the operator carried.
const CARRIED: &str = "/media/halite";

/// Limit for the sampler to see a change.
const LIMIT: Duration = Duration::from_secs(30);

/// An address that is moved between the hosts, like the VIP.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 100);

/// The state that remains when the disks are destroyed.
#[derive(Debug, PartialEq, Eq)]
struct Remains {
    name: String,
    network: String,
    carried: String,
}

impl Remains {
    fn of(host: &Host) -> Result<Self> {
        Ok(Self {
            name: host.run(&["hostname"])?,
            network: host.sh("cat /sys/class/net/eth?/address; ip -4 -o addr; ip route")?,
            carried: host.sh(&format!(
                "cat {CARRIED}/file; ! touch {CARRIED}/file 2>/dev/null"
            ))?,
        })
    }
}

/// Kills the container manager of a host, as the kernel does when memory is short.
pub(super) fn without_its_manager((): &()) -> Result<Counts> {
    let (lab, host) = bare("orphan")?;
    let init = host.is_on()?;
    let manager = host.nspawn().context("no container manager runs")?;
    command::run("kill", &["-9".to_owned(), manager.to_string()])?;
    wait::until("the container manager to exit", LIMIT, || {
        ensure!(host.nspawn().is_none(), "it still runs");
        Ok(())
    })?;
    ensure!(
        host.init() == Some(init),
        "the host is off for the lab: {:?} is not {init}",
        host.init()
    );
    host.sh("systemctl is-system-running --wait | grep -E 'running|degraded'")?;
    let name = [host.spec.name.clone()];
    lab.power_off(&name, false)?;
    ensure!(host.init().is_none(), "the host runs without power");
    lab.power_on(&name)?;
    host.sh("true")?;
    lab.down()?;
    Ok(Counts::ONE)
}

/// Powers two hosts off at the same moment, and one of them with its disks.
pub(super) fn switched((): &()) -> Result<Counts> {
    let carried = tempfile::tempdir()?;
    fs::write(carried.path().join("file"), "carried\n")?;
    let (lab, other) = bare("switches")?;
    let mut spec = bare_host("cp-1", 12);
    spec.read_only = vec![(carried.path().to_owned(), CARRIED.into())];
    let host = lab.boot(spec)?;
    for marker in MARKER {
        for host in [&host, &other] {
            host.sh(&format!("echo here > {marker}"))?;
        }
    }
    let (id, remains) = (machine_id(&host)?, Remains::of(&host)?);
    let names = |list: &[&str]| {
        list.iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let (both, one) = (names(&["bootstrap-1", "cp-1"]), names(&["cp-1"]));
    refused(&lab, &both)?;
    sampled(&host, &other)?;

    lab.power_off(&both, false)?;
    ensure!(
        host.init().is_none() && other.init().is_none(),
        "a host that was powered off runs"
    );
    says(lab.power_off(&one, false), "cp-1 is off already")?;
    lab.power_on(&both)?;
    for host in [&host, &other] {
        for marker in MARKER {
            host.run(&["test", "-s", marker])?;
        }
    }
    ensure!(
        machine_id(&host)? == id && Remains::of(&host)? == remains,
        "the host is another one: {:?}",
        Remains::of(&host)?
    );

    // Disks that were set aside are unchanged when they are restored.
    let on = host.put_disks_aside("old");
    says(on, "cannot put the disks of cp-1 aside: it is on")?;
    lab.power_off(&one, false)?;
    host.put_disks_aside("old")?;
    lab.power_on(&one)?;
    host.run(&["test", "!", "-e", MARKER[0]])?;
    host.run(&["test", "!", "-e", MARKER[1]])?;
    ensure!(
        machine_id(&host)? != id,
        "a bare host has the machine-id {id}"
    );
    lab.power_off(&one, true)?;
    host.bring_disks_back("old")?;
    lab.power_on(&one)?;
    for marker in MARKER {
        host.run(&["test", "-s", marker])?;
    }
    ensure!(
        machine_id(&host)? == id && Remains::of(&host)? == remains,
        "the previous host has changed: {:?}",
        Remains::of(&host)?
    );

    // The disks may be destroyed later than the power is cut.
    lab.power_off(&one, false)?;
    lab.power_off(&one, true)?;
    says(
        lab.power_off(&one, true),
        "cp-1 is off already and has no disks",
    )?;
    ensure!(
        lab.host("cp-1")?.spec == host.spec,
        "the lab has forgotten the host's parameters"
    );
    lab.power_on(&one)?;
    for marker in MARKER {
        host.run(&["test", "!", "-e", marker])?;
        other.run(&["test", "-s", marker])?;
    }
    ensure!(
        machine_id(&host)? != id,
        "a host with new disks has the machine-id {id} of the old ones"
    );
    ensure!(
        Remains::of(&host)? == remains,
        "was {remains:?}, is {:?}",
        Remains::of(&host)?
    );
    lab.nothing_tried_to_leave()?;
    lab.down()?;
    Ok(Counts::ONE)
}

/// An address goes from a host to both and to the other; the sampler sees each step, and in the end
/// that a host without its address holds nothing.
fn sampled(host: &Host, other: &Host) -> Result<()> {
    let sampler = Sampler::start(&[host, other], ADDRESS);
    wait::until("the first sample", LIMIT, || {
        ensure!(!sampler.samples().changes().is_empty(), "there is none");
        Ok(())
    })?;
    let address = format!("{ADDRESS}/32");
    for (change, at, holders) in [
        ("add", host, &["cp-1"][..]),
        ("add", other, &["bootstrap-1", "cp-1"]),
        ("del", host, &["bootstrap-1"]),
        ("del", other, &[]),
    ] {
        at.run(&["ip", "addr", change, &address, "dev", "eth0"])?;
        wait::until("the sampler to see it", LIMIT, || {
            let now = sampler.samples().now();
            ensure!(now.iter().eq(holders), "it sees {now:?}");
            Ok(())
        })?;
    }
    let samples = sampler.end()?;
    ensure!(
        samples.changes().len() == 5 && !samples.longest_shared().is_zero(),
        "changes that were not made: {samples:?}"
    );
    Ok(())
}

fn refused(lab: &Lab, on: &[String]) -> Result<()> {
    says(lab.power_on(on), "bootstrap-1 is on already")?;
    let unknown = ["bootstrap-1".to_owned(), "cp-7".to_owned()];
    for answer in [lab.power_on(&unknown), lab.power_off(&unknown, true)] {
        says(answer, "has no host \"cp-7\"; it has: bootstrap-1, cp-1")?;
    }
    Ok(())
}

fn says(answer: Result<()>, part: &str) -> Result<()> {
    let error = answer.err().context("a switch did not refuse")?;
    ensure!(
        error.to_string().contains(part),
        "no {part:?} in: {error:#}"
    );
    Ok(())
}

/// The machine-id, which the bus and the journal must have too.
fn machine_id(host: &Host) -> Result<String> {
    let id = host.run(&["cat", "/etc/machine-id"])?.trim().to_owned();
    let bus = host.run(&["cat", "/var/lib/dbus/machine-id"])?;
    let journal = host.run(&["ls", "/var/log/journal"])?;
    ensure!(
        id.len() == 32 && [&bus, &journal].iter().all(|other| other.trim() == id),
        "the machine-id is {id:?}, the bus's is {bus:?}, the journal's {journal:?}"
    );
    Ok(id)
}
