//! The command line of `ctl registry`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use halite_pillar::registry::DATA;

/// `ctl registry`.
#[derive(Debug, Subcommand)]
pub enum Registry {
    /// Make a backup, on the host of the registry, while it serves.
    ///
    /// A backup is a directory in the registry's own layout. Blobs that the previous backup has are
    /// hard-linked, not stored again; every other blob is compared with its digest. A damaged
    /// registry is refused, and so is an empty one if the previous backup is not empty: the disk
    /// may not be mounted.
    Backup(Backup),
    /// List the backups in a directory, the oldest first. Reads only their metadata.
    List {
        /// The directory of the backups.
        directory: PathBuf,
    },
    /// Read a whole backup, and name the blobs in it that are damaged or missing.
    Verify {
        /// The backup; for a directory of backups, its newest one.
        backup: PathBuf,
        #[command(flatten)]
        report: ReportOption,
    },
    /// Restore a backup. The registry then has the repositories, tags and images of that time, and
    /// no others.
    ///
    /// The registry may keep running. Its files are replaced in one step, after each blob has been
    /// compared with its digest. A backup with damaged blobs is refused, unless the registry itself
    /// has them intact.
    Restore {
        /// The backup; for a directory of backups, its newest one.
        backup: PathBuf,
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
    /// The file for the outcome of this run, which `ctl status` shows.
    #[arg(long, value_name = "FILE")]
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
    /// Number of backups to keep. Older ones are removed.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: u32,
    #[command(flatten)]
    pub report: ReportOption,
}
