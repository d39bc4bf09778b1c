//! Checks whether this host can become the first one of a cluster, and reports all problems at
//! once.
//!
//! A check is a pure function of [`NodeFacts`]. These are collected once, without changing
//! anything. So each check is tested without a host on which it fails.

mod network;
mod node_facts;
mod resources;
mod system;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::output::Paint;

pub use node_facts::{ExistingCluster, HostRequirements, NodeFacts};

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No problem.
    Good,
    /// A remark that does not stop the bootstrap: the message and a hint.
    Warning(String, String),
    /// A problem with which the bootstrap would fail: the message and the remedy.
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

/// A check.
pub struct Check {
    /// Its name in reports.
    pub name: &'static str,
    /// The check itself.
    pub judge: fn(&NodeFacts) -> Verdict,
}

const fn check(name: &'static str, judge: fn(&NodeFacts) -> Verdict) -> Check {
    Check { name, judge }
}

/// All checks, in the order of the report.
pub const CHECKS: &[Check] = &[
    check("documents", network::documents),
    check("root", system::root),
    check("systemd", system::systemd),
    check("operating-system", system::operating_system),
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
    check("packages", system::packages),
    check("host-name", system::host_name),
    check("machine-id", system::machine_id),
    check("clock", system::clock),
    check("bundle", system::bundle),
    check("other-cluster", system::other_cluster),
    check("other-kubernetes", system::other_kubernetes),
    check("other-firewall", network::other_firewall),
    check("ports-kubernetes", network::ports_kubernetes),
    check("ports-etcd", network::ports_etcd),
    check("ports-halite", network::ports_halite),
    check("name-server", network::name_server),
    check("vip", network::vip),
];

/// A check with its result.
pub struct Finding {
    /// The check's name.
    pub name: &'static str,
    /// The result.
    pub verdict: Verdict,
}

/// Runs all checks.
#[must_use]
pub fn run(facts: &NodeFacts) -> Vec<Finding> {
    CHECKS
        .iter()
        .map(|check| Finding {
            name: check.name,
            verdict: (check.judge)(facts),
        })
        .collect()
}

/// Returns true if no check found a problem.
#[must_use]
pub fn passed(findings: &[Finding]) -> bool {
    !findings
        .iter()
        .any(|finding| matches!(finding.verdict, Verdict::Bad(..)))
}

/// Formats the report for people: one line with the number of checks, then problems and remarks.
#[must_use]
pub fn report(findings: &[Finding], paint: Paint) -> String {
    let mut text = String::new();
    let mut good = 0;
    for finding in findings {
        let (mark, message, hint) = match &finding.verdict {
            Verdict::Good => {
                good += 1;
                continue;
            }
            Verdict::Warning(message, hint) => (paint.notable("!"), message, hint),
            Verdict::Bad(message, hint) => (paint.bad("✗"), message, hint),
        };
        text.push_str(&format!(
            "  {mark} {}: {}\n",
            finding.name,
            message.replace('\n', "\n    ")
        ));
        if !hint.is_empty() {
            text.push_str(&format!("      {hint}\n"));
        }
    }
    let mark = if passed(findings) {
        paint.good("✓")
    } else {
        paint.bad("✗")
    };
    let outcome = if good == findings.len() {
        format!("{} checks", findings.len())
    } else {
        format!("{good} of {} checks", findings.len())
    };
    format!("preflight    {mark} {outcome}\n{text}")
        .trim_end()
        .to_owned()
}

/// Makes the report as a document.
#[must_use]
pub fn document(findings: &[Finding]) -> Value {
    let each = |finding: &Finding| {
        let (verdict, message, hint) = match &finding.verdict {
            Verdict::Good => ("good", "", ""),
            Verdict::Warning(message, hint) => ("warning", message.as_str(), hint.as_str()),
            Verdict::Bad(message, hint) => ("bad", message.as_str(), hint.as_str()),
        };
        json!({"check": finding.name, "verdict": verdict, "message": message, "hint": hint})
    };
    findings.iter().map(each).collect()
}
