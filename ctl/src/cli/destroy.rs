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
    /// Remove the packages that Halite installed too, but those that the host may need otherwise.
    #[arg(long)]
    pub packages: bool,
    /// Leave out hosts that are not connected: what Halite put there stays.
    #[arg(long)]
    pub skip_offline: bool,
    /// Show what would change; change nothing.
    #[arg(long)]
    pub test: bool,
    /// Remove what pods, etcd and the site registry stored on the hosts, too, and backups below
    /// /var/lib/halite.
    #[arg(long)]
    pub wipe_data: bool,
}
