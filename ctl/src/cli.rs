//! The command line, as definitions for clap. The help texts are also the manual pages.

mod backup;
mod bundle;
mod destroy;
mod duration;
mod etcd;
mod health;
mod kubeconfig;
mod master;
mod nodes;
mod operators;
mod orchestrate;
mod registry;
mod removed;
mod support;
mod upgrade;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use halite_proto::ids::{JobId, MinionId};

use self::duration::duration;
use crate::output::Format;

pub use self::backup::{Backup, Key as BackupKey};
pub use self::bundle::{Bundle, Copy, Switch, TrustArgs};
pub use self::destroy::DestroyCluster;
pub use self::duration::shown;
pub use self::etcd::{Etcd, EtcdDefrag, EtcdRecover};
pub use self::health::Health;
pub use self::kubeconfig::{IssuedKubeconfigs, Kubeconfig};
pub use self::master::{Master, MasterPromote, MasterRetire};
pub use self::nodes::{
    DrainedPods, Node, NodeAdd, NodeDrain, NodeReboot, NodeRemove, NodeReplace, NodeRoles, OneNode,
};
pub use self::operators::{Audit, Operator, OperatorCreate};
pub use self::orchestrate::{NewRun, Orchestrate, Runs};
pub use self::registry::{Backup as RegistryBackup, Registry};
pub use self::removed::explain;
pub use self::support::Support;
pub use self::upgrade::Upgrade;
pub use halite_cli::builder::Signing;

/// Declares, shows and repairs a cluster.
#[derive(Debug, Parser)]
#[command(name = "ctl", version, disable_help_subcommand = true)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Format of the answer.
    #[arg(short, long, value_enum, default_value_t = Format::Table, global = true)]
    pub output: Format,
    /// The master's address, HOST:PORT; default: those in /etc/halite/masters, in this order, or
    /// else 127.0.0.1:4550.
    #[arg(long, global = true, hide_short_help = true)]
    pub master: Option<String>,
    /// The operator's identity: a directory with operator.crt, operator.key and ca.crt, or the file
    /// that `ctl operator create` wrote.
    #[arg(
        long,
        default_value = "/etc/halite/operator",
        global = true,
        hide_short_help = true
    )]
    pub identity: PathBuf,
}

/// The commands of `ctl`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make this host the first one of a cluster, from a bundle; or repair that host.
    Bootstrap(Bootstrap),
    /// Manage the hosts of the cluster.
    #[command(subcommand)]
    Node(Node),
    /// Show the state of the cluster and its nodes. The exit code is 1 when something is wrong.
    Status,
    /// Check the cluster, and say what to do about each finding. The exit code is 1 when something
    /// is wrong.
    Health(Health),
    /// Print a kubeconfig for your own machine: as administrator of Kubernetes, for a limited time.
    Kubeconfig(Kubeconfig),
    /// Inspect the members of etcd, which stores the objects of Kubernetes, and look after them.
    #[command(subcommand)]
    Etcd(Etcd),
    /// Show which host is the master's, make a standby the master, and let the host of the master go.
    #[command(subcommand)]
    Master(Master),
    /// Apply the highstate: everything that is declared.
    Highstate(Highstate),
    /// Apply SLS files on minions.
    Apply(Apply),
    /// Test the connection to minions.
    Ping(OnTarget),
    /// Show the grains of minions: facts about their hosts.
    Grains(Grains),
    /// Show the pillar of a minion. Secrets are references.
    Pillar(OneMinion),
    /// Show the files and states of a minion's highstate, and where each of them is declared.
    Render(Render),
    /// Run a command on minions.
    Cmd(Cmd),
    /// Show jobs and their returns.
    #[command(subcommand)]
    Job(Job),
    /// Manage the keys of minions.
    #[command(subcommand)]
    Key(Key),
    /// Manage tokens, with which new minions enrol.
    #[command(subcommand)]
    Token(Token),
    /// Manage operators: who may use this program with the master, and for what.
    #[command(subcommand)]
    Operator(Operator),
    /// Show the audit log: who asked the master for what, and the outcome.
    Audit(Audit),
    /// Run an orchestration, list the runs of all, or end one.
    Orchestrate(Orchestrate),
    /// Check and show the cluster document.
    #[command(subcommand)]
    Config(Config),
    /// Build, copy, verify and use bundles.
    #[command(subcommand)]
    Bundle(Bundle),
    /// Bring the cluster to another bundle of the site, with a newer patch release of Kubernetes or
    /// the same one; or go on with an upgrade that was interrupted.
    Upgrade(Upgrade),
    /// Back up the cluster: etcd, the CAs, the master's store, and what is declared.
    #[command(subcommand)]
    Backup(Backup),
    /// Back up and restore the site registry.
    #[command(subcommand)]
    Registry(Registry),
    /// End the whole cluster: remove what Halite put on its hosts, the host of the master last.
    Destroy(DestroyCluster),
    /// Collect what explains a problem, from all hosts that can be reached, in one archive without
    /// secrets. The Kubernetes API need not answer.
    Support(Support),
    /// Apply SLS files on this host, without a master.
    #[command(subcommand)]
    Local(Local),
    /// Write the manual pages of all programs and the completions of this one, for packages.
    #[command(hide = true)]
    Generate {
        /// A new directory. It gets one directory for each package, with the content of /usr/share.
        directory: PathBuf,
    },
}

