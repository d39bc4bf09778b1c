//! The interrupted commands, each with its preparation and its check.

use anyhow::Result;
use halite_lab::cluster::Cluster;
use halite_states::shipped::{
    ADD_NODE, DEFRAG_ETCD, DRAIN_NODE, REBOOT_NODE, RECOVER_ETCD, REMOVE_NODE,
};
use serde_json::{Value, json};

use super::super::standbys::STANDBYS;
use super::outcomes;

/// The victim at a boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Victim {
    /// The master, and `ctl`.
    Master,
    /// The minion of the host in question, and `ctl`.
    Minion,
    /// The master's host, by a power cut.
    Power,
    /// The host in question, by a power cut.
    Subject,
    /// The host of the etcd member that leads when the command starts, by a power cut. It is not
    /// the host in question.
    Leader,
    /// The host of a following etcd member, by a power cut. It is not the host in question.
    Follower,
}

/// A command of `ctl` on the first host.
#[derive(Debug)]
pub(super) struct CtlCommand {
    /// Its words after `ctl`.
    pub(super) words: &'static str,
    /// Its orchestration.
    pub(super) sls: &'static str,
    /// Its pillar, as far as the steps depend on it.
    pub(super) pillar: fn() -> Value,
    /// The host in question; `None` if it is about all hosts.
    pub(super) subject: Option<&'static str>,
    /// `true` if the command itself may take that host down: the lab's hosts do not start again by
    /// themselves.
    reboots: bool,
    /// They take turns.
    pub(super) victims: &'static [Victim],
    /// The step with which the minion of the host in question ends permanently: it is not a victim
    /// from there on.
    pub(super) minion_leaves: Option<&'static str>,
    /// The steps whose ends are its boundaries; `None` means all. The others are steps of another
    /// command of this table, too.
    pub(super) only: Option<&'static [&'static str]>,
    /// The steps after which each victim dies, in a separate test.
    pub(super) each_after: &'static [&'static str],
    /// A part of the command's output if an earlier run has already finished.
    pub(super) over: Option<&'static str>,
    pub(super) prepare: fn(&Cluster) -> Result<()>,
    /// Checks the outcome of the command, and restores the previous state.
    pub(super) ended: fn(&Cluster) -> Result<()>,
}

/// The command that adds a control plane, in the lab's words.
const ADD: &str = "node add cp-3 --address 10.10.0.13 --roles control-plane,etcd";

