//! Whether this host can become the first one of a cluster: every check on its own, all that is
//! wrong in one report.
//!
//! A check is a function over [`Facts`], which are gathered once and change nothing; so each can be
//! tested without a host on which it fails.

mod facts;
mod network;
mod resources;
mod system;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::output::Paint;

pub use facts::{Facts, Installed, Wanted};

/// What a check came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to say.
    Good,
    /// It works, but somebody should know: what, and what to do or what will be done.
    Warning(String, String),
    /// It would fail: what is wrong, and what to do.
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

/// One check.
pub struct Check {
    /// Its name, for people and for documents.
    pub name: &'static str,
    /// Judges.
    pub judge: fn(&Facts) -> Verdict,
}

const fn check(name: &'static str, judge: fn(&Facts) -> Verdict) -> Check {
    Check { name, judge }
}

/// All checks, in the order in which they are told.
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

/// A check and what it came to.
pub struct Finding {
    /// The check's name.
    pub name: &'static str,
    /// What it came to.
    pub verdict: Verdict,
}

/// Runs all checks.
#[must_use]
pub fn run(facts: &Facts) -> Vec<Finding> {
    CHECKS
        .iter()
        .map(|check| Finding {
            name: check.name,
            verdict: (check.judge)(facts),
        })
        .collect()
}

/// Whether nothing is bad.
#[must_use]
pub fn passed(findings: &[Finding]) -> bool {
    !findings
        .iter()
        .any(|finding| matches!(finding.verdict, Verdict::Bad(..)))
}

/// The report for people: what is bad, what is worth knowing, and one line for the rest.
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

/// The report as a document.
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
