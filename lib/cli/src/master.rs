//! The command line of the master.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// The daemon that holds pillar, keys, jobs and the CAs, compiles states and dispatches jobs.
#[derive(Parser)]
#[command(
    name = "halite-master",
    version,
    after_help = "Examples:\n  halite-master init\n  halite-master promote --test"
)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// A command of the master.
#[derive(Subcommand)]
pub enum Command {
    /// Create missing files: CAs, the master's identity, the operator identity of root. Can be run
    /// again.
    #[command(after_help = "Examples:\n  \
        halite-master init\n  \
        halite-master init --config /srv/halite/master.yaml")]
    Init {
        /// The configuration file.
        #[arg(long, default_value = "/etc/halite/master.yaml")]
        config: PathBuf,
    },
    /// Promote this standby to master: install its copy of the store, raise the epoch, start the
    /// daemon. Can be run again after an interruption.
    #[command(after_help = "Examples:\n  \
        halite-master promote --test\n  \
        halite-master promote\n  \
        halite-master promote --force --cluster prod")]
    Promote {
        /// The configuration file.
        #[arg(long, default_value = "/etc/halite/master.yaml")]
        config: PathBuf,
        /// Promote even if another master answers.
        #[arg(long, requires = "cluster")]
        force: bool,
        /// The cluster's name, with --force.
        #[arg(long)]
        cluster: Option<String>,
        /// Show what a promotion would do, and what it would lose; change nothing.
        #[arg(long)]
        test: bool,
    },
    /// Write the content of a backup to standard output, from this standby's copy and etcd, for
    /// `ctl backup create --local`.
    #[command(after_help = "Examples:\n  \
        halite-master save | wc --bytes\n  \
        halite-master save --config /srv/halite/master.yaml | wc --bytes")]
    Save {
        /// The configuration file.
        #[arg(long, default_value = "/etc/halite/master.yaml")]
        config: PathBuf,
    },
    /// Serve until stopped.
    #[command(after_help = "Examples:\n  \
        halite-master run\n  \
        halite-master run --config /srv/halite/master.yaml")]
    Run {
        /// The configuration file.
        #[arg(long, default_value = "/etc/halite/master.yaml")]
        config: PathBuf,
    },
}
