//! The master's host is lost permanently, and no other one replaces it: a standby removes it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::wait;

use super::retiring::retire;
use super::standbys::{
    STANDBYS, answers, keys, nothing_to_do, promoted_first, wait_for_followers, wait_until_noticed,
};
use super::{BACK, etcdctl, is_complete, same_content};
use crate::checks::refused;
use crate::test::Counts;

/// The roles of the lost host, without those of a first host.
const ROLES: &str = "registry,etcd,control-plane";

/// `ctl node remove --dead` on a standby whose master is off first makes it the master, and says
/// so. Then the host is added again, and the master moves back.
pub(super) fn by_a_standby(cluster: &Cluster) -> Result<Counts> {
    let (first, next) = (&cluster.bootstrap, cluster.host(STANDBYS[0])?);
    let lost = [first.spec.name.clone()];
    let name = lost[0].as_str();
    wait_for_followers(first, &STANDBYS)?;
    cluster.lab.power_off(&lost, true)?;
    wait_until_noticed(next)?;
    let remove = |name: &str, cluster: &str| {
        let words = ["ctl", "node", "remove", name, "--dead"];
        [&words[..], &["--force", "--cluster", cluster]]
            .concat()
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<String>>()
    };
    for (words, reason) in [
        (remove(name, "prod"), "which is demo"),
        (
            remove("cp-3", "demo"),
            "the master was on cp-1, and not on cp-3",
        ),
    ] {
        refused(next, &words, &[reason])?;
    }
    // A refusal has promoted no host.
    wait_until_noticed(next)?;

    let said = next.sh(&format!("{} 2>&1", remove(name, "demo").join(" ")))?;
    println!("  {}", said.trim().replace('\n', "\n  "));
    promoted_first(&said, "cp-1 has left the cluster demo")?;
    let list = etcdctl(cluster, next, &["member", "list"])?;
    let members = list["members"].as_array().context("no list of members")?;
    let members: BTreeSet<&str> = members.iter().filter_map(|m| m["name"].as_str()).collect();
    ensure!(members == BTreeSet::from(STANDBYS), "{members:?}");
    let nodes = next.run(&["kubectl", "get", "nodes", "-o", "name"])?;
    ensure!(!nodes.contains(name), "{nodes}");
    let accepted = keys(next)?;
    let mut of_hosts = accepted.iter();
    ensure!(of_hosts.all(|(minion, ..)| minion != name), "{accepted:?}");
    answers(cluster, next, name)?;
    wait_for_followers(next, &STANDBYS[1..])?;
    nothing_to_do(next, &["cp-2", "cp-3", "worker-1", "master"])?;

    cluster.lab.power_on(&lost)?;
    cluster.add_on(next, &[name], ROLES)?;
    wait::until("the host to be back", BACK, || is_complete(cluster))?;
    same_content(cluster)?;
    wait_for_followers(next, &[name, STANDBYS[1]])?;
    retire(next, &[STANDBYS[0], "--to", name, "--keep"])?;
    wait_for_followers(first, &STANDBYS)?;
    nothing_to_do(first, &["cp-1", "cp-2", "cp-3", "worker-1", "master"])?;
    Ok(Counts::ONE)
}