/// All commands. `ctl bootstrap` and `ctl node add` of a worker have their boundaries on the site
/// of two hosts, and so has `ctl destroy`.
pub(super) const COMMANDS: &[CtlCommand] = &[
    CtlCommand {
        words: "node roles worker-1 worker,infra",
        sls: ADD_NODE,
        pillar: || json!({"node": "worker-1", "roles": ["worker", "infra"]}),
        subject: Some("worker-1"),
        reboots: false,
        victims: &[Victim::Master, Victim::Minion, Victim::Power],
        minion_leaves: None,
        only: None,
        each_after: &[],
        over: None,
        prepare: |_| Ok(()),
        ended: outcomes::roles,
    },
    CtlCommand {
        words: "node reboot cp-3 --yes --delete-emptydir-data",
        sls: REBOOT_NODE,
        pillar: || json!({"node": "cp-3", "drain": {}}),
        subject: Some("cp-3"),
        reboots: true,
        victims: &[Victim::Master, Victim::Power],
        minion_leaves: None,
        only: None,
        each_after: &[],
        over: None,
        prepare: |_| Ok(()),
        ended: |_| Ok(()),
    },
    CtlCommand {
        words: "node remove worker-1 --yes --delete-emptydir-data",
        sls: REMOVE_NODE,
        pillar: || json!({"node": "worker-1", "drain": {}}),
        subject: Some("worker-1"),
        reboots: false,
        victims: &[Victim::Master, Victim::Power],
        minion_leaves: None,
        only: None,
        each_after: &[],
        over: Some("there is no node worker-1"),
        prepare: |_| Ok(()),
        ended: |cluster| outcomes::removed(cluster, "worker-1"),
    },
    CtlCommand {
        words: "node remove cp-3 --force --cluster demo",
        sls: REMOVE_NODE,
        pillar: || json!({"node": "cp-3", "drain": {}}),
        subject: Some("cp-3"),
        reboots: false,
        victims: &[
            Victim::Master,
            Victim::Minion,
            Victim::Power,
            Victim::Subject,
            Victim::Leader,
            Victim::Follower,
        ],
        minion_leaves: Some("minion"),
        only: None,
        // Two members are left, neither of which may fail.
        each_after: &["member"],
        over: Some("there is no node cp-3"),
        prepare: |_| Ok(()),
        ended: |cluster| outcomes::removed(cluster, "cp-3"),
    },
    CtlCommand {
        words: "node remove cp-3 --dead --force --cluster demo",
        sls: REMOVE_NODE,
        pillar: || json!({"node": "cp-3", "dead": true}),
        subject: Some("cp-3"),
        reboots: false,
        victims: &[Victim::Master, Victim::Power],
        minion_leaves: None,
        // Unlike with `ctl node replace`, nothing of the declaration stays.
        only: Some(&["node", "undeclared", "names"]),
        each_after: &[],
        over: Some("there is no node cp-3"),
        prepare: |cluster| lost(cluster, &["cp-3"]),
        ended: |cluster| outcomes::removed_dead(cluster, "cp-3"),
    },
    CtlCommand {
        words: ADD,
        sls: ADD_NODE,
        pillar: || json!({"node": "cp-3"}),
        subject: Some("cp-3"),
        reboots: false,
        victims: &[
            Victim::Master,
            Victim::Minion,
            Victim::Subject,
            Victim::Leader,
            Victim::Follower,
        ],
        minion_leaves: None,
        only: None,
        // From the learner to its promotion and the first API server that uses it.
        each_after: &["turn", "learner", "etcd", "promoted", "control-plane"],
        over: None,
        prepare: |cluster| outcomes::enrolled_again(cluster, "cp-3", ADD),
        ended: |cluster| outcomes::joined(cluster, "cp-3"),
    },
    CtlCommand {
        words: "node replace cp-2 --force --cluster demo --no-wait",
        sls: REMOVE_NODE,
        pillar: || json!({"node": "cp-2", "dead": true, "keep": true}),
        subject: Some("cp-2"),
        reboots: false,
        victims: &[
            Victim::Master,
            Victim::Leader,
            Victim::Follower,
            Victim::Power,
        ],
        minion_leaves: None,
        only: None,
        each_after: &["member"],
        over: None,
        prepare: |cluster| lost(cluster, &["cp-2"]),
        ended: |cluster| cluster.replace("cp-2").map(drop),
    },
    CtlCommand {
        words: "etcd recover cp-1 --force --cluster demo",
        sls: RECOVER_ETCD,
        pillar: || json!({"node": "cp-1"}),
        subject: Some("cp-1"),
        reboots: false,
        victims: &[Victim::Master, Victim::Power],
        minion_leaves: None,
        only: None,
        each_after: &[],
        // The last member of a cluster of one has a quorum.
        over: Some("etcd has a quorum"),
        prepare: |cluster| lost(cluster, &STANDBYS),
        ended: outcomes::recovered,
    },
    CtlCommand {
        words: "node drain worker-1 --delete-emptydir-data",
        sls: DRAIN_NODE,
        pillar: || json!({"node": "worker-1", "drain": {}}),
        subject: Some("worker-1"),
        reboots: false,
        victims: &[Victim::Master, Victim::Power],
        minion_leaves: None,
        only: None,
        each_after: &["drained"],
        over: None,
        prepare: |_| Ok(()),
        ended: |cluster| outcomes::drained(cluster, "worker-1"),
    },
    CtlCommand {
        words: "etcd defrag",
        sls: DEFRAG_ETCD,
        pillar: || json!({}),
        subject: None,
        reboots: false,
        victims: &[Victim::Leader, Victim::Master, Victim::Follower],
        minion_leaves: None,
        only: None,
        // The members are defragmented from then on, the leader last.
        each_after: &["turn"],
        over: None,
        prepare: |_| Ok(()),
        ended: |_| Ok(()),
    },
];

/// Switches the host in question on again when the command has turned it off.
pub(super) fn keep_on(cluster: &Cluster, command: &CtlCommand) -> Result<()> {
    let Some(name) = command.subject.filter(|_| command.reboots) else {
        return Ok(());
    };
    let host = cluster.host(name)?;
    if host.init().is_some() {
        return Ok(());
    }
    // Also remove the machine's resources for it.
    host.power_cut()?;
    cluster.lab.power_on(&[name.to_owned()])
}

/// Hosts are lost with their disks.
fn lost(cluster: &Cluster, names: &[&str]) -> Result<()> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    cluster.lab.power_off(&names, true)
}
