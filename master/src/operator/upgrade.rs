//! `ctl upgrade`: the target bundle of an upgrade, before any change.

use halite_api::{BundleRelease, UpgradePlan};
use halite_core::declared::{Declarations, Snapshot};
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_names::{BundleVersion, BundleVersionError, NodeName};
use halite_pillar::bundle_facts::SiteBundle;
use halite_pillar::release::order;

/// The bundle that `wanted` names (its version, or that of its Kubernetes), and the hosts that do
/// not have it yet.
///
/// # Errors
/// No bundle of the site has this version, or several have this Kubernetes; or the cluster cannot
/// be upgraded to it, with the reasons.
pub(super) async fn document(
    declarations: &Declarations,
    snapshot: &Snapshot,
    wanted: &str,
) -> Result<UpgradePlan, Refusal> {
    let in_use = snapshot.bundle()?;
    let bundle = find(&in_use.on_site(), wanted)?;
    let release = declarations.allowed(snapshot, &bundle).await?;
    let declaration = snapshot.declaration();
    let lacks = |name: &&NodeName| declaration.bundle_for(name) != Some(&bundle);
    let hosts = declaration.nodes.keys().filter(lacks);
    Ok(UpgradePlan {
        hosts: hosts.map(ToString::to_string).collect(),
        bundle: release.bundle.to_string(),
        kubernetes: release.kubernetes.clone(),
        before: BundleRelease {
            bundle: in_use.version.to_string(),
            kubernetes: in_use.kubernetes.clone(),
        },
    })
}

fn find(site: &[SiteBundle], wanted: &str) -> Result<BundleVersion, Refusal> {
    let by_version = site.iter().filter(|held| held.version == wanted);
    let by_kubernetes = site
        .iter()
        .filter(|held| wanted.contains('.') && order(&held.kubernetes, wanted).is_eq());
    let mut found: Vec<&SiteBundle> = by_version.collect();
    if found.is_empty() {
        found = by_kubernetes.collect();
    }
    let named = |all: &[&SiteBundle]| {
        let one = |held: &&SiteBundle| format!("{} ({})", held.version, held.kubernetes);
        all.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    match found.as_slice() {
        [one] => {
            let version = one.version.parse();
            version.map_err(|error: BundleVersionError| Refusal::invalid(chain(&error)))
        }
        [] => Err(Refusal::not_found(format!(
            "this site has no bundle {wanted}, and none with that Kubernetes; it has {}: `ctl bundle add` adds another one",
            named(&site.iter().collect::<Vec<_>>())
        ))),
        several => Err(Refusal::invalid(format!(
            "several bundles have Kubernetes {wanted}: {}; name one by its own version",
            named(several)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_named_by_its_version_or_its_kubernetes() {
        let held = |version: &str, kubernetes: &str| SiteBundle {
            version: version.to_owned(),
            kubernetes: kubernetes.to_owned(),
            ..SiteBundle::default()
        };
        let site = [
            held("1.0", "v1.36.3"),
            held("1.1", "v1.36.4"),
            held("1.2", "v1.36.4"),
        ];
        let found = |wanted: &str| {
            let found = find(&site, wanted);
            found.map_or_else(|refusal| refusal.message, String::from)
        };
        assert_eq!(found("1.1"), "1.1");
        assert_eq!(found("v1.36.3"), "1.0");
        assert_eq!(found("1.36.3"), "1.0");
        let several = found("1.36.4");
        assert!(
            several.contains("1.1 (v1.36.4), 1.2 (v1.36.4); name one"),
            "{several}"
        );
        let none = found("1.37.0");
        assert!(
            none.contains("has no bundle 1.37.0") && none.contains("ctl bundle add"),
            "{none}"
        );
    }
}
