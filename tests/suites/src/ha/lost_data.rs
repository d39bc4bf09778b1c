//! A member of etcd on a host that is there has lost its data: the host leaves and joins again, by the commands of the
//! guide, while a client writes.

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use super::fewer::as_before;
use super::leaving::{GAP, has_gone};
use super::losses::{at_the_vip, kill};
use super::standbys::STANDBYS;
use super::{BACK, is_complete};
use crate::test::Counts;
use crate::{etcd, guide};

/// The heading of the guide about such a member.
const HEADING: &str = "## A member of etcd has lost its data";

/// The host is removed alive, although its member does not serve, and joins again with a new member.
pub(super) fn removed_and_added_again(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    let [_, name] = STANDBYS;
    let host = cluster.host(name)?;
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    // An evicted pod ends by its kubelet, and this one is about to lose its API server. The guide has another way for
    // that case.
    first.run(&["ctl", "node", "drain", name, "--delete-emptydir-data"])?;
    let measured = at_the_vip(cluster, first, "lost-data", || {
        lose_data(host)?;
        is_reported(first, name)?;
        host.run(&["systemctl", "start", "kubelet"])?;
        first.run(&of_the_guide("ctl node remove", name.to_owned())?)?;
        has_gone(cluster, name)?;
        etcd::status(first, "2 members, none may fail")?;
        let declared = format!("{name}={}", host.control_plane_address());
        let add = of_the_guide("ctl node add", declared)?;
        cluster.add_by(first, &[name], &add)?;
        wait::until("three control planes", BACK, || is_complete(cluster))
    })?;
    measured.check("a member lost its data", GAP)?;
    as_before(cluster)
}

/// The command of the guide that begins so, about that host.
fn of_the_guide(begin: &str, host: String) -> Result<Vec<String>> {
    let mut command = guide::command("disaster.md", HEADING, begin)?;
    *command.get_mut(3).context("no host in the command")? = host;
    Ok(command)
}

/// Ends the member, and empties its directory. The kubelet, which would start it again, is stopped.
fn lose_data(host: &Host) -> Result<()> {
    host.run(&["systemctl", "stop", "kubelet"])?;
    kill(host, "etcd")?;
    wait::until("etcd to end", BACK, || host.sh("! pgrep -x etcd").map(drop))?;
    host.sh("find /var/lib/etcd -mindepth 1 -delete")?;
    Ok(())
}

/// The status names the host, and the others have a quorum, of which the guide speaks.
fn is_reported(first: &Host, name: &str) -> Result<()> {
    let lost = format!("the etcd member on {name} has lost its data");
    // Both commands end with a failure, because there is a problem.
    let says = |command: &[String], text: &str| -> Result<()> {
        let said = String::from_utf8_lossy(&first.output(command)?.stdout).into_owned();
        ensure!(said.contains(text), "{said}");
        Ok(())
    };
    let status = ["ctl", "status"].map(str::to_owned);
    wait::until("the status to show the loss", BACK, || says(&status, &lost))?;
    let status = guide::command("disaster.md", HEADING, "ctl etcd status")?;
    wait::until("the others to have a quorum", BACK, || {
        says(&status, "3 members, 2 of them serve, none may fail")
    })
}
