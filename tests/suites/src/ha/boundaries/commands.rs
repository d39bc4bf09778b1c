//! The commands that are interrupted, each with what precedes and follows it.

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::wait;
use halite_states::shipped::{ADD_NODE, REBOOT_NODE, RECOVER_ETCD, REMOVE_NODE};
use serde_json::{Value, json};

use super::super::leaving::{self, has_gone};
use super::super::standbys::{STANDBYS, wait_for_followers};
use super::super::{BACK, is_complete, losses};

/// What dies at a boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Victim {
    /// The master, and `ctl`.
    Master,
    /// The minion of the host in question, and `ctl`.
    Minion,
    /// The host of the master, by a power cut.
    Power,
    /// The host in question, by a power cut.
    Subject,
    /// The host of the member of etcd that leads as the command begins, by a power cut.
    Leader,
    /// The host of a member of etcd that follows then, by a power cut.
    Follower,
}

/// A command of `ctl` on the first host.
#[derive(Debug)]
pub(super) struct Command {
    /// Its words after `ctl`.
    pub(super) words: &'static str,
    /// Its orchestration.
    pub(super) sls: &'static str,
    /// The pillar of that, as far as the steps depend on it.
    pub(super) pillar: fn() -> Value,
    /// The host in question.
    pub(super) subject: &'static str,
    /// True if that host may go down by the command's doing: the lab's hosts do not start again by
    /// themselves.
    reboots: bool,
    /// They take turns.
    pub(super) victims: &'static [Victim],
    /// The steps after which each of them dies, in a test of its own.
    pub(super) each_after: &'static [&'static str],
    /// True for those that have boundaries in the usual runs.
    pub(super) is_quick: bool,
    /// A part of what the command says when an earlier one has ended already.
    pub(super) over: Option<&'static str>,
    pub(super) prepare: fn(&Cluster) -> Result<()>,
    /// Checks what the command leaves, and brings back the state before.
    pub(super) ended: fn(&Cluster) -> Result<()>,
}

const INFRA: &str = "node-role.kubernetes.io/infra";

/// The command that adds a control plane, in the lab's words.
const ADD: &str = "node add cp-3 --address 10.10.0.13 --roles control-plane,etcd";

/// All of them. `ctl bootstrap` and `ctl node add` of a worker have their boundaries on the site of two
/// hosts, and so has `ctl destroy`.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        words: "node roles worker-1 worker,infra",
        sls: ADD_NODE,
        pillar: || json!({"node": "worker-1", "roles": ["worker", "infra"]}),
        subject: "worker-1",
        reboots: false,
        victims: &[Victim::Master, Victim::Minion, Victim::Power],
        each_after: &[],
        is_quick: true,
        over: None,
        prepare: |_| Ok(()),
        ended: roles,
    },
    Command {
        words: "node reboot cp-3 --yes --delete-emptydir-data",
        sls: REBOOT_NODE,
        pillar: || json!({"node": "cp-3", "drain": {}}),
        subject: "cp-3",
        reboots: true,
        victims: &[Victim::Master, Victim::Power],
        each_after: &[],
        is_quick: true,
        over: None,
        prepare: |_| Ok(()),
        ended: |_| Ok(()),
    },
    Command {
        words: "node remove worker-1 --yes --delete-emptydir-data",
        sls: REMOVE_NODE,
        pillar: || json!({"node": "worker-1", "drain": {}}),
        subject: "worker-1",
        reboots: false,
        victims: &[Victim::Master, Victim::Power],
        each_after: &[],
        is_quick: true,
        over: Some("there is no node worker-1"),
        prepare: |_| Ok(()),
        ended: |cluster| removed(cluster, "worker-1"),
    },
    Command {
        words: "node remove cp-3 --force --cluster demo",
        sls: REMOVE_NODE,
        pillar: || json!({"node": "cp-3", "drain": {}}),
        subject: "cp-3",
        reboots: false,
        victims: &[Victim::Master, Victim::Power],
        each_after: &[],
        is_quick: false,
        over: Some("there is no node cp-3"),
        prepare: |_| Ok(()),
        ended: |cluster| removed(cluster, "cp-3"),
    },
    Command {
        words: ADD,
        sls: ADD_NODE,
        pillar: || json!({"node": "cp-3"}),
        subject: "cp-3",
        reboots: false,
        victims: &[
            Victim::Master,
            Victim::Minion,
            Victim::Subject,
            Victim::Leader,
            Victim::Follower,
        ],
        // From the learner to the vote and the first API server that uses it.
        each_after: &["turn", "learner", "etcd", "promoted", "control-plane"],
        is_quick: false,
        over: None,
        prepare: |cluster| enrolled_again(cluster, "cp-3", ADD),
        ended: |cluster| joined(cluster, "cp-3"),
    },
    Command {
        words: "node replace cp-2 --force --cluster demo --no-wait",
        sls: REMOVE_NODE,
        pillar: || json!({"node": "cp-2", "dead": true, "keep": true}),
        subject: "cp-2",
        reboots: false,
        victims: &[Victim::Master, Victim::Power],
        each_after: &[],
        is_quick: false,
        over: None,
        prepare: |cluster| cluster.lab.power_off(&["cp-2".to_owned()], true),
        ended: |cluster| cluster.replace("cp-2").map(drop),
    },
    Command {
        words: "etcd recover --from cp-1 --force --cluster demo",
        sls: RECOVER_ETCD,
        pillar: || json!({"node": "cp-1"}),
        subject: "cp-1",
        reboots: false,
        victims: &[Victim::Master, Victim::Power],
        each_after: &[],
        is_quick: false,
        // The last member of a cluster of one has a quorum.
        over: Some("etcd has a quorum"),
        prepare: |cluster| cluster.lab.power_off(&STANDBYS.map(str::to_owned), true),
        ended: recovered,
    },
];

