//! The command line of `ctl destroy`.

use clap::Args;

/// `ctl destroy`.
#[derive(Debug, Args)]
pub struct DestroyCluster {
    /// Confirm that everything that the cluster stores is lost.
    #[arg(long, required = true)]
    pub force: bool,
    /// The cluster's name, to confirm --force.
    #[arg(long)]
    pub cluster: String,
    /// Also remove the packages that Halite installed, except those that the host may need
    /// otherwise.
    #[arg(long)]
    pub packages: bool,
    /// Skip hosts that are not connected: everything that Halite put there stays.
    #[arg(long)]
    pub skip_offline: bool,
    /// Show what would change; change nothing.
    #[arg(long)]
    pub test: bool,
    /// Also remove the data of pods, etcd and the site registry on the hosts, and backups below
    /// /var/lib/halite.
    #[arg(long)]
    pub wipe_data: bool,
}
