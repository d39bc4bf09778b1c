//! Checks of the packages that are on a host before the bundle's are installed.

use std::collections::BTreeMap;

use super::Verdict;
use super::network::roles;
use crate::node_facts::{ExistingCluster, NodeFacts};

/// The packages that hosts have in exactly the bundle's version (`pinned` of
/// `halite/host/map.jinja`). Other packages of the bundle stay in any version.
const PINNED: [&str; 7] = [
    "containerd",
    "distribution-registry",
    "kubeadm",
    "kubectl",
    "kubelet",
    "kubernetes-cni",
    "runc",
];

/// Reports an interrupted package installation. On a host of this cluster, it was interrupted
/// during an earlier run of the states, which will finish it.
pub(super) fn interrupted(facts: &NodeFacts) -> Verdict {
    if !facts.dpkg_interrupted || facts.existing == ExistingCluster::This {
        return Verdict::Good;
    }
    Verdict::bad(
        "an installation of packages was interrupted",
        "run: dpkg --configure -a",
    )
}

/// Reports packages that the operator has put on hold, and that the run would install or replace.
pub(super) fn held(facts: &NodeFacts) -> Verdict {
    match held_problem(&facts.packages.held, &facts.requirements.packages) {
        Some((message, remedy)) => Verdict::bad(message, remedy),
        None => Verdict::Good,
    }
}

/// The problem of packages on hold that a host would have to install or replace to get these
/// packages, with the remedy; both name to version, which is empty for a held package that is not
/// installed.
#[must_use]
pub fn held_problem(
    held: &BTreeMap<String, String>,
    gets: &BTreeMap<String, String>,
) -> Option<(String, String)> {
    let changed: Vec<(&str, String)> = held
        .iter()
        .filter_map(|(name, version)| {
            let wanted = gets.get(name)?;
            let differs = PINNED.contains(&name.as_str()) && version != wanted;
            let change = match version.is_empty() {
                true => format!("{name} (to be installed)"),
                false => format!("{name} ({version}, to become {wanted})"),
            };
            (version.is_empty() || differs).then_some((name.as_str(), change))
        })
        .collect();
    if changed.is_empty() {
        return None;
    }
    let (names, changes): (Vec<&str>, Vec<String>) = changed.into_iter().unzip();
    Some((
        format!("packages are on hold: {}", changes.join(", ")),
        format!("run: apt-mark unhold {}", names.join(" ")),
    ))
}

/// Reports another container engine: the bundle's containerd would remove its packages, or take its
/// configuration and its containers over.
pub(super) fn container_engine(facts: &NodeFacts) -> Verdict {
    let found = &facts.packages;
    if facts.existing != ExistingCluster::None || !roles(facts).runs_containers {
        return Verdict::Good;
    }
    let mut parts = Vec::new();
    if !found.engines.is_empty() {
        parts.push(list("the packages", &found.engines));
    }
    if !found.units.is_empty() {
        parts.push(list("the units", &found.units));
    }
    if !found.replaced.is_empty() {
        parts.push(list(
            "and containerd of the bundle would remove",
            &found.replaced,
        ));
    }
    if parts.is_empty() {
        return Verdict::Good;
    }
    Verdict::bad(
        format!(
            "another container engine is on the host: {}",
            parts.join("; ")
        ),
        "move its containers to another host and remove it (`apt-get purge`, or the unit's file), or use a bare host",
    )
}

fn list<'a>(what: &str, names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    format!("{what} {}", names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_packages_are_those_of_the_state_tree() {
        let tree = include_str!("../../../../states/tree/halite/host/map.jinja");
        let pinned = tree.split("set pinned = ").nth(1);
        let pinned = pinned.and_then(|rest| rest.split("%}").next()).unwrap();
        let mut named: Vec<&str> = pinned.split('\'').skip(1).step_by(2).collect();
        named.sort_unstable();
        named.dedup();
        assert_eq!(named, PINNED);
    }

    #[test]
    fn only_a_hold_of_a_package_that_changes_is_a_problem() {
        let mut facts = NodeFacts::default();
        let packages = [("kubelet", "1.36.3-1"), ("curl", "8"), ("ethtool", "6.1-1")];
        let pair = |(name, version): (&str, &str)| (name.to_owned(), version.to_owned());
        facts.requirements.packages = packages.map(pair).into();
        let mut judge = |held: &[(&str, &str)]| {
            facts.packages.held = held.iter().copied().map(pair).collect();
            super::held(&facts)
        };
        assert_eq!(judge(&[("curl", "7"), ("bash", "5")]), Verdict::Good);
        assert_eq!(judge(&[("kubelet", "1.36.3-1")]), Verdict::Good);
        let message = "packages are on hold: ethtool (to be installed), kubelet (1.35.0-1, to become 1.36.3-1)";
        assert_eq!(
            judge(&[("kubelet", "1.35.0-1"), ("ethtool", "")]),
            Verdict::bad(message, "run: apt-mark unhold ethtool kubelet")
        );
    }

    #[test]
    fn an_engine_is_named_with_what_would_be_removed() {
        let mut facts = NodeFacts::default();
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        facts.packages.engines = set(&["docker-ce"]);
        facts.packages.replaced = set(&["containerd.io", "docker-ce"]);
        facts.packages.units = vec!["/etc/systemd/system/containerd.service".into()];
        let Verdict::Bad(message, _) = container_engine(&facts) else {
            panic!("it is not reported");
        };
        assert_eq!(
            message,
            "another container engine is on the host: the packages docker-ce; the units \
             /etc/systemd/system/containerd.service; and containerd of the bundle would remove containerd.io docker-ce"
        );
        facts.existing = ExistingCluster::This;
        assert_eq!(container_engine(&facts), Verdict::Good);
    }
}
