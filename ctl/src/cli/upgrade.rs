//! The command line of `ctl upgrade`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use halite_cli::duration::duration;

/// `ctl upgrade`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Upgrade {
    /// A command about the last upgrade.
    #[command(subcommand)]
    pub last: Option<LastUpgrade>,
    /// Absent with one of these commands.
    #[command(flatten)]
    pub new: Option<NewUpgrade>,
    // Not a part of `new`: clap leaves an optional group with another group in it empty.
    #[command(flatten)]
    pub run: RunOptions,
}

/// The commands about the last upgrade.
#[derive(Debug, Subcommand)]
pub enum LastUpgrade {
    /// Show the last upgrade: its state, and the hosts that have the bundle.
    Status,
    /// Pause the running upgrade before its next host. It releases its locks, and `ctl status`
    /// shows it until it continues.
    Pause,
    /// Return the hosts of an unfinished upgrade to the previous bundle, in reverse order.
    ///
    /// This is possible while the cluster still has hosts or objects of the previous bundle,
    /// between releases with the same minor versions of Kubernetes and etcd. Otherwise the only way
    /// back is to restore a backup, and the error names it.
    Back(RunOptions),
    /// Continue the paused upgrade with the same options and the same plan.
    ///
    /// As with `ctl upgrade`, hosts are drained: the content of emptyDir volumes is lost.
    Resume {
        /// Do not ask for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
}

/// A place at which an upgrade pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PausePlace {
    /// After the control-plane hosts, the etcd hosts and the Kubernetes objects, before all other
    /// hosts.
    ControlPlane,
}

/// An upgrade to start, or to join.
#[derive(Debug, Args)]
pub struct NewUpgrade {
    /// The version of one of the site's bundles, or the Kubernetes version in it (v1.36.4).
    #[arg(required_unless_present = "plan")]
    pub version: Option<String>,
    /// Pause at this place; `ctl upgrade resume` continues.
    #[arg(long, value_name = "PLACE")]
    pub pause_after: Option<PausePlace>,
    /// Apply the plan that `--test` has shown with this ID, with its version and options, if it
    /// still holds; its first 12 characters are enough.
    #[arg(
        long,
        value_name = "ID",
        value_parser = plan_id,
        conflicts_with_all = ["test", "pause_after", "batch", "no_backup", "no_drain", "force", "drain_timeout"]
    )]
    pub plan: Option<String>,
}

/// The options of each run that changes the bundle of hosts.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// The number or percentage of hosts without a control plane to change at a time; default:
    /// `upgrade.batch` of the cluster document, 25%.
    #[arg(long, value_parser = batch)]
    pub batch: Option<String>,
    /// Skip the backup before the first change.
    #[arg(long)]
    pub no_backup: bool,
    /// Do not evict pods: their containers survive the restart of the kubelet and of containerd.
    #[arg(long, conflicts_with_all = ["force", "drain_timeout"])]
    pub no_drain: bool,
    /// Also evict pods that no controller would recreate; they are lost.
    #[arg(long)]
    pub force: bool,
    /// The time after which the drain of a host fails, for example 5m.
    #[arg(long, default_value = "15m", value_name = "TIME", value_parser = duration)]
    pub drain_timeout: Duration,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub yes: bool,
    /// Show the plan, its findings, and what would change on each host; change nothing.
    #[arg(long)]
    pub test: bool,
}

/// The text is not a batch size.
#[derive(Debug, thiserror::Error)]
#[error("give a number of hosts such as 3, or a percentage such as 25%")]
pub struct NoBatch;

/// Accepts a number of hosts, or a percentage.
pub(super) fn batch(text: &str) -> Result<String, NoBatch> {
    let number = text.strip_suffix('%').unwrap_or(text);
    match number.parse::<u16>() {
        Ok(number) if number > 0 => Ok(text.to_owned()),
        _ => Err(NoBatch),
    }
}

/// The text is not the id of a plan.
#[derive(Debug, thiserror::Error)]
#[error(
    "give at least the first 12 hexadecimal digits of the plan, as `ctl upgrade VERSION --test` shows them"
)]
pub struct NoPlanId;

/// Accepts the id of a plan, or its start.
fn plan_id(text: &str) -> Result<String, NoPlanId> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex && (12..=64).contains(&text.len()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(NoPlanId)
    }
}
