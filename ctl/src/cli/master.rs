//! The command line of `ctl master`.

use clap::{Args, Subcommand};
use halite_names::NodeName;

use super::nodes::DrainedPods;

/// `ctl master`.
#[derive(Debug, Subcommand)]
pub enum Master {
    /// Show the master, its epoch and its standbys. On a standby whose master does not answer, show
    /// what this host has.
    List,
    /// Make this standby's host the master's, because the master is dead. May be repeated when it
    /// was interrupted.
    Promote(MasterPromote),
    /// Move the master to a standby on purpose, and remove the host that had it from the cluster; or
    /// with --keep let that host stay, as a standby. Nothing that was acknowledged is lost. May be
    /// repeated when it was interrupted, also on the next master.
    Retire(MasterRetire),
}

/// `ctl master retire`.
#[derive(Debug, Args)]
pub struct MasterRetire {
    /// The host that is to have the master no longer; default: the one whose move was interrupted, or
    /// else the one that has the master.
    pub host: Option<NodeName>,
    /// The standby that takes the master; default: the first by name that has everything.
    #[arg(long)]
    pub to: Option<NodeName>,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub yes: bool,
    /// Show what is in the way and what would be lost; change nothing.
    #[arg(long)]
    pub test: bool,
    /// The host stays in the cluster, as a control plane and a standby.
    #[arg(long, conflicts_with_all = ["force", "packages", "wipe_data"])]
    pub keep: bool,
    /// Remove the host although its vote in etcd is lost with it. Needed without --keep.
    #[arg(long, requires = "cluster", required_unless_present_any = ["keep", "test"])]
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
    #[arg(long)]
    pub wipe_data: bool,
}

/// `ctl master promote`.
#[derive(Debug, Args)]
pub struct MasterPromote {
    /// Promote while another master answers. What it does from then on is lost.
    #[arg(long, requires = "cluster")]
    pub force: bool,
    /// The cluster's name, with --force.
    #[arg(long)]
    pub cluster: Option<String>,
    /// Do not bring the hosts to the new master: only make this host the master's.
    #[arg(long)]
    pub no_wait: bool,
}
