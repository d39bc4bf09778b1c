//! Adding hosts to a cluster: each is declared, runs the printed command, and becomes Ready.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::Cluster;
use crate::host::Host;
use crate::role;
use crate::role::Role;

/// The command that adds a host; it declares it, and waits until it is Ready.
fn node_add(host: &Host, roles: &str) -> Vec<String> {
    [
        "ctl",
        "node",
        "add",
        &host.spec.name,
        "--address",
        &host.control_plane_address(),
        "--roles",
        roles,
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The command that adds hosts with equal roles.
fn nodes_add(hosts: &[&Host], roles: &str) -> Vec<String> {
    if let [only] = hosts {
        return node_add(only, roles);
    }
    let mut command = ["ctl", "node", "add"].map(str::to_owned).to_vec();
    for host in hosts {
        let address = host.control_plane_address();
        command.push(format!("{}={address}", host.spec.name));
    }
    command.extend(["--roles", roles].map(str::to_owned));
    command
}

/// `ctl node add` that does not wait.
fn only_declares(mut add: Vec<String>) -> Vec<String> {
    add.extend(["--no-wait", "-o", "json"].map(str::to_owned));
    add
}

/// Runs the line that `ctl` printed on the new host.
pub(super) fn enrol(host: &Host, line: &str) -> Result<()> {
    let enrol = host.output(&["sh", "-c", line])?;
    if !enrol.status.success() {
        bail!(
            "enrolling {} failed: {}{}",
            host.spec.name,
            String::from_utf8_lossy(&enrol.stdout),
            String::from_utf8_lossy(&enrol.stderr)
        );
    }
    Ok(())
}

/// Declares hosts with `ctl` on that host; returns the lines to run on them.
fn lines(on: &Host, command: &[String]) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Added {
        nodes: Vec<AddedNode>,
    }
    #[derive(Deserialize)]
    struct AddedNode {
        command: String,
    }
    let answer: Added = serde_json::from_str(&on.run(command)?)
        .context("`ctl node add -o json` did not print the nodes")?;
    Ok(answer.nodes.into_iter().map(|node| node.command).collect())
}

impl Cluster {
    /// The command that adds the worker; it declares it, and waits until it is Ready.
    #[must_use]
    pub fn add_command(&self) -> Vec<String> {
        node_add(&self.worker, &Role::Worker.to_string())
    }

    /// The command that only declares the worker, and prints what must run on it.
    #[must_use]
    pub fn declare_command(&self) -> Vec<String> {
        only_declares(self.add_command())
    }

    /// Declares the worker; returns the shell line that must run on it.
    pub fn declare_worker(&self) -> Result<String> {
        self.declared(&self.declare_command())
    }

    fn declared(&self, command: &[String]) -> Result<String> {
        let line = lines(&self.bootstrap, command)?.into_iter().next();
        line.context("`ctl node add` printed no command")
    }

    /// Runs the printed line on the worker.
    pub fn enrol_worker(&self, command: &str) -> Result<()> {
        enrol(&self.worker, command)
    }

    /// Declares the worker, runs the printed command on it, and waits until it is Ready.
    pub fn add_worker(&self) -> Result<Duration> {
        self.add_worker_with(&Role::Worker.to_string())
    }

    /// The same with other roles, separated by commas.
    pub fn add_worker_with(&self, roles: &str) -> Result<Duration> {
        self.add(&[&self.worker.spec.name], roles)
    }

    /// Adds a group of a layout, whose hosts have equal roles.
    pub fn join(&self, group: &[&str]) -> Result<Duration> {
        let first = group.first().context("the group has no host")?;
        self.add(group, &role::list(&self.host(first)?.spec.roles))
    }

    /// Declares hosts with these roles, separated by commas; runs the printed command on each; and
    /// waits until all are Ready.
    pub fn add(&self, names: &[&str], roles: &str) -> Result<Duration> {
        self.add_on(&self.bootstrap, names, roles)
    }

    /// The same with `ctl` on another host.
    pub fn add_on(&self, on: &Host, names: &[&str], roles: &str) -> Result<Duration> {
        let hosts = self.named(names)?;
        self.add_by(on, names, &nodes_add(&hosts, roles))
    }

    /// The same by a command on that host, which names them in this order.
    pub fn add_by(&self, on: &Host, names: &[&str], add: &[String]) -> Result<Duration> {
        let start = Instant::now();
        self.enrol_by(on, names, add)?;
        if !on.show(add)?.success() {
            bail!("adding {} failed", names.join(", "));
        }
        Ok(start.elapsed())
    }

    /// Declares hosts with these roles, separated by commas, and runs the printed command on each.
    /// Returns the command that waits until all are Ready: the same one, which then declares
    /// nothing new.
    pub fn enrol(&self, names: &[&str], roles: &str) -> Result<Vec<String>> {
        let add = nodes_add(&self.named(names)?, roles);
        self.enrol_by(&self.bootstrap, names, &add)?;
        Ok(add)
    }

    fn enrol_by(&self, on: &Host, names: &[&str], add: &[String]) -> Result<()> {
        let lines = lines(on, &only_declares(add.to_vec()))?;
        for (host, line) in self.named(names)?.iter().zip(&lines) {
            enrol(host, line)?;
        }
        Ok(())
    }

    fn named(&self, names: &[&str]) -> Result<Vec<&Host>> {
        names.iter().map(|name| self.host(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::cluster;
    use super::super::{BOOTSTRAP, WORKER};
    use super::*;
    use crate::layout::{HA, TWO};

    #[test]
    fn the_two_hosts_are_added_as_ever() {
        let two = cluster(&TWO);
        assert_eq!(
            [&two.bootstrap.spec.name, &two.worker.spec.name],
            [BOOTSTRAP, WORKER]
        );
        assert_eq!(
            two.declare_command().join(" "),
            "ctl node add worker-1 --address 10.10.1.12 --roles worker --no-wait -o json"
        );
    }

    #[test]
    fn a_control_plane_is_added_with_the_roles_of_its_layout() {
        let ha = cluster(&HA);
        let host = ha.host("cp-2").unwrap();
        assert_eq!(
            node_add(host, &role::list(&host.spec.roles)).join(" "),
            "ctl node add cp-2 --address 10.10.0.12 --roles control-plane,etcd"
        );
        let both = [host, ha.host("cp-3").unwrap()];
        assert_eq!(
            nodes_add(&both, "control-plane,etcd").join(" "),
            "ctl node add cp-2=10.10.0.12 cp-3=10.10.0.13 --roles control-plane,etcd"
        );
    }
}
