//! All certificates have ended while the hosts were off, those of minions and master included.

use std::time::Duration;

use anyhow::{Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::wait;

use super::losses::wait_for_one_holder;
use super::{is_complete, same_content};
use crate::health;
use crate::lifetimes::{self, Lifetimes};
use crate::test::Counts;

/// Limit for four hosts to boot and enrol, for the control planes' programs to come out of the
/// kubelet's pauses between restarts, and for the worker after them.
const RENEWED: Duration = Duration::from_secs(720);

/// No command is run: the master starts, the minions enrol with their keys, the members of etcd,
/// which accept each other no more, are renewed side by side, and the API returns.
pub(super) fn comes_back(cluster: &Cluster) -> Result<Counts> {
    let names: Vec<String> = (cluster.hosts().iter())
        .map(|host| host.spec.name.clone())
        .collect();
    lifetimes::set(cluster, Lifetimes::Ended)?;
    cluster.lab.power_off(&names, false)?;
    cluster.lab.power_on(&names)?;
    wait::until("the API to return", RENEWED, || is_complete(cluster))?;
    lifetimes::wait_until_renewed(cluster, RENEWED)?;
    for host in cluster.control_planes() {
        lifetimes::is_served(host)?;
    }
    let outcomes = lifetimes::outcomes(cluster)?;
    let renewed = |name: &String| {
        let mut lines = outcomes.iter();
        lines.any(|line| line.contains(name.as_str()) && line.ends_with(": ok"))
    };
    let missing: Vec<&String> = names.iter().filter(|name| !renewed(name)).collect();
    ensure!(missing.is_empty(), "{missing:?}: {outcomes:#?}");
    wait_for_one_holder(cluster)?;
    same_content(cluster)?;
    health::is_well(cluster)?;
    Ok(Counts::ONE)
}
