//! Links between two hosts that are cut in one direction, in both, and restored.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_lab::host::Host;

use super::{bare, bare_host};
use crate::test::Counts;

/// Cuts the link between hosts of the two control-plane networks, whose packets the router passes,
/// and checks which packets arrive.
pub(super) fn cut((): &()) -> Result<Counts> {
    let (lab, one) = bare("links")?;
    let mut spec = bare_host("other", 12);
    spec.second_network = true;
    let other = lab.boot(spec)?;
    let control: fn(&Host) -> String = Host::control_plane_address;
    ensure!(
        reaches(&one, &other, control)? == Reach::Answered,
        "before the cut"
    );
    lab.cut_link(&other, &one)?;
    ensure!(
        reaches(&one, &other, control)? == Reach::Arrived,
        "with the return path cut, the request must arrive and its answer must not"
    );
    // Through the router, and on the network that contains both.
    for address in [control, Host::workload_address] {
        ensure!(
            reaches(&other, &one, address)? == Reach::Lost,
            "a packet passed the direction that is cut"
        );
    }
    lab.cut_link(&one, &other)?;
    ensure!(
        reaches(&one, &other, control)? == Reach::Lost,
        "a packet passed a link that is cut in both directions"
    );
    for (from, to) in [(&one, &other), (&other, &one)] {
        lab.restore_link(from, to)?;
    }
    ensure!(
        reaches(&other, &one, control)? == Reach::Answered,
        "after the cut"
    );
    lab.nothing_tried_to_leave()?;
    lab.down()?;
    Ok(Counts::ONE)
}

#[derive(Debug, PartialEq, Eq)]
enum Reach {
    /// The request did not arrive.
    Lost,
    /// The request arrived, the answer did not.
    Arrived,
    /// The answer arrived.
    Answered,
}

/// Sends one ICMP echo request to an address of a host.
fn reaches(from: &Host, to: &Host, address: fn(&Host) -> String) -> Result<Reach> {
    let before = requests(to)?;
    let ping = from.output(&["ping", "-c", "1", "-W", "1", &address(to)])?;
    let arrived = requests(to)? > before;
    Ok(match (arrived, ping.status.success()) {
        (false, _) => Reach::Lost,
        (true, false) => Reach::Arrived,
        (true, true) => Reach::Answered,
    })
}

/// The ICMP echo requests that have arrived at a host: `InEchos` of its kernel (RFC 4293).
fn requests(host: &Host) -> Result<u64> {
    let init = host.init().context("the host is off")?;
    let text = fs::read_to_string(format!("/proc/{init}/net/snmp"))?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Icmp: "));
    let (names, values) = (lines.next(), lines.next());
    let mut pairs = names
        .unwrap_or_default()
        .split(' ')
        .zip(values.unwrap_or_default().split(' '));
    let (_, value) = pairs
        .find(|(name, _)| *name == "InEchos")
        .context("the kernel counts no echo requests")?;
    value.parse().context("InEchos is not a number")
}
