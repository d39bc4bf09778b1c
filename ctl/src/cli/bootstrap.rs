//! The command line of `ctl bootstrap`.

use std::path::PathBuf;

use clap::Args;

use super::backup::BackupKey;
use super::bundle::TrustArgs;

/// `ctl bootstrap`.
#[derive(Debug, Args)]
pub struct Bootstrap {
    /// The cluster document, or a directory with cluster.yaml and the first host's nodes/NAME.yaml;
    /// default: /etc/halite, if it has a cluster.yaml.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Recreate the first host of a lost cluster from this backup, on a bare host with the name and
    /// address of the lost one.
    #[arg(long, conflicts_with = "config")]
    pub restore: Option<PathBuf>,
    #[command(flatten)]
    pub key: BackupKey,
    /// The hash of the CA that must have signed the backup, as `ctl backup create` showed it.
    #[arg(
        long,
        value_name = "HASH",
        alias = "ca-fingerprint",
        requires = "restore"
    )]
    pub ca_hash: Option<String>,
    /// Restore a backup without a signature, which earlier versions made.
    #[arg(long, requires = "restore", conflicts_with = "ca_hash")]
    pub unsigned: bool,
    /// The bundle's ISO or directory; default: the bundle that contains this program.
    #[arg(long)]
    pub bundle: Option<PathBuf>,
    #[command(flatten)]
    pub trust: TrustArgs,
    /// Accept an ISO that is older than the bundle that this site uses.
    #[arg(long)]
    pub allow_downgrade: bool,
    /// This host's name in the cluster; default: its host name.
    #[arg(long)]
    pub name: Option<String>,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub yes: bool,
    /// Only check the host and show the plan; change nothing.
    #[arg(long)]
    pub test: bool,
}
