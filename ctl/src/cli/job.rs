//! The command line of `ctl job` and `ctl logs`.

use std::time::Duration;

use clap::{Args, Subcommand};
use halite_cli::duration::duration;
use halite_proto::ids::{JobId, MinionId};

/// `ctl job`.
#[derive(Debug, Subcommand)]
pub enum Job {
    /// List the latest jobs.
    List {
        /// The number of jobs.
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// Show a job with its returns.
    Show {
        /// The job id.
        job: JobId,
    },
    /// Follow a job until it ends, then show it.
    Follow {
        /// The job id.
        job: JobId,
    },
    /// Cancel a job: parts that have not started are dropped, running commands get SIGTERM, and
    /// SIGKILL ten seconds later.
    Cancel {
        /// The job id.
        job: JobId,
        /// Also end a package transaction. The next highstate of the host finishes it.
        #[arg(long)]
        force: bool,
    },
}

/// `ctl logs`.
#[derive(Debug, Args)]
pub struct Logs {
    /// The host.
    pub host: MinionId,
    /// A systemd unit, for example kubelet; default: the whole journal.
    pub unit: Option<String>,
    /// Print new lines as they appear, until Ctrl-C, for an hour at most.
    #[arg(long, short)]
    pub follow: bool,
    /// Show this many of the newest lines, at most 10000.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub lines: u32,
    /// Show only lines newer than this, for example 2h.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub since: Option<Duration>,
}