/// `ctl bootstrap`.
#[derive(Debug, Args)]
pub struct Bootstrap {
    /// The cluster document; default: /etc/halite/cluster.yaml, if it exists.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Make the first host of a lost cluster again from this backup, on a bare host with the name
    /// and address of the lost one.
    #[arg(long, conflicts_with = "config")]
    pub restore: Option<PathBuf>,
    #[command(flatten)]
    pub key: BackupKey,
    /// The hash of the CA that must have signed the backup, as `ctl backup create` showed it.
    #[arg(
        long,
        value_name = "HASH",
        alias = "ca-fingerprint",
        requires = "restore"
    )]
    pub ca_hash: Option<String>,
    /// Restore a backup without a signature, which earlier versions made.
    #[arg(long, requires = "restore", conflicts_with = "ca_hash")]
    pub unsigned: bool,
    /// The bundle's ISO or directory; default: the bundle that contains this program.
    #[arg(long)]
    pub bundle: Option<PathBuf>,
    #[command(flatten)]
    pub trust: TrustArgs,
    /// Accept an ISO that is older than the bundle that this site uses.
    #[arg(long)]
    pub allow_downgrade: bool,
    /// This host's name in the cluster; default: its host name.
    #[arg(long)]
    pub name: Option<String>,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub yes: bool,
    /// Only check the host and show the plan; change nothing.
    #[arg(long)]
    pub test: bool,
}

