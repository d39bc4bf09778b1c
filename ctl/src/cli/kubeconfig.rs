//! The command line of `ctl kubeconfig`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use halite_cli::duration::duration;

/// `ctl kubeconfig`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Kubeconfig {
    /// A command about issued kubeconfigs.
    #[command(subcommand)]
    pub issued: Option<IssuedKubeconfigs>,
    /// The time for which it is valid, for example 30m or 8h, at most 30 days. It cannot be revoked
    /// before that.
    #[arg(long, default_value = "8h", value_name = "TIME", value_parser = duration)]
    pub ttl: Duration,
    /// The API server, HOST or HOST:PORT: an address or name in its certificate. Default: the
    /// virtual address, or else the first API server.
    #[arg(long, value_name = "ADDRESS")]
    pub server: Option<String>,
    /// Write it to this file, which only its owner can read; default: print it.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Allow more than 30 days.
    #[arg(long)]
    pub force: bool,
}

/// The commands about issued kubeconfigs.
#[derive(Debug, Subcommand)]
pub enum IssuedKubeconfigs {
    /// List those that have not expired, the newest first, with their operators and expiry times.
    List,
}
