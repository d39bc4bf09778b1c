//! The lab itself. A detector that detects nothing, or a power cut that leaves processes running,
//! would make every other test worthless.

mod bare_root;
mod link;
mod power;
mod root;
mod tour;

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use halite_lab::host::{Host, Spec};
use halite_lab::net::namespace_exists;
use halite_lab::{Lab, base, capacity, command, prerequisites, wait};

use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<()>] = &[
    Test {
        name: "lab: both detectors detect",
        run: detectors,
    },
    Test {
        name: "lab: a power cut loses everything but the disk",
        run: power_cut,
    },
    Test {
        name: "lab: a host that was powered off comes back unchanged, or bare without its disks",
        run: power::switched,
    },
    Test {
        name: "lab: a link is cut in one direction or in both",
        run: link::cut,
    },
    Test {
        name: "lab: the programs work in a root without any library",
        run: bare_root::works,
    },
    Test {
        name: "lab: try shows a diff, repairs drift, and leaves nothing when it is taken down",
        run: tour::works,
    },
];

/// The additional tests of `--full`.
pub(super) const FULL: &[Test<()>] = &[
    Test {
        name: "lab: the shipped programs work in a root without any library",
        run: bare_root::shipped_works,
    },
    Test {
        name: "lab: a host whose container manager has died is on, and its power can be cut",
        run: power::without_its_manager,
    },
];

fn quiet(_: &str) {}

/// Makes a separate lab with one bare host.
fn bare(name: &str) -> Result<(Lab, Host)> {
    prerequisites::ensure(&mut quiet)?;
    let base = base::ensure(&halite_lab::cache(), &mut quiet)?;
    let lab = Lab::new(name, &base)?;
    lab.down()?;
    let host = lab.boot(bare_host("bootstrap-1", 11))?;
    Ok((lab, host))
}

/// A host on which nothing will be installed.
pub(crate) fn bare_host(name: &str, number: u8) -> Spec {
    Spec {
        name: name.to_owned(),
        number,
        second_network: false,
        read_only: Vec::new(),
        inotify: capacity::BARE,
        roles: Vec::new(),
        base: None,
    }
}

fn detectors((): &()) -> Result<Counts> {
    let (lab, host) = bare("detect")?;
    ensure!(
        lab.router.unexpected_names()?.is_empty(),
        "the router saw a name lookup before the first one was made"
    );
    let before = lab.router.escaped()?;
    // Documentation address (RFC 5737): no host has it, and the router rejects the packet.
    host.output(&["ping", "-c", "1", "-W", "1", "192.0.2.1"])?;
    ensure!(
        lab.router.escaped()? > before,
        "the egress counter missed a packet to 192.0.2.1"
    );
    host.output(&["getent", "hosts", "registry.example"])?;
    wait::until(
        "the resolver to have recorded the query",
        Duration::from_secs(15),
        || {
            let names = lab.router.unexpected_names()?;
            if names.iter().any(|n| n == "registry.example") {
                Ok(())
            } else {
                Err(anyhow!("only {names:?}"))
            }
        },
    )?;
    lab.down()?;
    Ok(Counts::ONE)
}

/// Settings made by hand in a host's kernel: the command that sets one, the command that prints it,
/// a part of the output. A bare host has no `nft`, so the machine's programs run in the host's
/// network namespace.
const BY_HAND: [(&[&str], &[&str], &str); 4] = [
    (
        &["ip", "addr", "add", "192.0.2.7/32", "dev", "eth0"],
        &["ip", "addr"],
        "192.0.2.7",
    ),
    (
        &["ip", "route", "add", "198.51.100.0/24", "via", "10.10.0.1"],
        &["ip", "route"],
        "198.51.100.0",
    ),
    (
        &["nft", "add", "table", "inet", "by_hand"],
        &["nft", "list", "tables"],
        "by_hand",
    ),
    (
        &["ip", "link", "add", "by-hand", "type", "bridge"],
        &["ip", "link"],
        "by-hand",
    ),
];

fn power_cut((): &()) -> Result<Counts> {
    let (lab, host) = bare("power")?;
    let namespace = host.namespace();
    let inside = |args: &[&str]| {
        command::run(
            "ip",
            &[["netns", "exec", &namespace].as_slice(), args].concat(),
        )
    };
    let hardware = || {
        inside(&[
            "cat",
            "/sys/class/net/eth0/address",
            "/sys/class/net/eth1/address",
        ])
    };
    let network = || -> Result<String> {
        Ok(inside(&["ip", "-4", "-o", "addr"])? + &inside(&["ip", "route"])?)
    };
    let (cards, plugged_in) = (hardware()?, network()?);
    for (make, look, name) in BY_HAND {
        inside(make)?;
        ensure!(
            inside(look)?.contains(name),
            "{name} could not be made by hand"
        );
    }
    host.sh("mkdir /sys/fs/cgroup/pids/by-hand; echo here > /run/by-hand")?;
    host.sh("echo written > /root/on-disk; sync /root/on-disk; mkdir /root/kept; sync /root")?;
    let boot = host
        .sh("cat /proc/sys/kernel/random/boot_id; systemctl show -p UserspaceTimestampMonotonic")?;

    host.power_cut()?;
    ensure!(
        !namespace_exists(&namespace),
        "the network of a host without power is still there"
    );
    ensure!(
        host.output(&["true"]).is_err(),
        "a host without power runs a program"
    );
    host.boot(&lab.router)?;

    let now = host
        .sh("cat /proc/sys/kernel/random/boot_id; systemctl show -p UserspaceTimestampMonotonic")?;
    ensure!(now != boot, "the host was not booted again: {now}");
    for (_, look, name) in BY_HAND {
        let printed = inside(look)?;
        ensure!(
            !printed.contains(name),
            "{name} outlived the power cut: {printed}"
        );
    }
    ensure!(
        network()? == plugged_in,
        "plugged in differently: {}",
        network()?
    );
    ensure!(
        hardware()? == cards,
        "the network cards have other addresses: {}",
        hardware()?
    );
    host.sh("! test -e /sys/fs/cgroup/pids/by-hand && ! test -e /run/by-hand")?;
    ensure!(
        host.sh("cat /root/on-disk")? == "written\n",
        "a file that was synced is lost"
    );
    host.sh("test -d /root/kept && ping -c 1 -W 2 10.10.0.1")?;
    lab.down()?;
    Ok(Counts::ONE)
}
