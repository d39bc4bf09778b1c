//! The options of `ctl node`.

use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use halite_names::{NodeName, NodeNameError};
use halite_preflight::checks::{CHECKS, Scope};
use halite_proto::ids::MinionId;

use super::duration::{duration, duration_or_zero};

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
    Cordon(OneNode),
    /// Make a node unschedulable, and evict its pods. Pods of DaemonSets stay.
    Drain(NodeDrain),
    /// Make a node schedulable again.
    Uncordon(OneNode),
    /// Reboot a host: move the virtual address away, evict its pods, and wait until it is back as
    /// it was.
    Reboot(NodeReboot),
    /// Give a host other roles: all that it is to have, for example worker,control-plane,etcd.
    Roles(NodeRoles),
    /// Take a host out of the cluster: evict its pods, remove its member of etcd, and remove what
    /// Halite put on it.
    Remove(NodeRemove),
    /// Replace a host that is gone for good: remove what is left of it, print the command to run on
    /// the new host of that name, and wait until its node is Ready.
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
    /// Which pods to evict.
    #[command(flatten)]
    pub pods: DrainedPods,
    /// Evict pods that no controller makes again, too.
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
    /// All roles that the host is to have.
    #[arg(required = true, value_delimiter = ',', value_name = "ROLE")]
    pub roles: Vec<String>,
    /// Show what would change; change nothing.
    #[arg(long)]
    pub test: bool,
    /// Take the control plane and its member of etcd from the host although a vote is lost with it.
    #[arg(long, requires = "cluster")]
    pub force: bool,
    /// The cluster's name, to confirm --force.
    #[arg(long, default_value = "", requires = "force")]
    pub cluster: String,
    /// Go on in spite of the problems that these checks of the preflight find; recorded in the
    /// audit log.
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
    /// Evict no pods: they end with the host, and start again with it.
    #[arg(long, conflicts_with_all = ["force", "delete_emptydir_data", "grace_period", "timeout"])]
    pub no_drain: bool,
    /// Which pods to evict.
    #[command(flatten)]
    pub pods: DrainedPods,
    /// Evict pods that no controller makes again, too.
    #[arg(long)]
    pub force: bool,
}

/// Options of a drain.
#[derive(Debug, Clone, Args)]
pub struct DrainedPods {
    /// Evict pods with an emptyDir too; what is in it is lost.
    #[arg(long)]
    pub delete_emptydir_data: bool,
    /// Time that each pod has to end, in place of its own grace period, for example 30s.
    #[arg(long, value_name = "TIME", value_parser = duration_or_zero)]
    pub grace_period: Option<Duration>,
    /// Time after which the drain fails, for example 5m.
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

/// Text that is no new host.
#[derive(Debug, thiserror::Error)]
pub enum NoHost {
    /// The name is none.
    #[error(transparent)]
    Name(#[from] NodeNameError),
    /// The address is none.
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

/// A name that no check of an added host has.
#[derive(Debug, thiserror::Error)]
#[error("there is no such check; there are {}", added_checks().join(", "))]
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
    /// The new hosts' names, each with its address in a control-plane network; without one the
    /// address is taken from the host's grains.
    #[arg(required = true, value_name = "NAME[=ADDRESS]")]
    pub nodes: Vec<NewHost>,
    /// The address of the only new host.
    #[arg(long, default_value = "")]
    pub address: String,
    /// The roles of each of them.
    #[arg(long, value_delimiter = ',', default_value = "worker")]
    pub roles: Vec<String>,
    /// A label of the Kubernetes node, KEY=VALUE; may be repeated.
    #[arg(long = "label")]
    pub labels: Vec<String>,
    /// Go on in spite of problems that these checks of the preflight find.
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
    /// The host is gone for good: it is asked nothing.
    #[arg(long)]
    pub dead: bool,
    /// Remove it although data or a member of etcd is lost with it.
    #[arg(long, requires = "cluster")]
    pub force: bool,
    /// The cluster's name, to confirm --force.
    #[arg(long, default_value = "", requires = "force")]
    pub cluster: String,
    /// Which pods to evict.
    #[command(flatten)]
    pub pods: DrainedPods,
    /// Remove the packages that Halite installed too, but those that the host may need otherwise.
    #[arg(long)]
    pub packages: bool,
    /// Remove what pods and etcd stored on the host, too.
    #[arg(long, requires = "force")]
    pub wipe_data: bool,
}

/// `ctl node replace`.
#[derive(Debug, Args)]
pub struct NodeReplace {
    /// The host's name.
    pub name: NodeName,
    /// Confirm that the host is gone for good.
    #[arg(long, required = true)]
    pub force: bool,
    /// The cluster's name, to confirm --force.
    #[arg(long)]
    pub cluster: String,
    /// Go on in spite of problems that these checks of the preflight find; recorded in the audit log.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = check_name)]
    pub ignore_preflight: Vec<String>,
    /// Only remove what is left and print the command; do not wait.
    #[arg(long)]
    pub no_wait: bool,
    /// Show what would change; change nothing.
    #[arg(long)]
    pub test: bool,
}
