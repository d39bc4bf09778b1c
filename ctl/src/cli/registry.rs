//! The command line of `ctl registry`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use halite_pillar::registry::DATA;

/// `ctl registry`.
#[derive(Debug, Subcommand)]
pub enum Registry {
    /// Make a backup, on the host of the registry, while it serves.
    ///
    /// A backup is a directory in the registry's own layout. Blobs that an earlier backup has are
    /// hard-linked, not stored again. If the registry is damaged, the command names the damage,
    /// backs up the rest, and exits with 1. It refuses an empty registry if an earlier backup is
    /// not empty, and with --report a directory without backups if the last run left a good one
    /// there: the disk may not be mounted.
    Backup(Backup),
    /// List the backups in a directory, the oldest first. Reads only their metadata.
    List {
        /// The directory of the backups.
        directory: PathBuf,
    },
    /// Read a whole backup, and name everything in it that is damaged or missing.
    Verify {
        /// The backup; for a directory of backups, its newest one.
        backup: PathBuf,
        #[command(flatten)]
        report: ReportOption,
    },
    /// Restore a backup. The registry then has the repositories, tags and images of that time, and
    /// no others.
    ///
    /// The registry may keep running. The whole backup is checked before anything is changed. A
    /// damaged backup is refused, unless the registry itself has the damaged blobs intact. Blobs
    /// that no image needs stay on the disk until `registry garbage-collect` removes them.
    Restore {
        /// The backup; for a directory of backups, its newest one.
        backup: PathBuf,
        /// Restore a damaged backup without the images that need a damaged blob. The command names
        /// each tag and manifest that it does not restore, and exits with 1.
        #[arg(long)]
        without_damaged: bool,
        /// Do not ask for confirmation.
        #[arg(long, short)]
        yes: bool,
        /// Only check the whole backup; change nothing.
        #[arg(long)]
        test: bool,
        #[command(flatten)]
        data: Data,
    },
}

/// The location of the registry's files.
#[derive(Debug, Args)]
pub struct Data {
    /// The registry's data directory.
    #[arg(long, default_value = DATA)]
    pub data: PathBuf,
}

/// The option of scheduled runs.
#[derive(Debug, Args)]
pub struct ReportOption {
    /// File for the outcome of this run, which `ctl status` shows.
    #[arg(long)]
    pub report: Option<PathBuf>,
}

/// `ctl registry backup`.
#[derive(Debug, Args)]
pub struct Backup {
    #[command(flatten)]
    pub data: Data,
    /// The directory of the backups, best on another disk.
    #[arg(long, value_name = "DIRECTORY")]
    pub out: PathBuf,
    /// Number of complete backups with images to keep. Older ones are removed, unless the registry
    /// is damaged.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: u32,
    #[command(flatten)]
    pub report: ReportOption,
}
