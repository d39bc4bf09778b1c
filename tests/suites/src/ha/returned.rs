//! The former master's host, powered on when another host already has its name, its address and its
//! place.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;
use serde_json::Value;

use super::losses::{VIP, wait_for_one_holder};
use super::retiring::retire;
use super::standbys::{STANDBYS, keys, master_lost, nothing_to_do, wait_for_followers};
use super::{BACK, etcdctl, is_complete, same_content};
use crate::availability::holders::Sampler;
use crate::test::Counts;

/// The names of the disks of both hosts.
const OLD: &str = "old";
const NEW: &str = "new";

/// The minimum time for which the old host is watched.
const WATCHED: Duration = Duration::from_secs(20);

/// The former master's host stays out: it is not a member of etcd, never has the address, its API
/// server is never ready, its master does nothing, and its key is not accepted. The new one is off
/// for that time, because there is one address; then it comes back, and the cluster recovers its
/// previous state.
pub(super) fn stays_out(cluster: &Cluster) -> Result<Counts> {
    let (first, next) = (&cluster.bootstrap, cluster.host(STANDBYS[0])?);
    let name = [first.spec.name.clone()];
    let aside = |host: &Host| {
        cluster.lab.power_off(&name, false)?;
        host.put_disks_aside(OLD)
    };
    let before = member(&members(cluster, next)?, &name[0])?;
    master_lost(cluster, aside, |_, _| Ok(()))?;
    let now = member(&members(cluster, next)?, &name[0])?;
    ensure!(now != before, "the new host has the member of the old one");

    cluster.lab.power_off(&name, false)?;
    first.put_disks_aside(NEW)?;
    first.bring_disks_back(OLD)?;
    let outcome = watched(cluster, first, next);
    // Also after a failure: the tests after this one need the new host.
    if first.init().is_some() {
        cluster.lab.power_off(&name, true)?;
    } else {
        first.destroy_disks()?;
    }
    first.bring_disks_back(NEW)?;
    cluster.lab.power_on(&name)?;
    outcome?;

    wait::until("the new host to be back", BACK, || is_complete(cluster))?;
    same_content(cluster)?;
    wait_for_followers(next, &["cp-1", "cp-3"])?;
    nothing_to_do(next, &["cp-1", "cp-2", "cp-3", "worker-1", "master"])?;
    retire(next, &["cp-2", "--to", "cp-1", "--keep"])?;
    wait_for_followers(first, &STANDBYS)?;
    Ok(Counts::ONE)
}

/// Boots the old host, and watches it for a while after it has tried to take part.
fn watched(cluster: &Cluster, old: &Host, next: &Host) -> Result<()> {
    let name = old.spec.name.as_str();
    wait_for_one_holder(cluster)?;
    let before = wait::until("etcd to serve", BACK, || members(cluster, next))?;
    let accepted = keys(next)?;
    let sampler = Sampler::start(&cluster.control_planes(), VIP);
    cluster.lab.power_on(&[name.to_owned()])?;
    let since = Instant::now();
    let mut wrong = BTreeSet::new();
    let tried = wait::until("the old host to have tried without success", BACK, || {
        let now = members(cluster, next)?;
        if now != before {
            wrong.insert(format!("the members were {before:?}, and are {now:?}"));
        }
        let now = keys(next)?;
        if now != accepted {
            wrong.insert(format!("the keys were {accepted:?}, and are {now:?}"));
        }
        wrong.extend(serves(cluster, old)?);
        has_tried(old)?;
        let time = since.elapsed();
        ensure!(time >= WATCHED, "watched for {} s", time.as_secs());
        Ok(())
    });
    let held = sampler.end()?;
    let mut holders = held.changes().iter().map(|(_, holders)| holders);
    if holders.any(|holders| holders.contains(name)) {
        wrong.insert(format!("it has held the address: {:?}", held.changes()));
    }
    ensure!(wrong.is_empty(), "{name} has taken part: {wrong:#?}");
    tried
}

/// The services that the old host provides as a part of the cluster.
fn serves(cluster: &Cluster, old: &Host) -> Result<Vec<String>> {
    let ready = format!("https://{}:6443/readyz", old.control_plane_address());
    let ask = ["curl", "-sS", "--fail", "--max-time", "2", "--noproxy", "*"];
    let ca = ["--cacert", "/etc/kubernetes/pki/ca.crt", &ready];
    let mut found = Vec::new();
    if (cluster.worker)
        .output(&[&ask[..], &ca].concat())?
        .status
        .success()
    {
        found.push("its API server is ready".to_owned());
    }
    let open = old.sh("ss -Hltn 'sport = :4550'")?;
    if !open.trim().is_empty() {
        found.push(format!("its master serves: {open}"));
    }
    Ok(found)
}

/// Fails until the old host's master and etcd member have learned that they were replaced.
fn has_tried(old: &Host) -> Result<()> {
    let log = old.sh("journalctl -b -u halite-master --no-pager -o cat")?;
    ensure!(log.contains("was replaced"), "its master logs: {log}");
    let removed = "grep -qsE 'permanently removed|must be removed' /var/log/pods/kube-system_etcd-*/etcd/*.log";
    old.sh(removed).context("its member of etcd")?;
    Ok(())
}

/// The ids and names of etcd's members, from a control plane.
fn members(cluster: &Cluster, on: &Host) -> Result<BTreeSet<(u64, String)>> {
    let list = etcdctl(cluster, on, &["member", "list"])?;
    let members = list["members"].as_array().context("no list of members")?;
    let member = |member: &Value| {
        let name = member["name"].as_str().unwrap_or_default();
        Some((member["ID"].as_u64()?, name.to_owned()))
    };
    let all: Option<BTreeSet<_>> = members.iter().map(member).collect();
    all.with_context(|| format!("a member without an id: {list}"))
}

/// The id of the member of that name.
fn member(members: &BTreeSet<(u64, String)>, wanted: &str) -> Result<u64> {
    let mut all = members.iter();
    let found = all.find(|(_, name)| name == wanted);
    Ok(found
        .with_context(|| format!("no {wanted} in {members:?}"))?
        .0)
}
