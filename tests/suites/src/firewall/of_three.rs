//! Scans of all ports of the first of three control planes, whose members of etcd reach each other.

use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::net::Network;

use super::source::{Source, Stranger};
use super::table::Table;
use super::{Ask, STRANGER, one};
use crate::test::Counts;

/// Scans the first host, which has the master, from each position, and the virtual address, which
/// `holder` has.
///
/// # Errors
/// What is let in, or answers, is not what the roles open.
pub(crate) fn all_ports(cluster: &Cluster, vip: IpAddr, holder: &Host) -> Result<Counts> {
    let first = &cluster.bootstrap;
    let planes = cluster.control_planes();
    let member = Source::host(planes.last().context("no other control plane")?);
    let worker = Source::host(&cluster.worker);
    let plane = Stranger::plug(cluster, Network::ControlPlane0, STRANGER)?;
    let workload = Stranger::plug(cluster, Network::Workload, STRANGER)?;
    let own: IpAddr = first.control_plane_address().parse()?;
    let of_workload: IpAddr = first.workload_address().parse()?;
    let ask = |source, host, to| Ask {
        source,
        host,
        to,
        interface: None,
    };
    let asks = [
        ask(&member, first, own),
        ask(&worker, first, own),
        ask(&worker, first, of_workload),
        ask(&plane.source, first, own),
        ask(&workload.source, first, own),
        ask(&workload.source, first, of_workload),
        // At that address all control planes open the same.
        ask(&plane.source, holder, vip),
    ];
    let table = Table::of_the_first_of_three()?;
    let mut wrong = Vec::new();
    for ask in &asks {
        wrong.extend(one(ask, &table)?);
    }
    ensure!(
        wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    Ok(Counts {
        passed: asks.len(),
        failed: 0,
    })
}
