//! The command line, as definitions for clap. The help texts are also the manual pages.

mod backup;
mod bootstrap;
mod bundle;
mod certs;
mod config;
mod context;
mod destroy;
mod etcd;
mod events;
mod health;
mod help;
mod job;
mod keys;
mod kubeconfig;
mod local;
mod master;
mod nodes;
mod notify;
mod operators;
mod orchestrate;
mod registry;
mod removed;
mod secrets;
mod support;
mod targets;
mod upgrade;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::output::Format;

pub use self::backup::Backup;
pub use self::bootstrap::Bootstrap;
pub use self::bundle::{Bundle, Copy, Switch, TrustArgs};
pub use self::certs::{Certs, CertsCsr, CertsImport, CertsRenew, CertsRotate, RotatedKeys};
pub use self::config::{Config, ConfigPath, ConfigWizard};
pub use self::context::Context;
pub use self::destroy::DestroyCluster;
pub use self::etcd::{Etcd, EtcdDefrag, EtcdRecover};
pub use self::events::Events;
pub use self::health::Health;
pub use self::help::{Completion, Help, Shell, Version, topic};
pub use self::job::{Job, Logs};
pub use self::keys::{Destroy, KeyCommand, Token};
pub use self::kubeconfig::{IssuedKubeconfigs, Kubeconfig};
pub use self::local::{Local, LocalApply};
pub use self::master::{Master, MasterPromote, MasterRetire};
pub use self::nodes::{
    DrainedPods, Node, NodeAdd, NodeDrain, NodeReboot, NodeRemove, NodeReplace, NodeRoles, OneNode,
    ShowNode,
};
pub use self::notify::Notify;
pub use self::operators::{Audit, Operator, OperatorCreate};
pub use self::orchestrate::{NewRun, Orchestrate, Runs};
pub use self::registry::{Backup as RegistryBackup, Registry};
pub use self::removed::explain;
pub use self::secrets::Secrets;
pub use self::support::Support;
pub use self::targets::{
    Apply, Applying, Cmd, Grains, Highstate, HostBudget, OnTarget, OneMinion, Render, StatesLimit,
    TargetKind,
};
pub use self::upgrade::{LastUpgrade, NewUpgrade, RunOptions, Upgrade};
pub use halite_cli::builder::Signing;

