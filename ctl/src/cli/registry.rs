//! The command line of the registry with the site's own images: `ctl registry`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::registry::DATA;

/// `ctl registry`.
#[derive(Debug, Subcommand)]
pub enum Registry {
    /// Make a backup on the host that the registry runs on, while it serves.
    ///
    /// A backup is a directory in the registry's own layout; what an earlier one has already is not
    /// stored again. Damage that is found is named, the rest is kept all the same, and the exit
    /// code is 1. An empty registry is refused where an earlier backup is not empty, and with
    /// --report also a directory that had a good backup at the last run and has none now: their
    /// disks may not be mounted.
    Backup(Backup),
    /// The backups in a directory, the oldest first, by what they say of themselves.
    List {
        /// The directory.
        directory: PathBuf,
    },
    /// Read a backup, and name everything in it that is damaged or missing.
    Verify {
        /// The backup; of a directory with backups the newest.
        backup: PathBuf,
        #[command(flatten)]
        report: Report,
    },
    /// Put a backup back: the registry has the repositories, tags and images of that time then, and
    /// no others.
    ///
    /// It may serve meanwhile. Everything is checked before anything is changed; a backup that is
    /// damaged, in what the registry does not have itself, or that never had all links, is refused.
    /// Blobs that nothing names any more stay on the disk until `registry garbage-collect` removes
    /// them.
    Restore {
        /// The backup; of a directory with backups the newest.
        backup: PathBuf,
        /// Restore a damaged backup without the images that need what is damaged in it. Each tag
        /// and manifest that is not restored is named, and the exit code is 1.
        #[arg(long)]
        without_damaged: bool,
        #[command(flatten)]
        data: Data,
    },
}

/// The registry's files.
#[derive(Debug, Args)]
pub struct Data {
    /// The registry's data directory.
    #[arg(long, default_value = DATA)]
    pub data: PathBuf,
}

/// What a timer asks for.
#[derive(Debug, Args)]
pub struct Report {
    /// A file that is to say, for `ctl status`, when this ended and what was wrong.
    #[arg(long)]
    pub report: Option<PathBuf>,
}

/// `ctl registry backup`.
#[derive(Debug, Args)]
pub struct Backup {
    #[command(flatten)]
    pub data: Data,
    /// The directory of the backups, best on another disk.
    #[arg(long)]
    pub to: PathBuf,
    /// How many whole backups with images stay; older ones are removed, unless the registry is
    /// damaged.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: u32,
    #[command(flatten)]
    pub report: Report,
}