/// Switches the host in question on again when the command has ended its power.
pub(super) fn keep_on(cluster: &Cluster, command: &Command) -> Result<()> {
    let host = cluster.host(command.subject)?;
    if !command.reboots || host.init().is_some() {
        return Ok(());
    }
    // What the machine held for it goes too.
    host.power_cut()?;
    cluster.lab.power_on(&[command.subject.to_owned()])
}

/// The worker has its further role, and loses it again.
fn roles(cluster: &Cluster) -> Result<()> {
    let text = cluster.kubectl(&["get", "node", "worker-1", "-o", "json"])?;
    let node: Value = serde_json::from_str(&text)?;
    ensure!(
        !node["metadata"]["labels"][INFRA].is_null(),
        "worker-1 has no label of its new role"
    );
    let back = ["ctl", "node", "roles", "worker-1", "worker"];
    cluster.bootstrap.run(&back).map(drop)
}

/// Nothing of Halite is left on the host, the cluster has forgotten it, and it joins again.
fn removed(cluster: &Cluster, name: &str) -> Result<()> {
    has_gone(cluster, name)?;
    cluster.join(&[name])?;
    joined(cluster, name)
}

/// The host is back as it was.
fn joined(cluster: &Cluster, name: &str) -> Result<()> {
    wait::until(&format!("{name} to be back"), BACK, || is_complete(cluster))?;
    losses::wait_for_one_holder(cluster)?;
    wait_for_followers(&cluster.bootstrap, &STANDBYS).map(drop)
}

/// The host has left and is enrolled again: `add`, which follows, makes it what it was.
fn enrolled_again(cluster: &Cluster, name: &str, add: &str) -> Result<()> {
    let roles = add.rsplit_once(' ').map_or(add, |(_, roles)| roles);
    let words = leaving::enrolled_again(cluster, name, roles)?.join(" ");
    ensure!(words == format!("ctl {add}"), "the lab adds it by {words}");
    Ok(())
}

/// The last member serves, and the lost ones are replaced.
fn recovered(cluster: &Cluster) -> Result<()> {
    wait::until("the API on the last member", BACK, || {
        cluster.kubectl(&["get", "nodes"]).map(drop)
    })?;
    let manifest = cluster
        .bootstrap
        .file("/etc/kubernetes/manifests/etcd.yaml");
    let manifest = std::fs::read_to_string(manifest).context("the manifest of etcd")?;
    ensure!(
        !manifest.contains("force-new-cluster"),
        "etcd would forget its members at each start"
    );
    STANDBYS
        .iter()
        .try_for_each(|name| cluster.replace(name).map(drop))
}
