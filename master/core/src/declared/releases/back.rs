//! The way back: hosts that an upgrade has given a newer bundle return to the previous one while
//! the upgrade has not ended.

use halite_names::{BundleVersion, MASTER, NodeName};
use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::declaration::Declaration;
use halite_pillar::release::{Release, is_newer_minor, minor};
use halite_pillar::role::Role;

use super::super::bundle::InUse;
use super::super::{Declarations, Snapshot};
use super::{fits_all, release};
use crate::refusal::Refusal;

/// The component of a bundle with the version of etcd.
const ETCD: &str = "etcd";
/// The program whose newer version may have changed the store.
const MASTER_PROGRAM: &str = "halite-master";

impl Declarations {
    /// Returns the reason why hosts cannot return from one bundle of the site to another one with
    /// the same minor version of Kubernetes; `None` if they can.
    ///
    /// # Errors
    /// A bundle cannot be read.
    pub async fn obstacle_to_return(
        &self,
        declaration: &Declaration,
        from: &BundleVersion,
        to: &BundleVersion,
    ) -> Result<Option<String>, Refusal> {
        let (from, to) = (
            self.reader.bundle(from).await?,
            self.reader.bundle(to).await?,
        );
        let (from, to) = (&from.in_use.facts, &to.in_use.facts);
        let has_etcd = declaration.nodes.values().any(|node| node.has(Role::Etcd));
        let mut hosts = declaration.nodes.keys();
        let has_master = hosts.any(|name| declaration.part(name).is_some());
        let etcd = has_etcd.then(|| of_etcd(from, to)).flatten();
        let master = has_master.then(|| of_the_master(from, to)).flatten();
        Ok(etcd.or(master))
    }

    /// The time at which a bundle of the site was built; `None` if it cannot be read.
    pub async fn built(&self, bundle: &BundleVersion) -> Option<jiff::Timestamp> {
        let read = self.reader.bundle(bundle).await.ok()?;
        read.in_use.manifest.built.parse().ok()
    }
}

/// The release of a bundle to which hosts may return.
///
/// # Errors
/// All hosts and the objects of the cluster have another bundle, or a host cannot return from the
/// one that it has; or the documents do not fit the bundle.
pub(super) fn may_return(snapshot: &Snapshot, to: &InUse) -> Result<Release, Refusal> {
    let release = release(to)?;
    let declaration = snapshot.declaration();
    let refuse = |why: String| {
        Err(Refusal::conflict(format!(
            "cannot return to the bundle {}: {why}",
            release.bundle
        )))
    };
    let in_use = declaration.bundles_in_use();
    // After two upgrades that have not ended, no document may record the bundle between them. The
    // start of a return compares the records.
    let has_ended = in_use.len() < 2 && !in_use.contains(&release.bundle);
    if declaration.cluster_release().is_none() || has_ended {
        return refuse(
            "no host and no object of the cluster has it any more, so the upgrade has ended; restore a backup instead".to_owned(),
        );
    }
    let hosts = || declaration.nodes.keys().map(NodeName::as_str);
    let is_api = |minion: &str| {
        let node = declaration.nodes.get(minion);
        minion == MASTER || node.is_some_and(|node| node.has(Role::ControlPlane))
    };
    let newer = |minion: &&str| {
        is_api(minion) && is_newer_minor(declaration.kubernetes_for(minion), &release.kubernetes)
    };
    if let Some(minion) = hosts().chain([MASTER]).find(newer) {
        let has = match minion {
            MASTER => "the cluster's objects have".to_owned(),
            host => format!("{host} has"),
        };
        return refuse(format!(
            "{has} Kubernetes {}, and the bundle has {}; between minor versions, only a restored backup leads back",
            declaration.kubernetes_for(minion),
            release.kubernetes
        ));
    }
    for (name, node) in &declaration.nodes {
        let from = snapshot.bundle_for(&name.as_str().parse()?)?;
        let etcd = node.has(Role::Etcd).then(|| of_etcd(from, &to.facts));
        let master = declaration.part(name.as_str());
        let master = master.map(|_| of_the_master(from, &to.facts));
        if let Some(why) = etcd.flatten().or_else(|| master.flatten()) {
            return refuse(format!("{name} has the bundle {}: {why}", from.version));
        }
    }
    fits_all(declaration, release, &to.facts)
}

/// etcd's own rule: data that a newer minor version has written are not read by an older one.
fn of_etcd(from: &BundleFacts, to: &BundleFacts) -> Option<String> {
    let (has, gets) = (from.components.get(ETCD)?, to.components.get(ETCD)?);
    (minor(has) != minor(gets)).then(|| {
        format!(
            "etcd {has} has written the data, and etcd cannot be downgraded to another minor version ({gets})"
        )
    })
}

/// A newer master may have changed its store, which an older one then does not open.
fn of_the_master(from: &BundleFacts, to: &BundleFacts) -> Option<String> {
    let (has, gets) = (
        from.programs.get(MASTER_PROGRAM)?,
        to.programs.get(MASTER_PROGRAM)?,
    );
    (has != gets).then(|| {
        format!(
            "it has another halite-master than {}, and an older one may not open the store; only a restored backup leads back",
            to.version
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(etcd: &str, master: &str) -> BundleFacts {
        BundleFacts {
            components: [(ETCD.to_owned(), etcd.to_owned())].into(),
            programs: [(MASTER_PROGRAM.to_owned(), master.to_owned())].into(),
            ..BundleFacts::new("1.0".parse().unwrap(), "v1.36.3")
        }
    }

    #[test]
    fn another_patch_of_etcd_leads_back_and_another_minor_version_does_not() {
        let of = |from, to| of_etcd(&facts(from, ""), &facts(to, ""));
        assert_eq!(of("3.6.9-0", "3.6.8-0"), None);
        let why = of("3.7.0-0", "3.6.8-0").unwrap();
        assert!(
            why.contains("3.7.0-0") && why.contains("cannot be downgraded"),
            "{why}"
        );
    }

    #[test]
    fn another_program_of_the_master_does_not_lead_back() {
        let of = |from, to| of_the_master(&facts("", from), &facts("", to));
        assert_eq!(of("a", "a"), None);
        assert!(of("b", "a").unwrap().contains("another halite-master"));
        let none = BundleFacts::new("1.0".parse().unwrap(), "v1.36.3");
        assert_eq!(of_the_master(&none, &facts("", "a")), None);
    }
}
