//! Scans of all ports of hosts of the site of three control planes, whose members of etcd reach
//! each other.

use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::net::Network;

use super::source::{ScanSource, Stranger};
use super::table::Table;
use super::{Ask, STRANGER, one};
use crate::test::Counts;

/// Scans the first host, which has the master, from each position, and the virtual address, which
/// `holder` has.
///
/// # Errors
/// The ports that are let in, or answer, are not those that the roles open.
pub(crate) fn all_ports(cluster: &Cluster, vip: IpAddr, holder: &Host) -> Result<Counts> {
    let first = &cluster.bootstrap;
    let planes = cluster.control_planes();
    let member = ScanSource::host(planes.last().context("no other control plane")?);
    let worker = ScanSource::host(&cluster.worker);
    let plane = Stranger::plug(cluster, Network::ControlPlane0, STRANGER)?;
    let workload = Stranger::plug(cluster, Network::Workload, STRANGER)?;
    let (own, of_workload) = addresses(first)?;
    let asks = [
        ask(&member, first, own),
        ask(&worker, first, own),
        ask(&worker, first, of_workload),
        ask(&plane.source, first, own),
        ask(&workload.source, first, own),
        ask(&workload.source, first, of_workload),
        // At that address all control planes open the same ports.
        ask(&plane.source, holder, vip),
    ];
    let wrong = differences(&asks, &Table::of_three(&first.spec.name)?)?;
    counted(asks.len(), &wrong)
}

/// Scans the second control plane, which is a standby, and the worker from each position.
///
/// # Errors
/// The ports that are let in, or answer, are not those that the roles open.
pub(crate) fn all_ports_of_others(cluster: &Cluster) -> Result<Counts> {
    let planes = cluster.control_planes();
    let second = *planes.get(1).context("no second control plane")?;
    let worker = &cluster.worker;
    let member = ScanSource::host(&cluster.bootstrap);
    let from_worker = ScanSource::host(worker);
    let plane = Stranger::plug(cluster, Network::ControlPlane0, STRANGER)?;
    let workload = Stranger::plug(cluster, Network::Workload, STRANGER)?;
    let (own, of_workload) = addresses(second)?;
    let second_asks = [
        ask(&member, second, own),
        ask(&member, second, of_workload),
        ask(&from_worker, second, own),
        ask(&from_worker, second, of_workload),
        ask(&plane.source, second, own),
        ask(&workload.source, second, own),
        ask(&workload.source, second, of_workload),
    ];
    let (own, of_workload) = addresses(worker)?;
    let worker_asks = [
        ask(&member, worker, own),
        ask(&member, worker, of_workload),
        ask(&plane.source, worker, own),
        ask(&workload.source, worker, own),
        ask(&workload.source, worker, of_workload),
    ];
    let mut wrong = differences(&second_asks, &Table::of_three(&second.spec.name)?)?;
    wrong.extend(differences(
        &worker_asks,
        &Table::of_three(&worker.spec.name)?,
    )?);
    counted(second_asks.len() + worker_asks.len(), &wrong)
}

/// The addresses of a host in the control-plane and the workload network.
fn addresses(host: &Host) -> Result<(IpAddr, IpAddr)> {
    let (own, of_workload) = (host.control_plane_address(), host.workload_address());
    Ok((own.parse()?, of_workload.parse()?))
}

fn ask<'a>(source: &'a ScanSource, host: &'a Host, to: IpAddr) -> Ask<'a> {
    Ask {
        source,
        host,
        to,
        interface: None,
    }
}

/// The differences of scans of one host from its table.
fn differences(asks: &[Ask<'_>], table: &Table) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for ask in asks {
        wrong.extend(one(ask, table)?);
    }
    Ok(wrong)
}

fn counted(scans: usize, wrong: &[String]) -> Result<Counts> {
    ensure!(
        wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    Ok(Counts {
        passed: scans,
        failed: 0,
    })
}
