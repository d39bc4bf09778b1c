//! All control planes are gone with their disks: one bare host restores a backup, and the others join again.

use anyhow::{Context as _, Result};
use halite_lab::cluster::Cluster;
use halite_lab::wait;

use super::losses::wait_for_one_holder;
use super::standbys::{STANDBYS, nothing_to_do, wait_for_followers};
use super::{BACK, is_complete, same_content};
use crate::disaster::restoring;
use crate::test::Counts;

/// The first host is made again from the backup while the others are off; objects, a Secret and the worker
/// with its pod come back without a command, and then the others are added with the words that declared
/// them.
pub(super) fn restored(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    wait_for_followers(first, &STANDBYS)?;
    let kept = restoring::back_up(cluster)?;
    let planes: Vec<String> = (cluster.control_planes().iter())
        .map(|host| host.spec.name.clone())
        .collect();
    let (own, others) = planes.split_first().context("no control plane")?;
    cluster.lab.power_off(&planes, true)?;
    cluster.lab.power_on(std::slice::from_ref(own))?;
    kept.carry(first)?;
    restoring::run(first)?;
    kept.came_back(cluster)?;
    cluster.lab.power_on(others)?;
    cluster.join(&STANDBYS)?;
    wait::until("all hosts to serve again", BACK, || is_complete(cluster))?;
    wait_for_one_holder(cluster)?;
    wait_for_followers(first, &STANDBYS)?;
    kept.goes_on(cluster)?;
    same_content(cluster)?;
    nothing_to_do(first, &["cp-1", "cp-2", "cp-3", "worker-1", "master"])?;
    Ok(Counts::ONE)
}
