//! The options of `ctl node`.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use halite_cli::duration::{duration, duration_or_zero};
use halite_names::{NodeName, NodeNameError};
use halite_preflight::checks::{CHECKS, Scope};
use halite_proto::ids::MinionId;

use crate::ssh::SshUser;

/// `ctl node`.
#[derive(Debug, Subcommand)]
pub enum Node {
    /// Declare hosts, print the command to run on each, and wait until their nodes are Ready. May
    /// be repeated.
    Add(NodeAdd),
    /// List the hosts: roles, address, minion, Kubernetes and the last highstate.
    List,
    /// Show everything that the master knows about one host.
    Show(ShowNode),
    /// Make a node unschedulable.
    ///
    /// It gets no new pods; those that it runs stay.
    Cordon(OneNode),
    /// Make a node unschedulable, and evict its pods. Pods of DaemonSets stay.
    ///
    /// If evicting a pod would lose something, no pod is evicted: the error names the pods, and the
    /// option that allows the loss.
    Drain(NodeDrain),
    /// Make a node schedulable again.
    Uncordon(OneNode),
    /// Reboot a host: move the virtual address away, evict its pods, and wait until it is back in
    /// its previous state.
    Reboot(NodeReboot),
    /// Change a host's roles: give the complete list, for example worker,control-plane,etcd.
    ///
    /// A role that is not in the list is removed from the host, for example with its control plane
    /// and its member of etcd. The last role that makes the host a Kubernetes node cannot be
    /// removed: remove the host instead.
    Roles(NodeRoles),
    /// Remove a host from the cluster: evict its pods, remove its member of etcd, and remove
    /// everything that Halite put on it.
    ///
    /// The data of pods and etcd stays on its disks unless you give --wipe-data, and packages stay
    /// unless you give --packages. If anything else would be lost, such as volumes that no other
    /// host can use, the command lists it and requires --force.
    Remove(NodeRemove),
    /// Replace a lost host: remove what is left of it from the cluster, print the command to run on
    /// the new host of that name, and wait until its node is Ready.
    ///
    /// Use it only for a host that is lost for good: its key is rejected, and its member of etcd
    /// and its volumes are lost. If the old host comes back, the cluster does not accept it.
    Replace(NodeReplace),
}

/// One node.
#[derive(Debug, Args)]
pub struct OneNode {
    /// The node's name.
    pub name: NodeName,
    /// Show what would change; change nothing.
    #[arg(long)]
    pub test: bool,
}

/// `ctl node show`.
#[derive(Debug, Args)]
pub struct ShowNode {
    /// The host's name.
    pub name: MinionId,
}

/// `ctl node drain`, with kubectl's options.
#[derive(Debug, Args)]
pub struct NodeDrain {
    /// The node's name.
    pub name: NodeName,
    /// The options of the drain.
    #[command(flatten)]
    pub pods: DrainedPods,
    /// Also evict pods that no controller would recreate.
    #[arg(long)]
    pub force: bool,
    /// Accepted as in kubectl; pods of DaemonSets stay in any case.
    #[arg(long, hide = true)]
    pub ignore_daemonsets: bool,
    /// Show what would change; change nothing.
    #[arg(long)]
    pub test: bool,
}

/// `ctl node roles`.
#[derive(Debug, Args)]
pub struct NodeRoles {
    /// The host's name.
    pub name: NodeName,
    /// The complete list of the host's roles.
    #[arg(required = true, value_delimiter = ',', value_name = "ROLE")]
    pub roles: Vec<String>,
    /// Show what would change; change nothing.
    #[arg(long)]
    pub test: bool,
    /// Remove the control plane and its member of etcd from the host even though a vote is lost.
    #[arg(long, requires = "cluster")]
    pub force: bool,
    /// The cluster's name, to confirm --force.
    #[arg(long, default_value = "", requires = "force")]
    pub cluster: String,
    /// Ignore problems that these preflight checks find; recorded in the audit log.
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = check_name)]
    pub ignore_preflight: Vec<String>,
}

/// `ctl node reboot`.
#[derive(Debug, Args)]
pub struct NodeReboot {
    /// The host's name.
    pub name: NodeName,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub yes: bool,
    /// Show what would change; change nothing.
    #[arg(long)]
    pub test: bool,
    /// Do not evict pods: they stop and start with the host.
    #[arg(long, conflicts_with_all = ["force", "delete_emptydir_data", "grace_period", "timeout"])]
    pub no_drain: bool,
    /// The options of the drain.
    #[command(flatten)]
    pub pods: DrainedPods,
    /// Also evict pods that no controller would recreate.
    #[arg(long)]
    pub force: bool,
}

