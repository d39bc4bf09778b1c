//! The command line of `ctl bootstrap`.

use std::path::PathBuf;

use clap::Args;
use halite_preflight::checks::{CHECKS, Scope};

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
    #[arg(long, value_name = "HASH", requires = "restore")]
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
    /// Ignore problems that these preflight checks find.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = check_name)]
    pub ignore_preflight: Vec<String>,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub yes: bool,
    /// Only check the host and show the plan; change nothing.
    #[arg(long)]
    pub test: bool,
}

/// The checks without which nothing can be done: of the documents, and of the bundle.
const NEEDED: [&str; 2] = ["documents", "bundle"];

/// The name of a check that does not exist for the first host, or that cannot be ignored.
#[derive(Debug, thiserror::Error)]
#[error("unknown check; the checks are {}", checks().join(", "))]
pub struct NoFirstCheck;

/// The names of the checks of the first host that can be ignored.
fn checks() -> Vec<&'static str> {
    let names = CHECKS.iter().filter(|check| check.scope != Scope::Added);
    names
        .map(|check| check.name)
        .filter(|name| !NEEDED.contains(name))
        .collect()
}

/// Accepts the name of a check.
fn check_name(text: &str) -> Result<String, NoFirstCheck> {
    let is_known = checks().contains(&text);
    is_known.then(|| text.to_owned()).ok_or(NoFirstCheck)
}
