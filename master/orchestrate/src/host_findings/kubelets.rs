//! Kubelets with another version than their host's bundle has, as after a package that an operator
//! has replaced by hand.

use std::collections::{BTreeMap, BTreeSet};

use halite_api::{UpgradeCheck, UpgradeFinding, UpgradeSeverity};
use halite_core::refusal::Refusal;
use halite_pillar::release::{is_newer_minor, minors_behind, order};

use super::against::{Against, finding};

/// The number of minor versions that a kubelet may be older than an API server
/// (<https://kubernetes.io/releases/version-skew-policy/#kubelet>). It is never newer.
const OLDER: u64 = 3;

/// The findings about the kubelets of declared hosts, by their versions. One that a run has begun
/// to replace causes none: the run that stopped has not recorded it.
///
/// # Errors
/// The bundles of the site cannot be read.
pub fn findings(
    against: &Against<'_>,
    kubelets: &BTreeMap<&str, &str>,
) -> Result<Vec<UpgradeFinding>, Refusal> {
    let declaration = against.snapshot.declaration();
    let site = against.snapshot.bundle()?.on_site();
    let given = site.iter().filter(|held| {
        let mut given = against.given.iter();
        given.any(|bundle| *bundle == held.version)
    });
    let given: BTreeSet<&str> = given.map(|held| held.kubernetes.as_str()).collect();
    let servers = declaration.nodes.iter();
    let servers = servers.filter(|(_, node)| node.serves_api());
    let servers = servers.map(|(name, _)| declaration.kubernetes_for(name));
    let oldest = servers.min_by(|one, other| order(one, other));
    let mut found = Vec::new();
    for (host, running) in kubelets {
        let recorded = declaration.kubernetes_for(host);
        let is_equal = |version: &str| order(version, running).is_eq();
        let is_known = is_equal(recorded) || given.iter().any(|version| is_equal(version));
        if is_known || !declaration.nodes.contains_key(*host) {
            continue;
        }
        let skew = match oldest {
            Some(oldest) if is_newer_minor(running, oldest) => Some(format!(
                "; it must not be newer than an API server ({oldest})"
            )),
            _ if minors_behind(running, against.kubernetes) > OLDER => Some(format!(
                "; the API servers of {} support kubelets of at most {OLDER} earlier minor versions",
                against.kubernetes
            )),
            _ => None,
        };
        let severity = match skew {
            Some(_) => UpgradeSeverity::Error,
            None => UpgradeSeverity::Warning,
        };
        found.push(finding(
            severity,
            UpgradeCheck::Kubelets,
            Some(host),
            format!(
                "the kubelet of {host} is {running}, and its bundle has {recorded}{}",
                skew.unwrap_or_default()
            ),
            format!("`ctl highstate {host}` installs the one of its bundle"),
        ));
    }
    Ok(found)
}
