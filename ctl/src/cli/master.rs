//! The command line of `ctl master`.

use clap::{Args, Subcommand};
use halite_names::NodeName;

use super::nodes::DrainedPods;

/// `ctl master`.
#[derive(Debug, Subcommand)]
pub enum Master {
    /// Show the master, its epoch and its standbys. On a standby whose master does not answer, show
    /// the state of this host's copy.
    List,
    /// Make this standby the master because the old one is dead. If it is interrupted, run it
    /// again.
    ///
    /// Run it as root, on the standby. If this standby has everything, nothing that was
    /// acknowledged is lost. Otherwise it is refused; with --force, the missing changes are lost.
    /// Tokens become invalid.
    Promote(MasterPromote),
    /// Move the master to a standby, and remove its old host from the cluster; with --keep, that
    /// host stays as a standby. Nothing that was acknowledged is lost. If it is interrupted, run it
    /// again, here or on the new master.
    Retire(MasterRetire),
}

/// `ctl master retire`.
#[derive(Debug, Args)]
pub struct MasterRetire {
    /// The host to retire as master; default: the one whose move was interrupted, or else the
    /// master's host.
    pub host: Option<NodeName>,
    /// The standby that becomes the master; default: the first by name that has everything.
    #[arg(long)]
    pub to: Option<NodeName>,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub yes: bool,
    /// Show obstacles and losses; change nothing.
    #[arg(long)]
    pub test: bool,
    /// Keep the host in the cluster, as a control plane and a standby.
    #[arg(long, conflicts_with_all = ["force", "packages", "wipe_data"])]
    pub keep: bool,
    /// Remove the host even though its vote in etcd is lost. Required without --keep.
    #[arg(long, requires = "cluster", required_unless_present_any = ["keep", "test"])]
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
    #[arg(long)]
    pub wipe_data: bool,
}

/// `ctl master promote`.
#[derive(Debug, Args)]
pub struct MasterPromote {
    /// Promote even if another master answers, or if this standby may lack changes. All changes
    /// that this standby does not have are lost.
    #[arg(long, requires = "cluster")]
    pub force: bool,
    /// The cluster's name, with --force.
    #[arg(long)]
    pub cluster: Option<String>,
    /// Only make this host the master; do not move the other hosts to it.
    #[arg(long)]
    pub no_wait: bool,
    /// Show whether the copy is complete, how old it is, and what would be lost; change nothing.
    #[arg(long)]
    pub test: bool,
}
