//! The master.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// The daemon that holds pillar, keys, jobs and the CAs, compiles states and dispatches jobs.
#[derive(Parser)]
#[command(name = "halite-master", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Make what is missing: CAs, the master's identity, the operator identity of root. May be
    /// repeated.
    Init {
        /// The configuration file.
        #[arg(long, default_value = "/etc/halite/master.yaml")]
        config: PathBuf,
    },
    /// Make this standby's host the master's: install its copy, raise the epoch, start the daemon. May
    /// be repeated when it was interrupted.
    Promote {
        /// The configuration file.
        #[arg(long, default_value = "/etc/halite/master.yaml")]
        config: PathBuf,
        /// Promote while another master answers.
        #[arg(long, requires = "cluster")]
        force: bool,
        /// The cluster's name, with --force.
        #[arg(long)]
        cluster: Option<String>,
    },
    /// Write what a backup has to standard output, from this standby's copy and etcd, for `ctl backup
    /// create --local`.
    Save {
        /// The configuration file.
        #[arg(long, default_value = "/etc/halite/master.yaml")]
        config: PathBuf,
    },
    /// Serve until told to stop.
    Run {
        /// The configuration file.
        #[arg(long, default_value = "/etc/halite/master.yaml")]
        config: PathBuf,
    },
}