/// Options of a drain.
#[derive(Debug, Clone, Args)]
pub struct DrainedPods {
    /// Also evict pods with an emptyDir; its content is lost.
    #[arg(long)]
    pub delete_emptydir_data: bool,
    /// The time that each pod has to stop, instead of its own grace period, for example 30s.
    #[arg(long, value_name = "TIME", value_parser = duration_or_zero)]
    pub grace_period: Option<Duration>,
    /// The time after which the drain fails, for example 5m.
    #[arg(long, default_value = "15m", value_name = "TIME", value_parser = duration)]
    pub timeout: Duration,
}

/// A new host on the command line: `NAME` or `NAME=ADDRESS`.
#[derive(Debug, Clone)]
pub struct NewHost {
    /// The node's name.
    pub name: NodeName,
    /// The address as text; empty without one.
    pub address: String,
}

/// An invalid new host.
#[derive(Debug, thiserror::Error)]
pub enum NoHost {
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] NodeNameError),
    /// The address is invalid.
    #[error("{0:?} is not an IPv4 address")]
    Address(String),
}

impl FromStr for NewHost {
    type Err = NoHost;

    fn from_str(text: &str) -> Result<Self, NoHost> {
        let (name, address) = text.split_once('=').unwrap_or((text, ""));
        if text.contains('=') && address.parse::<Ipv4Addr>().is_err() {
            return Err(NoHost::Address(address.to_owned()));
        }
        Ok(Self {
            name: name.parse()?,
            address: address.to_owned(),
        })
    }
}

/// The name of a check that does not exist for added hosts.
#[derive(Debug, thiserror::Error)]
#[error("there is no such check; the checks are {}", added_checks().join(", "))]
pub struct NoCheck;

/// The names of the checks of an added host.
fn added_checks() -> Vec<&'static str> {
    let added = (CHECKS.iter()).filter(|check| check.scope != Scope::First);
    added.map(|check| check.name).collect()
}

/// Accepts the name of a check.
fn check_name(text: &str) -> Result<String, NoCheck> {
    let names = added_checks();
    names
        .contains(&text)
        .then(|| text.to_owned())
        .ok_or(NoCheck)
}

/// `ctl node add`.
#[derive(Debug, Args)]
pub struct NodeAdd {
    /// The new hosts' names, each with its address in a control-plane network; without an address,
    /// it is taken from the host's grains.
    #[arg(required_unless_present = "from", value_name = "NAME[=ADDRESS]")]
    pub nodes: Vec<NewHost>,
    /// A file with the new hosts (kind: HostList), each with its name, address, roles and labels.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "address", "roles", "labels"])]
    pub from: Option<PathBuf>,
    /// Run the command on each host over SSH as this user, who is root or has sudo without a
    /// password; four hosts at a time.
    #[arg(long, value_name = "USER", conflicts_with = "no_wait")]
    pub ssh: Option<SshUser>,
    /// The address of the only new host.
    #[arg(long, default_value = "")]
    pub address: String,
    /// The roles of each new host.
    #[arg(long, value_delimiter = ',', default_value = "worker")]
    pub roles: Vec<String>,
    /// A label of the Kubernetes node, KEY=VALUE; may be repeated.
    #[arg(long = "label")]
    pub labels: Vec<String>,
    /// Ignore problems that these preflight checks find.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = check_name)]
    pub ignore_preflight: Vec<String>,
    /// Only declare the host and print the command; do not wait.
    #[arg(long)]
    pub no_wait: bool,
}

/// `ctl node remove`.
#[derive(Debug, Args)]
pub struct NodeRemove {
    /// The host's name.
    pub name: NodeName,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub yes: bool,
    /// Show what would change; change nothing.
    #[arg(long)]
    pub test: bool,
    /// The host is lost; do not contact it.
    #[arg(long)]
    pub dead: bool,
    /// Remove the host even though data or a member of etcd is lost with it.
    #[arg(long, requires = "cluster")]
    pub force: bool,
    /// The cluster's name, to confirm --force.
    #[arg(long, default_value = "", requires = "force")]
    pub cluster: String,
    /// The options of the drain.
    #[command(flatten)]
    pub pods: DrainedPods,
    /// Also remove the packages that Halite installed, except those that the host may need
    /// otherwise.
    #[arg(long)]
    pub packages: bool,
    /// Also remove the data of pods and etcd on the host.
    #[arg(long, requires = "force")]
    pub wipe_data: bool,
}

/// `ctl node replace`.
#[derive(Debug, Args)]
pub struct NodeReplace {
    /// The host's name.
    pub name: NodeName,
    /// Confirm that the host is lost.
    #[arg(long, required = true)]
    pub force: bool,
    /// The cluster's name, to confirm --force.
    #[arg(long)]
    pub cluster: String,
    /// Ignore problems that these preflight checks find; recorded in the audit log.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = check_name)]
    pub ignore_preflight: Vec<String>,
    /// Only remove the remains and print the command; do not wait.
    #[arg(long)]
    pub no_wait: bool,
    /// Show what would change; change nothing.
    #[arg(long)]
    pub test: bool,
}
