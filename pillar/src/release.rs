//! The bundle and the Kubernetes version of each host. The cluster document records the cluster's.
//! A node document records its own only while they differ: in the middle of an upgrade.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use halite_names::{BundleVersion, MASTER};

use crate::cluster::ResolvedCluster;
use crate::declaration::Declaration;

/// A bundle and its Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The bundle's version.
    pub bundle: BundleVersion,
    /// Its Kubernetes, for example `v1.36.3`.
    pub kubernetes: String,
}

/// The minor version of a Kubernetes version: `1.36` for `v1.36.3`.
#[must_use]
pub fn minor(kubernetes: &str) -> String {
    let mut parts = kubernetes.trim_start_matches('v').split('.');
    let (major, minor) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    format!("{major}.{minor}")
}

/// Returns whether a Kubernetes version has the minor version directly after another one's: so have
/// `v1.36.3` and `v1.35.4`. Another major version follows none.
#[must_use]
pub fn is_next_minor(kubernetes: &str, before: &str) -> bool {
    minors_behind(before, kubernetes) == 1
}

/// The number of minor versions from one Kubernetes version to a newer one: 1 from `v1.35.4` to
/// `v1.36.3`. 0 if the other one is not newer, or has another major version.
#[must_use]
pub fn minors_behind(kubernetes: &str, newer: &str) -> u64 {
    let numbers = |kubernetes: &str| -> Option<(u64, u64)> {
        let minor = minor(kubernetes);
        let (major, minor) = minor.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    match (numbers(kubernetes), numbers(newer)) {
        (Some((major, minor)), Some((same, newer))) if major == same => newer.saturating_sub(minor),
        _ => 0,
    }
}

/// Returns whether a version of Kubernetes has a newer minor version than another one.
#[must_use]
pub fn is_newer_minor(kubernetes: &str, than: &str) -> bool {
    minor(kubernetes) != minor(than) && order(kubernetes, than).is_gt()
}

/// The order of two Kubernetes versions: `v1.36.10` is newer than `v1.36.9`, and a release newer
/// than its candidates.
#[must_use]
pub fn order(one: &str, other: &str) -> Ordering {
    key(one).cmp(&key(other))
}

fn key(kubernetes: &str) -> (Vec<u64>, bool, &str) {
    let text = kubernetes.trim_start_matches('v');
    let (numbers, candidate) = text.split_once('-').unwrap_or((text, ""));
    let numbers = numbers.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.collect(), candidate.is_empty(), candidate)
}

impl Declaration {
    /// The bundle that a minion is compiled from: the one that its document records, or else the
    /// cluster's. `None` if the cluster document records none.
    #[must_use]
    pub fn bundle_for(&self, minion: &str) -> Option<&BundleVersion> {
        let own = self.nodes.get(minion).and_then(|node| node.own_release());
        let cluster = self.cluster.resolved.as_ref();
        own.map(|(bundle, _)| bundle)
            .or_else(|| cluster?.bundle.as_ref())
    }

    /// The Kubernetes version of a minion: the one that its document records, or else the
    /// cluster's.
    #[must_use]
    pub fn kubernetes_for(&self, minion: &str) -> &str {
        let own = self.nodes.get(minion).and_then(|node| node.own_release());
        own.map_or_else(
            || self.cluster.kubernetes_version(),
            |(_, kubernetes)| kubernetes,
        )
    }

    /// The bundles that the cluster or one of its hosts uses.
    #[must_use]
    pub fn bundles_in_use(&self) -> BTreeSet<&BundleVersion> {
        let nodes = self.nodes.keys().map(halite_names::NodeName::as_str);
        nodes
            .chain([MASTER])
            .filter_map(|minion| self.bundle_for(minion))
            .collect()
    }

    /// Gives a release to one minion only: a host, or with `master` the cluster and its objects. A
    /// node document records it only if it is not the cluster's; the addresses of the host must be
    /// recorded.
    pub fn set_release(&mut self, minion: &str, release: &Release) {
        if minion == MASTER {
            return self.set_cluster_release(release);
        }
        let cluster = self.cluster_release();
        if let Some(resolved) =
            (self.nodes.get_mut(minion)).and_then(|node| node.value.resolved.as_mut())
        {
            let own = (cluster.as_ref() != Some(release)).then(|| release.clone());
            resolved.bundle = own.as_ref().map(|own| own.bundle.clone());
            resolved.kubernetes = own.map(|own| own.kubernetes);
        }
    }

    /// Gives the cluster a release; each host keeps its own. With another minor version, the
    /// declared one changes, too.
    fn set_cluster_release(&mut self, release: &Release) {
        let before = self.cluster_release();
        let declared = &mut self.cluster.value.kubernetes.version;
        if minor(declared) != minor(&release.kubernetes) {
            *declared = minor(&release.kubernetes);
        }
        let resolved = self.cluster.value.resolved.take();
        self.cluster.value.resolved = Some(ResolvedCluster {
            kubernetes: release.kubernetes.clone(),
            bundle: Some(release.bundle.clone()),
            master: resolved
                .as_ref()
                .and_then(|resolved| resolved.master.clone()),
            etcd: resolved.and_then(|resolved| resolved.etcd),
        });
        let names: Vec<String> = self.nodes.keys().map(ToString::to_string).collect();
        for name in names {
            let own = self.nodes.get(name.as_str()).and_then(|node| {
                node.own_release()
                    .map(|(bundle, kubernetes)| Release {
                        bundle: bundle.clone(),
                        kubernetes: kubernetes.to_owned(),
                    })
                    .or_else(|| before.clone())
            });
            if let Some(own) = own {
                self.set_release(&name, &own);
            }
        }
    }

