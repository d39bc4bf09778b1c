//! The command line of `ctl upgrade`.

use std::time::Duration;

use clap::Args;

use super::duration::duration;

/// `ctl upgrade`.
#[derive(Debug, Args)]
pub struct Upgrade {
    /// The version of one of the site's bundles, or the Kubernetes version in it (v1.36.4).
    pub version: String,
    /// The number or percentage of hosts without a control plane to upgrade at a time.
    #[arg(long, default_value = "25%", value_parser = batch)]
    pub batch: String,
    /// Skip the backup before the first change.
    #[arg(long)]
    pub no_backup: bool,
    /// Do not evict pods: their containers survive the restart of the kubelet and of containerd.
    #[arg(long, conflicts_with_all = ["force", "drain_timeout"])]
    pub no_drain: bool,
    /// Also evict pods that no controller would recreate; they are lost.
    #[arg(long)]
    pub force: bool,
    /// Time after which the drain of a host fails, for example 5m.
    #[arg(long, default_value = "15m", value_name = "TIME", value_parser = duration)]
    pub drain_timeout: Duration,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub yes: bool,
    /// Show what would change; change nothing.
    #[arg(long)]
    pub test: bool,
}

/// The text is not a batch size.
#[derive(Debug, thiserror::Error)]
#[error("give a number of hosts such as 3, or a percentage such as 25%")]
pub struct NoBatch;

/// Accepts a number of hosts, or a percentage.
fn batch(text: &str) -> Result<String, NoBatch> {
    let number = text.strip_suffix('%').unwrap_or(text);
    match number.parse::<u16>() {
        Ok(number) if number > 0 => Ok(text.to_owned()),
        _ => Err(NoBatch),
    }
}
