//! The command line of `ctl etcd`.

use clap::Subcommand;

/// `ctl etcd`.
#[derive(Debug, Subcommand)]
pub enum Etcd {
    /// Show the members, the quorum and the alarms. The exit code is 1 when something is wrong.
    Status,
}
