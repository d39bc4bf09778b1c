//! The bundle and the Kubernetes version that node documents record in the middle of an upgrade.

use std::cmp::Ordering;

use super::Check;
use crate::declaration::Document;
use crate::node::{Node, ResolvedNode};
use crate::release::{is_next_minor, minor, order};
use crate::role::Role;

const BUNDLE: &str = "resolved.bundle";
const KUBERNETES: &str = "resolved.kubernetes";

pub(super) fn check(check: &mut Check<'_>) {
    for node in check.declaration.nodes.values() {
        if let Some(resolved) = &node.resolved {
            record(check, node, resolved);
        }
    }
    kubelets(check);
    minors(check);
}

fn record(check: &mut Check<'_>, node: &Document<Node>, resolved: &ResolvedNode) {
    let (bundle, kubernetes) = match (&resolved.bundle, &resolved.kubernetes) {
        (None, None) => return,
        (Some(bundle), Some(kubernetes)) => (bundle, kubernetes),
        (bundle, _) => {
            let (has, lacks) = if bundle.is_some() {
                (BUNDLE, KUBERNETES)
            } else {
                (KUBERNETES, BUNDLE)
            };
            return check.node(
                node,
                has,
                format!("`{has}` without `{lacks}`"),
                "Halite records both or none; restore the previous values",
            );
        }
    };
    let cluster = &check.declaration.cluster;
    if check.declaration.cluster_release().is_none() {
        return check.node(
            node,
            BUNDLE,
            "the node document records a bundle, but the cluster document does not",
            "`ctl bundle list` shows the bundles of this site, `ctl bundle use` records one",
        );
    }
    let common = cluster.kubernetes_version();
    let fits = minor(kubernetes) == minor(common)
        || is_next_minor(kubernetes, common)
        || is_next_minor(common, kubernetes);
    if check.sound("resolved") && !fits {
        check.node(
            node,
            KUBERNETES,
            format!(
                "the cluster has Kubernetes {}, and this node {kubernetes}",
                minor(common)
            ),
            "in an upgrade, hosts differ by one minor version at most; restore the recorded value",
        );
    }
    let Some(known) = check.context.bundle.filter(|known| !known.site.is_empty()) else {
        return;
    };
    match known
        .on_site()
        .iter()
        .find(|held| held.version == bundle.as_str())
    {
        None => check.node(
            node,
            BUNDLE,
            format!("this site has no bundle {bundle}"),
            "add it again with `ctl bundle add`: the node is compiled from it",
        ),
        Some(held) if held.kubernetes != *kubernetes => check.node(
            node,
            KUBERNETES,
            format!(
                "the bundle {bundle} has Kubernetes {}, not {kubernetes}",
                held.kubernetes
            ),
            "Halite records both together; restore the previous values",
        ),
        Some(_) => {}
    }
}

/// A kubelet is never newer than an API server that it may speak to: a control-plane host has its
/// own, any other host may reach each of them (kubernetes.io/releases/version-skew-policy).
fn kubelets(check: &mut Check<'_>) {
    let declaration = check.declaration;
    let nodes = || declaration.nodes.iter();
    let oldest = nodes()
        .filter(|(_, node)| node.has(Role::ControlPlane))
        .map(|(name, _)| (declaration.kubernetes_for(name.as_str()), name))
        .min_by(|(one, _), (other, _)| order(one, other));
    let Some((oldest, server)) = oldest else {
        return;
    };
    let others =
        nodes().filter(|(_, node)| node.runs_containers() && !node.has(Role::ControlPlane));
    for (name, node) in others {
        let own = declaration.kubernetes_for(name.as_str());
        if node.own_release().is_some() && order(own, oldest) == Ordering::Greater {
            check.node(
                node,
                KUBERNETES,
                format!("this node has Kubernetes {own}, newer than the API server of {server} ({oldest})"),
                "control-plane hosts are upgraded first; restore the recorded value",
            );
        }
    }
}

/// Hosts have at most two minor versions, one directly after the other. The objects, kube-proxy
/// among them, follow all API servers: kube-proxy is never newer than one that it may speak to.
fn minors(check: &mut Check<'_>) {
    let declaration = check.declaration;
    if !check.sound("resolved") {
        return;
    }
    let common = declaration.cluster.kubernetes_version();
    let own = |name: &str| declaration.kubernetes_for(name);
    for (name, node) in &declaration.nodes {
        let kubernetes = own(name.as_str());
        if node.own_release().is_none() {
            continue;
        }
        if node.has(Role::ControlPlane) && is_next_minor(common, kubernetes) {
            check.node(
                node,
                KUBERNETES,
                format!("this API server has Kubernetes {kubernetes}, and the objects of the cluster have {common}"),
                "the objects follow when every API server has the new minor version; restore the recorded value",
            );
        }
        let is_behind = |other: &&str| is_next_minor(common, own(other));
        let behind = declaration.nodes.keys().map(|other| other.as_str());
        if is_next_minor(kubernetes, common)
            && let Some(other) = { behind }.find(is_behind)
        {
            check.node(
                node,
                KUBERNETES,
                format!(
                    "this node has Kubernetes {kubernetes}, two minor versions after {other} ({})",
                    own(other)
                ),
                "in an upgrade, hosts differ by one minor version at most; restore the recorded value",
            );
        }
    }
}
