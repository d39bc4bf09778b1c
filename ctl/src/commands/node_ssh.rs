//! `ctl node add --ssh`: new hosts enrol over SSH and become nodes, a few at a time.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use futures_util::stream;
use halite_proto::v1;

use crate::finished_run::FinishedRun;
use crate::output::{Screen, seconds};
use crate::ssh::{Ssh, SshError};

/// Hosts that work at the same time.
const AT_ONCE: usize = 4;

/// A host to add.
#[derive(Debug)]
pub struct SshHost {
    /// Its name in the cluster.
    pub name: String,
    /// The argument of `ssh`: its address, or its name, which the operator's configuration may
    /// resolve.
    pub destination: String,
    /// True if its minion is connected: it has enrolled before.
    pub is_connected: bool,
}

/// The outcome for each host, in the order of the hosts.
pub type HostOutcomes = Vec<(String, anyhow::Result<FinishedRun>)>;

/// Checks that each host can be reached, declares those that can, and then lets each of them enrol
/// and follows its run. A host that fails stops no other. `can_ask`: the operator is at a terminal
/// and can accept keys of hosts.
///
/// # Errors
/// There is no `ssh`, or the hosts cannot be declared. Then none is changed.
pub async fn add_hosts(
    ssh: &Ssh,
    hosts: &[SshHost],
    can_ask: bool,
    declare: impl AsyncFnOnce(&BTreeSet<&str>, &mut Screen) -> anyhow::Result<Vec<v1::AddedNode>>,
    run: impl AsyncFn(&str, &RefCell<&mut Screen>) -> anyhow::Result<FinishedRun>,
    screen: &mut Screen,
) -> anyhow::Result<HostOutcomes> {
    let unreached = unreached(ssh, hosts, can_ask, screen).await?;
    let reached = hosts.iter().map(|host| host.name.as_str());
    let reached: BTreeSet<&str> = reached
        .filter(|name| !unreached.contains_key(name))
        .collect();
    let mut added = BTreeMap::new();
    if !reached.is_empty() {
        let declared = declare(&reached, screen).await;
        if declared.is_err() {
            // There will be no report with these.
            for (name, error) in &unreached {
                let mark = screen.paint().bad("✗");
                screen.note(format!("{mark} {name}: {error}"));
            }
        }
        for node in declared? {
            added.insert(node.name.clone(), node);
        }
    }
    let screen = RefCell::new(screen);
    let one = async |host: &SshHost| {
        if !host.is_connected {
            let node = added.get(&host.name);
            let node = node.context("the master returned no command for it")?;
            enrol(ssh, host, node, &screen).await?;
        }
        run(&host.name, &screen).await
    };
    let work = (hosts.iter().enumerate())
        .filter(|(_, host)| reached.contains(host.name.as_str()))
        .map(async |(place, host)| (place, one(host).await));
    let mut done: BTreeMap<usize, anyhow::Result<FinishedRun>> =
        stream::iter(work).buffer_unordered(AT_ONCE).collect().await;
    let mut unreached = unreached;
    let outcomes = hosts.iter().enumerate().map(|(place, host)| {
        let outcome = match unreached.remove(host.name.as_str()) {
            Some(error) => Some(Err(error.into())),
            None => done.remove(&place),
        };
        let outcome = outcome.unwrap_or_else(|| Err(anyhow::Error::msg("it has no outcome")));
        (host.name.clone(), outcome)
    });
    Ok(outcomes.collect())
}

/// The hosts that do not let the operator in, with the reason. If one has an unknown key, `ssh`
/// asks for it, one host after the other.
async fn unreached<'a>(
    ssh: &Ssh,
    hosts: &'a [SshHost],
    can_ask: bool,
    screen: &mut Screen,
) -> Result<BTreeMap<&'a str, SshError>, SshError> {
    let live = screen.live();
    let checks = (hosts.iter())
        .filter(|host| !host.is_connected)
        .map(async |host| {
            live.set(&key(host), &format!("{}  ssh …", host.name));
            let checked = ssh.check(&host.destination).await;
            live.remove(&key(host));
            (host, checked)
        });
    let checked: Vec<_> = stream::iter(checks).buffered(AT_ONCE).collect().await;
    let mut failed = BTreeMap::new();
    for (host, mut checked) in checked {
        if can_ask && matches!(checked, Err(SshError::UnknownKey { .. })) {
            screen.note(format!(
                "{} is new to this user: compare the fingerprint with that of `ssh-keygen -lf \
                 /etc/ssh/ssh_host_ed25519_key.pub` on {}.",
                host.destination, host.name
            ));
            checked = match ssh.ask(&host.destination).await {
                Ok(()) => ssh.check(&host.destination).await,
                Err(error) => Err(error),
            };
        }
        match checked {
            Ok(()) => {}
            Err(error @ SshError::Program(_)) => return Err(error),
            Err(error) => {
                failed.insert(host.name.as_str(), error);
            }
        }
    }
    Ok(failed)
}

/// The key of a host's live line; those of its run begin in the same way.
fn key(host: &SshHost) -> String {
    format!("{}/", host.name)
}

/// Runs the command of a host there.
async fn enrol(
    ssh: &Ssh,
    host: &SshHost,
    node: &v1::AddedNode,
    screen: &RefCell<&mut Screen>,
) -> Result<(), SshError> {
    let started = Instant::now();
    let live = screen.borrow().live().clone();
    live.set(&key(host), &format!("{}  enrol …", host.name));
    let secret = node.token.split('.').nth(1).unwrap_or(&node.token);
    let joined = ssh.join(&host.destination, &node.command, secret).await;
    live.remove(&key(host));
    let mut screen = screen.borrow_mut();
    let mark = match &joined {
        Ok(()) => screen.paint().good("✓"),
        Err(_) => screen.paint().bad("✗"),
    };
    let time = seconds(started.elapsed().as_secs_f64());
    screen.line(format!("{}  enrol {mark}  {time}", host.name));
    joined
}

#[cfg(test)]
#[path = "node_ssh_tests.rs"]
mod tests;
