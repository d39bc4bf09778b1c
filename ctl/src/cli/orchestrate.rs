//! `ctl orchestrate`.

use clap::{Args, Subcommand};
use halite_proto::ids::JobId;

/// `ctl orchestrate`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Orchestrate {
    /// A command about existing runs.
    #[command(subcommand)]
    pub runs: Option<Runs>,
    #[command(flatten)]
    pub new: Option<NewRun>,
}

/// A run to start, or to join.
#[derive(Debug, Args)]
pub struct NewRun {
    /// The SLS name of the orchestration, for example `halite.orchestrate.bootstrap`.
    pub sls: String,
    /// Pillar values for this run: KEY=VALUE, or a JSON mapping; may be repeated.
    #[arg(long)]
    pub pillar: Vec<String>,
    /// Show what would change; change nothing.
    #[arg(long)]
    pub test: bool,
}

/// The commands about runs.
#[derive(Debug, Subcommand)]
pub enum Runs {
    /// List the latest runs of orchestrations, including those of other commands of ctl.
    List,
    /// Follow a run until it ends.
    Follow {
        /// The run's id, from `ctl orchestrate list`.
        run: JobId,
    },
    /// Cancel a run: a waiting step ends immediately, the job of a step ends as with `ctl job
    /// cancel`, and no further step starts. Finished steps are kept; repeat the command that
    /// started the run to continue from there.
    Cancel {
        /// The run's id, as a waiting step or `ctl orchestrate list` shows it.
        run: JobId,
    },
}
