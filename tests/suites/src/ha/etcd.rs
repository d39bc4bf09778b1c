//! Work on etcd by `ctl`: databases are defragmented, and the last member becomes a cluster again,
//! on the master's host and on a standby.

use anyhow::{Context as _, Result, ensure};
use halite_api::{EtcdStatus, RunOutcome};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use super::retiring::retire;
use super::standbys::{
    STANDBYS, nothing_to_do, promoted_first, wait_for_followers, wait_until_noticed,
};
use super::{BACK, is_complete, same_content};
use crate::checks::refused;
use crate::ctl_answer;
use crate::guide;
use crate::test::Counts;

/// The heading of the guide about the last member, whose hosts have the same names.
const LEFT: &str = "## One member of etcd is left";

/// An object that the last member must have.
const KEPT: &str = "before-the-loss";

/// The bytes in use and the size of each member's database.
fn databases(cluster: &Cluster) -> Result<Vec<(u64, u64)>> {
    let status: EtcdStatus = ctl_answer::of(&cluster.bootstrap, &["etcd", "status"])?;
    let sizes = status.members.iter().map(|member| {
        let (in_use, size) = (member.db_in_use, member.db_size);
        Ok((in_use.context("no size")?, size.context("no size")?))
    });
    sizes.collect()
}

/// The database of each member is defragmented, one member after the other.
pub(super) fn defragmented(cluster: &Cluster) -> Result<Counts> {
    let unknown = cluster
        .bootstrap
        .output(&["ctl", "etcd", "defrag", "absent"])?;
    ensure!(!unknown.status.success(), "an unknown member was accepted");
    let first = &cluster.bootstrap;
    let _: RunOutcome = ctl_answer::of(first, &["etcd", "defrag", "cp-2"])?;
    let done: RunOutcome = ctl_answer::of(first, &["etcd", "defrag"])?;
    ensure!(done.retcode == 0, "{done:?}");
    wait::until("small databases, and all hosts to serve", BACK, || {
        for (in_use, size) in databases(cluster)? {
            // It is written to in the meantime.
            ensure!(
                size < 2 * in_use.max(1 << 20),
                "{in_use} bytes of {size} are in use"
            );
        }
        is_complete(cluster)
    })?;
    Ok(Counts::ONE)
}

/// Two of three members are lost with their disks: the third one becomes a cluster with all its
/// data, and the others are replaced.
pub(super) fn recovered(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    let recover = guide::command("disaster.md", LEFT, "ctl etcd recover")?;
    let output = first.output(&recover)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && said.contains("etcd has a quorum"),
        "{said}"
    );
    cluster.kubectl(&["create", "configmap", KEPT, "-n", "default"])?;
    // A write is acknowledged when two members have it, and the lost ones are two.
    same_content(cluster)?;
    let lost: Vec<String> = (cluster.control_planes().iter())
        .skip(1)
        .map(|host| host.spec.name.clone())
        .collect();
    cluster.lab.power_off(&lost, true)?;
    let said = first.run(&recover)?;
    ensure!(said.contains("serves alone"), "{said}");
    whole_again(cluster, first, &lost)?;
    Ok(Counts::ONE)
}

/// The master's host and another member are lost with their disks: the remaining standby becomes
/// the master and then makes a cluster of its own member, by one command. The others are replaced
/// from there, and the master moves back.
pub(super) fn recovered_on_a_standby(cluster: &Cluster) -> Result<Counts> {
    let (first, [left, other]) = (&cluster.bootstrap, STANDBYS);
    let next = cluster.host(left)?;
    let lost = [first.spec.name.clone(), other.to_owned()];
    wait_for_followers(first, &STANDBYS)?;
    cluster.kubectl(&["create", "configmap", KEPT, "-n", "default"])?;
    // A write is acknowledged when two members have it, and the lost ones are two.
    same_content(cluster)?;
    cluster.lab.power_off(&lost, true)?;
    wait_until_noticed(next)?;
    let mut recover = guide::command("disaster.md", LEFT, "ctl etcd recover")?;
    // The guide recovers from the host that had the master here.
    let reason = "the master was on cp-1, which survives";
    refused(next, &recover, &[reason])?;
    // A refusal has promoted no host.
    wait_until_noticed(next)?;

    let host = recover.get_mut(3).context("no host in the command")?;
    left.clone_into(host);
    let said = next.sh(&format!("{} 2>&1", recover.join(" ")))?;
    println!("  {}", said.trim().replace('\n', "\n  "));
    promoted_first(&said, "cp-2 serves alone")?;
    whole_again(cluster, next, &lost)?;
    wait_for_followers(next, &["cp-1", other])?;
    retire(next, &[left, "--to", "cp-1", "--keep"])?;
    wait_for_followers(first, &STANDBYS)?;
    nothing_to_do(first, &["cp-1", "cp-2", "cp-3", "worker-1", "master"])?;
    Ok(Counts::ONE)
}

/// The last member, on the master's host, serves its data; the lost hosts are replaced from there.
fn whole_again(cluster: &Cluster, last: &Host, lost: &[String]) -> Result<()> {
    let name = last.spec.name.as_str();
    wait::until("the API on the last member", BACK, || {
        let get = ["get", "configmap", KEPT, "-n", "default"];
        cluster.kubectl_on(name, &get).map(drop)
    })?;
    let manifest = std::fs::read_to_string(last.file("/etc/kubernetes/manifests/etcd.yaml"))?;
    ensure!(
        !manifest.contains("force-new-cluster"),
        "etcd would forget its members at each start"
    );
    for host in lost {
        guide::replace(cluster, last, LEFT, host)?;
    }
    wait::until("all members to serve", BACK, || is_complete(cluster))?;
    same_content(cluster)?;
    cluster.kubectl_on(name, &["delete", "configmap", KEPT, "-n", "default"])?;
    Ok(())
}
