//! The checks, and their report.

mod added;
mod host_packages;
mod network;
mod packages;
mod requirements;
mod resources;
mod system;
#[cfg(test)]
mod tests;

use crate::node_facts::NodeFacts;
use crate::part::ClusterPart;

pub use host_packages::{packages_of, packages_of_first_host};
pub use network::gained_ports;
pub use packages::held_problem;
pub use requirements::{of_cluster, resolver, thresholds};

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No problem.
    Good,
    /// A problem that does not block: the message and a hint.
    Warning(String, String),
    /// A problem that prevents the host from joining: the message and the remedy.
    Bad(String, String),
}

impl Verdict {
    fn bad(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Bad(message.into(), hint.into())
    }

    fn warning(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Warning(message.into(), hint.into())
    }
}

/// The hosts to which a check applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The first host of a cluster.
    First,
    /// A host that is added to a cluster.
    Added,
    /// Both.
    Each,
}

/// A check.
pub struct Check {
    /// Its name in reports.
    pub name: &'static str,
    /// The hosts to which it applies.
    pub scope: Scope,
    /// The check itself.
    pub judge: fn(&NodeFacts) -> Verdict,
}

const fn check(name: &'static str, judge: fn(&NodeFacts) -> Verdict) -> Check {
    Check {
        name,
        scope: Scope::Each,
        judge,
    }
}

const fn first(name: &'static str, judge: fn(&NodeFacts) -> Verdict) -> Check {
    Check {
        name,
        scope: Scope::First,
        judge,
    }
}

const fn added(name: &'static str, judge: fn(&NodeFacts) -> Verdict) -> Check {
    Check {
        name,
        scope: Scope::Added,
        judge,
    }
}

/// All checks, in the order of the report.
pub const CHECKS: &[Check] = &[
    first("documents", network::documents),
    check("root", system::root),
    check("systemd", system::systemd),
    first("operating-system", system::operating_system),
    check("architecture", system::architecture),
    check("kernel", system::kernel),
    check("file-systems", resources::file_systems),
    check("cpus", system::cpus),
    check("memory", system::memory),
    check("disk", resources::disk),
    check("disk-pressure", resources::disk_pressure),
    check("inodes", resources::inodes),
    check("writable", resources::writable),
    check("executable", resources::executable),
    check("container-storage", resources::container_storage),
    check("swap", resources::swap),
    check("cgroup-version", resources::cgroup_version),
    check("cgroup-controllers", resources::cgroup_controllers),
    check("kernel-log", resources::kernel_log),
    check("tools", system::tools),
    check("packages", packages::interrupted),
    check("held-packages", packages::held),
    check("container-engine", packages::container_engine),
    check("host-name", system::host_name),
    check("machine-id", system::machine_id),
    first("clock", system::clock),
    first("bundle", system::bundle),
    first("other-cluster", system::other_cluster),
    check("other-kubernetes", system::other_kubernetes),
    check("other-pod-network", network::other_pod_network),
    check("other-firewall", network::other_firewall),
    check("ports-kubernetes", network::ports_kubernetes),
    check("ports-etcd", network::ports_etcd),
    check("ports-halite", network::ports_halite),
    check("name-server", network::name_server),
    first("vip", network::vip),
    added("unique-name", added::unique_name),
    added("unique-machine-id", added::unique_machine_id),
    added("clock-of-master", added::clock),
    added("peers", added::peers),
    added("mtu", added::mtu),
    added("packet-filter", added::packet_filter),
    added("vip-of-host", added::vip),
    added("vip-answers", added::vip_answers),
    added("etcd-disk", added::etcd_disk),
];

/// A check with its result.
pub struct Finding {
    /// The check's name.
    pub name: &'static str,
    /// The result.
    pub verdict: Verdict,
}

/// Runs the checks for this host.
#[must_use]
pub fn run(facts: &NodeFacts) -> Vec<Finding> {
    let other = match facts.part {
        ClusterPart::First => Scope::Added,
        ClusterPart::Added(_) => Scope::First,
    };
    CHECKS
        .iter()
        .filter(|check| check.scope != other)
        .map(|check| Finding {
            name: check.name,
            verdict: (check.judge)(facts),
        })
        .collect()
}

/// Returns `true` if no check found a problem.
#[must_use]
pub fn passed(findings: &[Finding]) -> bool {
    !findings
        .iter()
        .any(|finding| matches!(finding.verdict, Verdict::Bad(..)))
}

/// Turns the problems found by these checks into warnings, at the operator's request.
pub fn ignore(findings: &mut [Finding], names: &[String]) {
    for finding in findings {
        if let Verdict::Bad(message, hint) = &finding.verdict
            && names.iter().any(|name| name == finding.name)
        {
            finding.verdict = Verdict::Warning(format!("{message} (ignored)"), hint.clone());
        }
    }
}
