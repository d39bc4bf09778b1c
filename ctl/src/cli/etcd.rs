//! The command line of `ctl etcd`.

use clap::{Args, Subcommand};
use halite_names::NodeName;

/// `ctl etcd`.
#[derive(Debug, Subcommand)]
pub enum Etcd {
    /// Show the members, the quorum and the alarms. The exit code is 1 when something is wrong.
    Status,
    /// Defragment the databases, one member at a time, the leader last. Also clears the alarm of a
    /// full database.
    Defrag(EtcdDefrag),
    /// Make a new cluster of the last healthy member after the quorum was lost. The other members
    /// are dropped, and data that only they had is lost.
    Recover(EtcdRecover),
}

/// `ctl etcd defrag`.
#[derive(Debug, Args)]
pub struct EtcdDefrag {
    /// The host of the member; default: all members.
    pub host: Option<NodeName>,
    /// Show what would change; change nothing.
    #[arg(long)]
    pub test: bool,
}

/// `ctl etcd recover`.
#[derive(Debug, Args)]
pub struct EtcdRecover {
    /// The host of the last healthy member.
    pub host: NodeName,
    /// Confirm that data that only the other members had is lost.
    #[arg(long, required = true)]
    pub force: bool,
    /// The cluster's name, to confirm --force.
    #[arg(long)]
    pub cluster: String,
    /// Show what would change; change nothing.
    #[arg(long)]
    pub test: bool,
}