    /// The release that the cluster document records.
    #[must_use]
    pub fn cluster_release(&self) -> Option<Release> {
        let resolved = self.cluster.resolved.as_ref()?;
        Some(Release {
            bundle: resolved.bundle.clone()?,
            kubernetes: resolved.kubernetes.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Text, Texts, load};
    use crate::validate::Context;

    fn release(bundle: &str, kubernetes: &str) -> Release {
        Release {
            bundle: bundle.parse().unwrap(),
            kubernetes: kubernetes.to_owned(),
        }
    }

    fn declaration() -> Declaration {
        let node = |name: &str, roles: &str, last: u8| Text {
            file: format!("nodes/{name}.yaml"),
            text: format!(
                "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [{roles}]\n\
                 resolved: {{controlPlane: 10.0.0.{last}, workloadPlane: 10.0.0.{last}}}\n"
            ),
        };
        let texts = Texts {
            cluster: Text {
                file: "cluster.yaml".to_owned(),
                text: "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: prod}\n\
                       networks: {controlPlane: {cidrs: [10.0.0.0/24]}}\nkubernetes: {version: '1.36'}\n\
                       resolved: {kubernetes: v1.36.3, bundle: '1.0'}\n"
                    .to_owned(),
            },
            nodes: vec![
                node("cp-1", "bootstrap, registry, etcd, control-plane", 1),
                node("worker-1", "worker", 2),
                node("worker-2", "worker", 3),
            ],
            ..Texts::default()
        };
        load(&texts, &Context::default()).unwrap()
    }

    fn recorded(declaration: &Declaration) -> Vec<(&str, Option<&str>)> {
        let each = declaration.nodes.values().map(|node| {
            let own = node.own_release();
            (
                node.metadata.name.as_str(),
                own.map(|(bundle, _)| bundle.as_str()),
            )
        });
        each.collect()
    }

    #[test]
    fn versions_have_an_order() {
        for (older, newer) in [
            ("v1.36.3", "v1.36.4"),
            ("v1.36.9", "v1.36.10"),
            ("1.35.9", "v1.36.0"),
            ("v1.36.0-rc.1", "v1.36.0"),
        ] {
            assert_eq!(order(older, newer), Ordering::Less, "{older} {newer}");
        }
        assert_eq!(order("1.36.3", "v1.36.3"), Ordering::Equal);
        assert_eq!(minor("v1.36.3"), "1.36");
    }

    #[test]
    fn a_minor_version_follows_one_other() {
        for (kubernetes, before, follows) in [
            ("v1.36.3", "v1.35.4", true),
            ("v1.36.0-rc.1", "1.35", true),
            ("v1.36.3", "v1.36.1", false),
            ("v1.35.4", "v1.36.3", false),
            ("v1.37.0", "v1.35.4", false),
            ("v2.36.0", "v1.35.4", false),
            ("v1.10.0", "v1.9.9", true),
            ("latest", "v1.35.4", false),
        ] {
            assert_eq!(
                is_next_minor(kubernetes, before),
                follows,
                "{kubernetes} after {before}"
            );
        }
    }

    #[test]
    fn the_declared_minor_version_changes_with_the_clusters_and_not_with_a_hosts() {
        let mut all = declaration();
        all.set_release("cp-1", &release("2.0", "v1.37.0"));
        assert_eq!(all.cluster.kubernetes.version, "1.36");
        all.set_release(MASTER, &release("2.0", "v1.37.0"));
        assert_eq!(all.cluster.kubernetes.version, "1.37");
        assert_eq!(all.kubernetes_for("worker-1"), "v1.36.3");
    }

    #[test]
    fn an_upgrade_records_each_host_and_leaves_no_record_in_the_end() {
        let mut all = declaration();
        let newer = release("1.1", "v1.36.4");
        all.set_release("cp-1", &newer);
        assert_eq!(
            recorded(&all),
            [
                ("cp-1", Some("1.1")),
                ("worker-1", None),
                ("worker-2", None)
            ]
        );
        assert_eq!(
            (all.kubernetes_for("cp-1"), all.kubernetes_for("worker-1")),
            ("v1.36.4", "v1.36.3")
        );
        assert_eq!(all.bundle_for(MASTER).unwrap().as_str(), "1.0");
        assert_eq!(all.bundles_in_use().len(), 2);
        // The cluster changes its bundle: a host without a record keeps its own.
        all.set_release(MASTER, &newer);
        assert_eq!(
            recorded(&all),
            [
                ("cp-1", None),
                ("worker-1", Some("1.0")),
                ("worker-2", Some("1.0"))
            ]
        );
        assert_eq!(all.kubernetes_for("worker-1"), "v1.36.3");
        all.set_release("worker-1", &newer);
        all.set_release("worker-2", &newer);
        assert!(recorded(&all).iter().all(|(_, own)| own.is_none()));
        assert_eq!(all.bundles_in_use().len(), 1);
    }

    #[test]
    fn another_patch_release_is_not_a_newer_minor_version() {
        assert!(is_newer_minor("v1.37.0", "v1.36.3"));
        assert!(!is_newer_minor("v1.36.4", "v1.36.3"));
        assert!(!is_newer_minor("v1.35.9", "v1.36.3"));
    }
}
