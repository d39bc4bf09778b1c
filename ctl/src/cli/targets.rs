//! Commands that run a job on minions.

use std::time::Duration;

use clap::Args;
use halite_cli::duration::duration;
use halite_proto::ids::MinionId;

use super::upgrade::batch;

/// The kind of the target expression.
#[derive(Debug, Clone, Default, Args)]
#[group(multiple = false)]
pub struct TargetKind {
    /// The target is a comma-separated list of ids.
    #[arg(short = 'L', long)]
    pub list: bool,
    /// The target is a grain: `os:Debian`.
    #[arg(short = 'G', long)]
    pub grain: bool,
    /// The target is a pillar value: `halite:node:roles:worker`.
    #[arg(short = 'I', long)]
    pub pillar: bool,
    /// The target is a compound expression: `G@os:Debian and not worker-*`.
    #[arg(short = 'C', long)]
    pub compound: bool,
}

impl TargetKind {
    /// The name of the kind in a request to the master.
    pub fn name(&self) -> &'static str {
        match self {
            Self { list: true, .. } => "list",
            Self { grain: true, .. } => "grain",
            Self { pillar: true, .. } => "pillar",
            Self { compound: true, .. } => "compound",
            _ => "glob",
        }
    }
}

/// A command that only needs a target.
#[derive(Debug, Args)]
pub struct OnTarget {
    /// The target minions; `*` is all minions.
    #[arg(default_value = "*")]
    pub target: String,
    #[command(flatten)]
    pub kind: TargetKind,
    /// The time to wait for a minion's answer, for example 30s; default: the function's timeout.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
}

/// `ctl grains`.
#[derive(Debug, Args)]
pub struct Grains {
    #[command(flatten)]
    pub on: OnTarget,
    /// Show only this grain; may be repeated.
    #[arg(long = "item")]
    pub items: Vec<String>,
}

/// A command about one minion.
#[derive(Debug, Args)]
pub struct OneMinion {
    /// The minion's id; `master` is the master itself.
    pub minion: MinionId,
}

/// `ctl render`.
#[derive(Debug, Args)]
pub struct Render {
    /// The minion's id; `master` is the master itself.
    pub minion: MinionId,
    /// SLS files to render; default: the highstate.
    pub sls: Vec<String>,
    /// Show the low state instead of the files.
    #[arg(long)]
    pub low: bool,
}

/// Options of commands that apply states.
#[derive(Debug, Clone, Default, Args)]
pub struct Applying {
    /// Show what would change; change nothing.
    #[arg(long)]
    pub test: bool,
    /// With --test: exit with 2 if something would change.
    #[arg(long, requires = "test")]
    pub exit_code: bool,
    /// Also show unchanged states.
    #[arg(long, short)]
    pub verbose: bool,
}

/// The time limit of a job that applies states.
#[derive(Debug, Clone, Default, Args)]
pub struct StatesLimit {
    /// The time after which the job times out on a minion, for example 5m; default: an hour.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
}

/// The budget of hosts that are out because a job restarts their services.
#[derive(Debug, Clone, Default, Args)]
pub struct HostBudget {
    /// The number or percentage of hosts without a control plane that may restart services at a
    /// time; default: `upgrade.batch` of the cluster document, 25%.
    #[arg(long, value_parser = batch)]
    pub batch: Option<String>,
}

/// `ctl highstate`.
#[derive(Debug, Args)]
pub struct Highstate {
    /// The target minions. Without a target: all minions, in an order that is safe for the cluster,
    /// and the Kubernetes objects.
    #[arg(default_value = "*", hide_default_value = true)]
    pub target: String,
    #[command(flatten)]
    pub kind: TargetKind,
    #[command(flatten)]
    pub budget: HostBudget,
    #[command(flatten)]
    pub applying: Applying,
    #[command(flatten)]
    pub limit: StatesLimit,
}

/// `ctl apply`.
#[derive(Debug, Args)]
pub struct Apply {
    /// The target minions; `*` is all minions.
    pub target: String,
    /// SLS names, with dots: `halite.base.kubelet`.
    #[arg(required = true)]
    pub sls: Vec<String>,
    #[command(flatten)]
    pub kind: TargetKind,
    #[command(flatten)]
    pub budget: HostBudget,
    #[command(flatten)]
    pub applying: Applying,
    #[command(flatten)]
    pub limit: StatesLimit,
}

/// `ctl cmd`.
#[derive(Debug, Args)]
pub struct Cmd {
    /// The target minions.
    pub target: String,
    #[command(flatten)]
    pub kind: TargetKind,
    /// The time to wait for a minion's answer, for example 30s; default: the function's timeout.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// The command: one argument is a shell line, several are a program and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}