/// Declares, shows and repairs a cluster.
#[derive(Debug, Parser)]
#[command(name = "ctl", version, disable_help_subcommand = true)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Parses a command line; the first word is the program.
    ///
    /// # Errors
    /// The command line is invalid, or asks for help.
    pub fn parse_from_words(
        words: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, clap::Error> {
        let mut command = command();
        let matches = command.try_get_matches_from_mut(words)?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

/// The definition of the whole command line, with groups and examples in its help texts.
pub fn command() -> clap::Command {
    help::complete(Cli::command())
}

/// Options of every command, as given on the command line.
#[derive(Debug, Clone, Args)]
pub struct GlobalArgs {
    /// The format of the answer.
    #[arg(short, long, value_enum, default_value_t = Format::Table, global = true)]
    pub output: Format,
    /// The context: one of the clusters in ~/.config/halite/contexts.yaml (`ctl context`).
    #[arg(long, value_name = "NAME", global = true, hide_short_help = true)]
    pub context: Option<String>,
    /// The master's address, or several separated by commas; default, in this order: HALITE_MASTER,
    /// the context's address, those in /etc/halite/masters, 127.0.0.1:4550.
    #[arg(long, value_name = "HOST:PORT", global = true, hide_short_help = true)]
    pub master: Option<String>,
    /// The operator's identity: a directory with operator.crt, operator.key and ca.crt, or the file
    /// that `ctl operator create` wrote; default, in this order: HALITE_IDENTITY, the context's
    /// identity, /etc/halite/operator.
    #[arg(long, value_name = "PATH", global = true, hide_short_help = true)]
    pub identity: Option<PathBuf>,
}

/// The options of every command, completed from the environment and the context.
#[derive(Debug, Clone)]
pub struct Global {
    /// The format of the answer.
    pub output: Format,
    /// The access to the master, or the reason why the contexts cannot be used: it matters only to
    /// a command that calls the master.
    pub access: Result<MasterAccess, String>,
    /// The given options among `--context`, `--master` and `--identity`.
    pub access_options: String,
}

/// The address and the identity with which a command calls the master.
#[derive(Debug, Clone)]
pub struct MasterAccess {
    /// The address of the only master to call.
    pub master: Option<String>,
    /// The operator's identity.
    pub identity: PathBuf,
}

impl Global {
    /// The access to the master.
    ///
    /// # Errors
    /// The contexts cannot be used.
    pub fn access(&self) -> anyhow::Result<&MasterAccess> {
        let access = self.access.as_ref();
        access.map_err(|reason| anyhow::anyhow!("{reason}"))
    }

    /// The same options for another master.
    #[must_use]
    pub fn with_master(&self, master: Option<String>) -> Self {
        let access = self.access.clone();
        Self {
            access: access.map(|access| MasterAccess { master, ..access }),
            ..self.clone()
        }
    }
}

/// The commands of `ctl`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make this host the first one of a cluster, or repair it.
    ///
    /// Run it as root, on a bare host. A host that already belongs to a cluster is repaired, and
    /// loses nothing. With --restore, it recreates the lost first host of a cluster from a backup,
    /// in the state that the backup has.
    Bootstrap(Bootstrap),
    /// Manage the hosts of the cluster.
    #[command(subcommand)]
    Node(Node),
    /// Show the state of the cluster and its nodes. The exit code is 1 when something is wrong.
    Status,
    /// Check the cluster, and give a remedy for each finding. The exit code is 1 when something is
    /// wrong.
    Health(Health),
    /// List and test the receivers of notifications about findings.
    #[command(subcommand)]
    Notify(Notify),
    /// List and renew certificates.
    #[command(subcommand)]
    Certs(Certs),
    /// Print a kubeconfig for your own machine: as administrator of Kubernetes, for a limited time.
    Kubeconfig(Kubeconfig),
    /// Inspect and maintain the members of etcd.
    #[command(subcommand)]
    Etcd(Etcd),
    /// Show, promote and move the master of the cluster.
    #[command(subcommand)]
    Master(Master),
    /// Apply the highstate: everything that is declared.
    ///
    /// Differences on the hosts are repaired, and what is no longer declared is removed; --test
    /// shows both. Run it after each change of the documents.
    Highstate(Highstate),
    /// Apply SLS files on minions.
    ///
    /// Use it for a part of the highstate, or for your own states that top.sls does not assign.
    /// --test shows what the states would change.
    Apply(Apply),
    /// Show the journal of a host: of one unit, or the whole journal. Secrets are hidden as in the
    /// output of jobs.
    ///
    /// Requires the role admin, because programs may write secrets that no document declares.
    Logs(Logs),
    /// Test the connection to minions.
    ///
    /// The exit code is 1 if a host does not answer in time.
    Ping(OnTarget),
    /// Show the grains of minions: facts about their hosts.
    Grains(Grains),
    /// Show the pillar of a minion. Secrets are shown as references.
    Pillar(OneMinion),
    /// Show the files and states of a minion's highstate: each with the place that declares it.
    Render(Render),
    /// Run a command on minions.
    ///
    /// It runs as root and may do anything, so it requires the role admin. It can read every secret
    /// of the host, and its output is in the record of the job.
    Cmd(Cmd),
    /// Show jobs and their returns.
    #[command(subcommand)]
    Job(Job),
    /// Show events of jobs, orchestrations and keys until Ctrl-C.
    Events(Events),
    /// Manage the keys of minions.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Manage the tokens with which new minions enrol.
    #[command(subcommand)]
    Token(Token),
    /// Manage operators: the people and programs that may use the master, and their roles.
    #[command(subcommand)]
    Operator(Operator),
    /// Show the audit log: the operators' requests to the master, with their outcomes.
    Audit(Audit),
    /// Run an orchestration; list, follow or cancel runs.
    Orchestrate(Orchestrate),
    /// Check and show the cluster document.
    #[command(subcommand)]
    Config(Config),
    /// Build, copy, verify and use bundles.
    #[command(subcommand)]
    Bundle(Bundle),
    /// List the images of a bundle, each with its digest.
    Images {
        /// The bundle's ISO or directory, or its version on this site; default: the bundle that
        /// contains this program, or else the one in use.
        bundle: Option<PathBuf>,
    },
    /// Upgrade the cluster to another bundle: with the same Kubernetes, a newer patch release, or
    /// the next minor version. An interrupted upgrade is resumed.
    ///
    /// Before anything changes, it shows the order and all findings; if one of them would stop the
    /// run, the run does not start. A backup is made first, unless --no-backup is given. Each host
    /// is drained before its turn, unless --no-drain is given: the content of emptyDir volumes is
    /// lost, and with --force, pods that no controller would recreate.
    Upgrade(Upgrade),
    /// Back up the cluster: etcd, the CAs, the master's store, and the declaration.
    #[command(subcommand)]
    Backup(Backup),
    /// Back up and restore the site registry.
    #[command(subcommand)]
    Registry(Registry),
    /// Encrypt and edit the values of secrets.
    ///
    /// Run it as root on the master's host. The master does not have to run.
    #[command(subcommand)]
    Secrets(Secrets),
    /// Destroy the cluster: remove everything that Halite put on its hosts, the master's host last.
    Destroy(DestroyCluster),
    /// Collect diagnostics of all hosts in one archive, without secrets. It does not need the
    /// Kubernetes API.
    Support(Support),
    /// Apply SLS files on this host, without a master.
    #[command(subcommand)]
    Local(Local),
    /// Manage contexts: the clusters that you use this program with, each with its master and your
    /// identity.
    #[command(subcommand)]
    Context(Context),
    /// Show the version of this program and of the master.
    Version(Version),
    /// Print a shell's completion script for `ctl`.
    Completion(Completion),
    /// Show the help of a command, or about a topic.
    Help(Help),
    /// Write the manual pages of all programs and the completion scripts of this one, for packages.
    #[command(hide = true)]
    Generate {
        /// A new directory. It gets one directory for each package, with the content of /usr/share.
        directory: PathBuf,
        /// Write those of this program and of the master to an existing directory such as
        /// /usr/local/share. Remove pages that an earlier version wrote there and this one does
        /// not.
        #[arg(long)]
        installed: bool,
    },
}

#[cfg(test)]
mod guide_tests;
#[cfg(test)]
mod loss_tests;
#[cfg(test)]
mod preview_tests;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod tests;
