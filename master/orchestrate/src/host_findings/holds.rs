//! Packages on hold that the next bundle replaces.

use std::collections::BTreeMap;

use halite_api::{UpgradeCheck, UpgradeFinding, UpgradeSeverity};
use halite_core::refusal::Refusal;
use halite_host_reports::health::HostHealth;
use halite_names::NodeName;
use halite_preflight::checks::{held_problem, packages_of};

use super::against::{Against, finding};

/// The findings about hosts that have reported their holds.
///
/// # Errors
/// A bundle cannot be read.
pub async fn findings(
    against: &Against<'_>,
    answers: &BTreeMap<NodeName, HostHealth>,
) -> Result<Vec<UpgradeFinding>, Refusal> {
    let declarations = against.jobs.declarations();
    let upgraded = declarations
        .upgraded(against.bundle, against.direction)
        .await?;
    let packages = &upgraded.bundle()?.packages;
    let declaration = upgraded.declaration();
    let mut found = Vec::new();
    for host in against.hosts_that_change() {
        let (Some(node), Some(health)) = (
            declaration.nodes.get(host.as_str()),
            answers.get(host.as_str()),
        ) else {
            continue;
        };
        let gets = packages_of(declaration, node, packages);
        found.extend(held(host, &health.held, &gets));
    }
    Ok(found)
}

fn held(
    host: &str,
    held: &BTreeMap<String, String>,
    gets: &BTreeMap<String, String>,
) -> Option<UpgradeFinding> {
    let (problem, remedy) = held_problem(held, gets)?;
    Some(finding(
        UpgradeSeverity::Error,
        UpgradeCheck::Packages,
        Some(host),
        format!("on {host} {problem}; the run would stop there"),
        format!("on {host}, {remedy}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_stops_an_upgrade_only_if_its_package_changes() {
        let versions = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            let pairs = all.iter();
            pairs
                .map(|(name, version)| ((*name).to_owned(), (*version).to_owned()))
                .collect()
        };
        let gets = versions(&[
            ("kubelet", "1.36.4-1"),
            ("containerd", "2.3.6-1"),
            ("chrony", "4"),
        ]);
        let judged = |on_hold: &[(&str, &str)]| held("w-1", &versions(on_hold), &gets);
        assert_eq!(judged(&[]), None);
        assert_eq!(
            judged(&[("containerd", "2.3.6-1"), ("chrony", "3"), ("vim", "9")]),
            None
        );
        let found = judged(&[("kubelet", "1.36.3-1")]).unwrap();
        assert_eq!(found.severity, UpgradeSeverity::Error);
        assert_eq!(
            found.message,
            "on w-1 packages are on hold: kubelet (1.36.3-1, to become 1.36.4-1); the run would stop there"
        );
        assert_eq!(found.remedy, "on w-1, run: apt-mark unhold kubelet");
    }
}
