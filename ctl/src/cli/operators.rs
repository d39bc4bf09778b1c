//! `ctl operator` and `ctl audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use halite_cli::duration::duration;

/// `ctl operator`.
#[derive(Debug, Subcommand)]
pub enum Operator {
    /// Create an operator: a key, and a certificate that allows it to use this program.
    Create(OperatorCreate),
    /// List all operators.
    List,
    /// Revoke an operator's access, and end its running commands.
    Revoke {
        /// The operator's name.
        name: String,
        /// Do not ask for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
}

/// `ctl operator create`.
#[derive(Debug, Args)]
pub struct OperatorCreate {
    /// The operator's name.
    pub name: String,
    /// The role: a viewer reads, a deployer also applies the declaration, an admin may do
    /// everything.
    #[arg(long, value_parser = ["viewer", "deployer", "admin"])]
    pub role: String,
    /// The time until the certificate expires, in whole days, at most 365d.
    #[arg(long, default_value = "90d", value_name = "TIME", value_parser = days)]
    pub ttl: u32,
    /// A new file for the key and the certificates, for --identity. Only its owner can read it.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// The text is not a valid lifetime of an operator's certificate.
#[derive(Debug, thiserror::Error)]
#[error("give a number of whole days from 1d to 365d")]
pub struct NoDays;

/// Parses whole days.
fn days(text: &str) -> Result<u32, NoDays> {
    const DAY: u64 = 24 * 60 * 60;
    let seconds = duration(text).map_err(|_| NoDays)?.as_secs();
    let days = u32::try_from(seconds / DAY).ok();
    days.filter(|days| seconds % DAY == 0 && (1..=365).contains(days))
        .ok_or(NoDays)
}

/// `ctl audit`.
#[derive(Debug, Args)]
pub struct Audit {
    /// The number of lines to show, the newest first.
    #[arg(long, default_value_t = 50)]
    pub limit: u32,
    /// Show only lines since this time: 2026-11-23T08:00:00Z, or 2h for two hours ago.
    #[arg(long)]
    pub since: Option<String>,
    /// Show only lines before this time.
    #[arg(long)]
    pub until: Option<String>,
    /// Show only lines of this operator.
    #[arg(long)]
    pub operator: Option<String>,
    /// Show only lines of this action, for example Run or ChangeKey.
    #[arg(long)]
    pub action: Option<String>,
}
