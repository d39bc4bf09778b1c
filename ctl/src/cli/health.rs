//! The command line of `ctl health`.

use std::time::Duration;

use clap::Args;
use halite_cli::duration::duration;

/// `ctl health`.
#[derive(Debug, Args)]
pub struct Health {
    /// Wait until all is well, at most this time, for example 10m.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub wait: Option<Duration>,
}
