//! The command line of `ctl backup`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::registry::ReportOption;

/// `ctl backup`.
#[derive(Debug, Subcommand)]
pub enum Backup {
    /// Make a backup: one file with everything that `ctl bootstrap --restore` needs.
    ///
    /// It has a snapshot of etcd, the CAs, the master's store, and the content of /etc/halite. It
    /// is encrypted to the recipients in `backup.recipients`; without recipients, it contains all
    /// keys and secrets of the cluster unencrypted. Older backups are pruned as `backup.keep`
    /// declares, except with --out; if only that fails, the exit code is 3.
    Create {
        /// The directory for the file, on this host; default: the declared one.
        #[arg(long, value_name = "DIRECTORY")]
        out: Option<PathBuf>,
        /// On a standby of the master: make it from its own copy and etcd, without the master. The
        /// timers of all hosts use this option; on other hosts it has no effect.
        #[arg(long)]
        local: bool,
        #[command(flatten)]
        report: ReportOption,
    },
    /// List the backups in a directory, the oldest first. Only their first and last lines are read.
    List {
        /// The directory of the backups; default: the declared one.
        directory: Option<PathBuf>,
    },
    /// Read a whole backup and compare it with its digest.
    ///
    /// If it is not encrypted or the key is given, each file in it is also compared with its
    /// digest, and etcd's snapshot with its hash.
    Verify {
        /// The backup; for a directory, its newest backup; default: the newest in the declared
        /// directory.
        backup: Option<PathBuf>,
        #[command(flatten)]
        key: BackupKey,
        /// Start an etcd with the snapshot, which joins no cluster and listens on no port, and
        /// check that it has as many keys as the member had when the backup was made. An encrypted
        /// backup cannot be opened without its key: in this case a new backup is made, and an etcd
        /// is started with its snapshot before that is encrypted.
        #[arg(long)]
        start: bool,
        /// The directory of the bundle that has this etcd; default: the backup's bundle, among this
        /// host's bundles.
        #[arg(long, requires = "start")]
        bundle: Option<PathBuf>,
        #[command(flatten)]
        report: ReportOption,
    },
    /// Explain how to restore a backup. This command restores nothing: a restore recreates the
    /// first host of a lost cluster.
    Restore {
        /// The backup.
        backup: Option<PathBuf>,
    },
    /// Copy a backup to another place, after comparing it with its digest.
    Get {
        /// The name of the backup, as `ctl backup list` shows it, or its path; default: the newest.
        backup: Option<PathBuf>,
        /// The new file.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
}

/// The key of an encrypted backup.
#[derive(Debug, Clone, Default, Args)]
pub struct BackupKey {
    /// The file with the secret key (AGE-SECRET-KEY-1…), as `age-keygen` writes it.
    #[arg(long)]
    pub key: Option<PathBuf>,
}
