//! The command line of `ctl local`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::targets::Applying;

/// `ctl local`.
#[derive(Debug, Subcommand)]
pub enum Local {
    /// Apply SLS files of a directory on this host.
    Apply(LocalApply),
    /// Show the low state that SLS files of a directory compile to for this host.
    Render(LocalStates),
}

/// A local state tree.
#[derive(Debug, Args)]
pub struct LocalStates {
    /// SLS names, with dots; default: those that top.sls assigns to this host.
    pub sls: Vec<String>,
    /// The directory of the state tree.
    #[arg(long, required = true)]
    pub tree: PathBuf,
    /// A YAML file that templates see as `pillar`.
    #[arg(long)]
    pub pillar: Option<PathBuf>,
    /// This host's id; default: its host name.
    #[arg(long)]
    pub id: Option<String>,
    /// The halite-minion program; default: the one in the directory of this program, or the
    /// installed one.
    #[arg(long)]
    pub minion: Option<PathBuf>,
}

/// `ctl local apply`.
#[derive(Debug, Args)]
pub struct LocalApply {
    #[command(flatten)]
    pub states: LocalStates,
    #[command(flatten)]
    pub applying: Applying,
}