/// The kind of the target expression.
#[derive(Debug, Clone, Default, Args)]
#[group(multiple = false)]
pub struct Kind {
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

impl Kind {
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
    pub kind: Kind,
    /// Time to wait for the answer of a minion, for example 30s; default: that of the function.
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
    /// Time after which the job times out on a minion, for example 5m; default: an hour.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
}

/// `ctl highstate`.
#[derive(Debug, Args)]
pub struct Highstate {
    /// The target minions. Without a target: all minions, in an order that is safe for the cluster,
    /// and the Kubernetes objects.
    #[arg(default_value = "*", hide_default_value = true)]
    pub target: String,
    #[command(flatten)]
    pub kind: Kind,
    #[command(flatten)]
    pub applying: Applying,
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
    pub kind: Kind,
    #[command(flatten)]
    pub applying: Applying,
}

/// `ctl cmd`.
#[derive(Debug, Args)]
pub struct Cmd {
    /// The target minions.
    pub target: String,
    #[command(flatten)]
    pub kind: Kind,
    /// Time to wait for the answer of a minion, for example 30s; default: that of the function.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// The command: one argument is a shell line, several are a program and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

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
    /// End a job: parts that have not started are dropped, running commands get SIGTERM, and
    /// SIGKILL ten seconds later.
    Cancel {
        /// The job id.
        job: JobId,
        /// End a package transaction, too. The next highstate of the host finishes it.
        #[arg(long)]
        force: bool,
    },
}

/// `ctl key`.
#[derive(Debug, Subcommand)]
pub enum Key {
    /// List all keys.
    List,
    /// Accept the key of a pending minion, after comparing the fingerprint.
    Accept {
        /// The minion's id.
        id: MinionId,
        /// The fingerprint that the host shows; any other one is refused.
        #[arg(long, default_value = "", required_unless_present = "force")]
        fingerprint: String,
        /// Accept whatever key waits under this id, without a comparison.
        #[arg(long, conflicts_with = "fingerprint")]
        force: bool,
    },
    /// Reject a minion's key.
    Reject(Destroy),
    /// Delete a minion's key.
    Delete(Destroy),
}

/// A command that cuts a minion off.
#[derive(Debug, Args)]
pub struct Destroy {
    /// The minion's id.
    pub id: MinionId,
    /// Allow this for a connected minion.
    #[arg(long, requires = "cluster")]
    pub force: bool,
    /// The cluster's name, to confirm --force.
    #[arg(long, default_value = "", requires = "force")]
    pub cluster: String,
}

/// `ctl token`.
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Create a token.
    Create {
        /// Time for which the token is valid, for example 30m or 24h.
        #[arg(long, default_value = "24h", value_name = "TIME", value_parser = duration)]
        ttl: Duration,
        /// The number of minions that may use it.
        #[arg(long, default_value_t = 1)]
        uses: u32,
        /// Only minions with these roles may use it. Default: those of the host that --id names;
        /// without --id, no host with the role bootstrap, control-plane, etcd or registry.
        #[arg(long, value_delimiter = ',')]
        roles: Vec<String>,
        /// Only this minion may use it.
        #[arg(long, value_parser = MinionId::for_host)]
        id: Option<MinionId>,
    },
    /// List all tokens, without their secrets.
    List,
    /// Revoke a token.
    Revoke {
        /// The token's id.
        token: String,
    },
}

/// `ctl config`.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Print an example of a cluster document, with comments.
    Example,
    /// Report all problems of a cluster document, or of a whole configuration directory.
    Validate(ConfigPath),
    /// Show the documents with all defaults. Secrets are hidden.
    Show(ConfigPath),
    /// Print the JSON Schema of a document.
    Schema {
        /// The document: `cluster` or `node`.
        #[arg(default_value = "cluster", value_parser = ["cluster", "node"])]
        kind: String,
    },
}

/// The location of the configuration.
#[derive(Debug, Args)]
pub struct ConfigPath {
    /// A cluster document, or a directory with cluster.yaml and nodes/.
    #[arg(default_value = "/etc/halite")]
    pub path: PathBuf,
    /// Also check against this bundle; default: the bundle that the site uses, if it is readable
    /// here.
    #[arg(long)]
    pub bundle: Option<PathBuf>,
}

/// `ctl local`.
#[derive(Debug, Subcommand)]
pub enum Local {
    /// Apply SLS files of a directory on this host.
    Apply(LocalStates),
    /// Show the low state that SLS files of a directory compile to for this host.
    Render(LocalStates),
}

/// A local state tree.
#[derive(Debug, Args)]
pub struct LocalStates {
    /// SLS names, with dots; default: those that top.sls assigns to this host.
    pub sls: Vec<String>,
    /// The directory of the state tree.
    #[arg(long, required = true)]
    pub tree: PathBuf,
    /// A YAML file that templates see as `pillar`.
    #[arg(long)]
    pub pillar: Option<PathBuf>,
    /// This host's id; default: its host name.
    #[arg(long)]
    pub id: Option<String>,
    /// The halite-minion program; default: the one in the directory of this program, or the
    /// installed one.
    #[arg(long)]
    pub minion: Option<PathBuf>,
    #[command(flatten)]
    pub applying: Applying,
}

#[cfg(test)]
mod guide_tests;
#[cfg(test)]
mod loss_tests;
#[cfg(test)]
mod tests;
