//! `ctl operator` and `ctl audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `ctl operator`.
#[derive(Debug, Subcommand)]
pub enum Operator {
    /// Make an operator: a key, and a certificate with which it may use this program.
    Create(OperatorCreate),
    /// List all operators.
    List,
    /// End an operator's access, and the commands that it runs at this time.
    Revoke {
        /// The operator's name.
        name: String,
    },
}

/// `ctl operator create`.
#[derive(Debug, Args)]
pub struct OperatorCreate {
    /// The operator's name.
    pub name: String,
    /// The role: a viewer reads, a deployer applies what is declared, an admin does everything.
    #[arg(long, value_parser = ["viewer", "deployer", "admin"])]
    pub role: String,
    /// The number of days until the certificate expires.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=365))]
    pub days: u32,
    /// A new file for the key and the certificates, for --identity. Only its owner can read it.
    #[arg(long)]
    pub out: PathBuf,
}

/// `ctl audit`.
#[derive(Debug, Args)]
pub struct Audit {
    /// The number of lines, the newest first.
    #[arg(long, default_value_t = 50)]
    pub limit: u32,
    /// Only lines from this time on: 2026-11-23T08:00:00Z, or 2h for two hours ago.
    #[arg(long)]
    pub since: Option<String>,
    /// Only lines before this time.
    #[arg(long)]
    pub until: Option<String>,
    /// Only lines of this operator.
    #[arg(long)]
    pub operator: Option<String>,
    /// Only lines of this action, for example Run or ChangeKey.
    #[arg(long)]
    pub action: Option<String>,
}
