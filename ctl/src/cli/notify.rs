//! The command line of `ctl notify`.

use clap::Subcommand;

/// `ctl notify`.
#[derive(Debug, Subcommand)]
pub enum Notify {
    /// List the receivers that the cluster document declares, each with its last attempts.
    List,
    /// Send a test notification now, and wait until the receivers have taken it. The exit code is 1
    /// if one has not.
    Test {
        /// The name of the receiver; default: all of them.
        sink: Option<String>,
    },
}
