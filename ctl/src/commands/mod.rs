//! One module for each group of commands.

mod about;
pub mod backup;
mod bundle;
mod certs;
mod certs_own;
mod certs_rotate;
mod config;
mod contexts;
mod destroy;
mod etcd;
mod events;
mod health;
mod inspect;
mod jobs;
mod keys;
mod kubeconfig;
mod local;
mod logs;
mod master;
mod node_drain;
mod node_list;
mod node_reboot;
mod node_remove;
mod node_roles;
mod node_ssh;
mod nodes;
mod notify;
mod operators;
mod orchestrate;
mod promotion;
mod registry;
mod retire;
mod secrets;
mod support;
mod targets;
mod upgrade;

use crate::cli::{Cli, Command, Etcd, Global, Master, Node};
use crate::output::Screen;
use crate::{bootstrap, context};

/// Runs a command and returns its exit code.
///
/// # Errors
/// The command failed; the exit code is 1.
pub async fn run(cli: Cli, screen: &mut Screen) -> anyhow::Result<u8> {
    // These need no master, and can repair an unreadable file of contexts.
    match cli.command {
        Command::Context(command) => contexts::run(&cli.global, command, screen),
        Command::Completion(args) => about::completion(args.shell, screen),
        Command::Help(args) => about::help(&args.words, screen),
        Command::Generate {
            directory,
            installed,
        } => crate::generate::write(&directory, installed).map(|()| 0),
        command => {
            let global = context::resolve(&cli.global);
            if !may_need_no_master(&command) {
                // Before the first change.
                global.access()?;
            }
            run_for(&global, command, screen).await
        }
    }
}

/// Returns whether a command does not call the master, or calls it only with some options.
fn may_need_no_master(command: &Command) -> bool {
    match command {
        Command::Backup(_)
        | Command::Bundle(_)
        | Command::Config(_)
        | Command::Images { .. }
        | Command::Local(_)
        | Command::Registry(_)
        | Command::Version(_) => true,
        // The rest of a promotion calls the master.
        Command::Master(Master::Promote(args)) => args.no_wait || args.test,
        _ => false,
    }
}

async fn run_for(global: &Global, command: Command, screen: &mut Screen) -> anyhow::Result<u8> {
    match command {
        Command::Bootstrap(args) => bootstrap::run(global, &args, screen).await,
        Command::Node(command) => node(global, command, screen).await,
        Command::Orchestrate(args) => orchestrate::run(global, &args, screen).await,
        Command::Highstate(args) => targets::highstate(global, args, screen).await,
        Command::Apply(args) => targets::apply(global, args, screen).await,
        Command::Ping(args) => targets::ping(global, args, screen).await,
        Command::Grains(args) => targets::grains(global, args, screen).await,
        Command::Cmd(args) => targets::cmd(global, args, screen).await,
        Command::Status => inspect::status(global, screen).await,
        Command::Health(args) => health::run(global, &args, screen).await,
        Command::Notify(command) => notify::run(global, command, screen).await,
        Command::Certs(command) => certs::run(global, command, screen).await,
        Command::Kubeconfig(args) => kubeconfig::run(global, &args, screen).await,
        Command::Etcd(Etcd::Status) => etcd::status(global, screen).await,
        Command::Etcd(Etcd::Defrag(args)) => etcd::defrag(global, &args, screen).await,
        Command::Etcd(Etcd::Recover(args)) => etcd::recover(global, &args, screen).await,
        Command::Master(command) => master::run(global, command, screen).await,
        Command::Pillar(args) => inspect::pillar(global, &args.minion, screen).await,
        Command::Render(args) => inspect::render(global, args, screen).await,
        Command::Job(command) => inspect::job(global, command, screen).await,
        Command::Events(args) => events::events(global, &args, screen).await,
        Command::Key(command) => keys::key(global, command, screen).await,
        Command::Token(command) => keys::token(global, command, screen).await,
        Command::Operator(command) => operators::run(global, command, screen).await,
        Command::Audit(args) => operators::audit(global, args, screen).await,
        Command::Config(command) => config::run(command, screen),
        Command::Bundle(command) => bundle::run(global, command, screen).await,
        Command::Upgrade(args) => upgrade::run(global, &args, screen).await,
        Command::Backup(command) => backup::run(global, command, screen).await,
        Command::Registry(command) => registry::run(command, screen),
        Command::Secrets(command) => secrets::run(global, command, screen).await,
        Command::Destroy(args) => destroy::run(global, &args, screen).await,
        Command::Support(args) => support::run(global, &args, screen).await,
        Command::Local(command) => local::run(command, screen).await,
        Command::Logs(args) => logs::run(global, &args, screen).await,
        Command::Images { bundle: named } => bundle::images(named, screen),
        Command::Version(args) => about::version(global, &args, screen).await,
        Command::Context(_)
        | Command::Completion(_)
        | Command::Help(_)
        | Command::Generate { .. } => unreachable!("run without a master"),
    }
}

/// Runs `ctl node`.
async fn node(global: &Global, command: Node, screen: &mut Screen) -> anyhow::Result<u8> {
    match command {
        Node::Add(args) => nodes::add(global, &args, screen).await,
        Node::List => node_list::list(global, screen).await,
        Node::Show(args) => node_list::show(global, &args, screen).await,
        Node::Cordon(node) => node_drain::cordon(global, &node, screen).await,
        Node::Drain(args) => node_drain::drain(global, &args, screen).await,
        Node::Uncordon(node) => node_drain::uncordon(global, &node, screen).await,
        Node::Reboot(args) => node_reboot::reboot(global, &args, screen).await,
        Node::Roles(args) => node_roles::roles(global, &args, screen).await,
        Node::Remove(args) => node_remove::remove(global, &args, screen).await,
        Node::Replace(args) => node_remove::replace(global, &args, screen).await,
    }
}

#[cfg(test)]
pub mod printed {
    //! The printers of the master's documents, and the readers of its other replies, for the tests
    //! of the contract.
    pub use super::backup::header_of as backup_header;
    pub use super::certs::listed as certificates;
    pub use super::certs_own::{prepared_text as prepared_ca, request_text as ca_request};
    pub use super::etcd::overview as etcd;
    pub use super::health::report as health;
    pub use super::inspect::{files as rendered_files, node_table as nodes, overview as status};
    pub use super::jobs::{cancelled as job_cancellation, list as jobs, one as job};
    pub use super::keys::{
        change as key_change, created_token, key_table as keys, new_token,
        revocation as token_revocation, token_table as tokens,
    };
    pub use super::kubeconfig::{
        issued_table as kubeconfigs, kubeconfig as kubeconfig_value, written as written_kubeconfig,
        written_text as kubeconfig_file,
    };
    pub use super::master::local as masters_here;
    pub use super::node_list::one as node;
    pub use super::nodes::declared as new_nodes;
    pub use super::notify::{list as sinks, results as sink_tests};
    pub use super::operators::{
        created as created_operator, lines as audit, list as operators, new_operator,
        revocation as operator_revocation,
    };
    pub use super::orchestrate::{cancelled_text as run_cancellation, list as runs};
    pub use super::secrets::{recipient_table as secret_recipients, secret_table as secrets};
    pub use super::upgrade::plan_text as upgrade;
    pub use super::upgrade::progress_text as upgrade_status;
}
