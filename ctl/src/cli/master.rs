//! The command line of `ctl master`.

use clap::{Args, Subcommand};

/// `ctl master`.
#[derive(Debug, Subcommand)]
pub enum Master {
    /// Show the master, its epoch and its standbys. On a standby whose master does not answer, show
    /// what this host has.
    List,
    /// Make this standby's host the master's, because the master is dead. May be repeated when it
    /// was interrupted.
    Promote(MasterPromote),
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
