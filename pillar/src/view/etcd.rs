//! etcd in a minion's view, and the secrets of the way to an external one.

use halite_secrets::reference;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::declaration::Declaration;
use crate::etcd::{CLIENT_KEY, Placement};
use crate::node::Node;
use crate::role::Role;

/// The port at which a member serves clients.
const CLIENT_PORT: u16 = 2379;

/// The secret of an external etcd, if a node may see it.
pub(super) fn allowed(cluster: &Cluster, node: &Node) -> Option<String> {
    let needs = cluster.external_etcd().is_some() && node.has(Role::ControlPlane);
    needs.then(|| CLIENT_KEY.to_owned())
}

/// The secret at that pillar path.
pub(super) fn secret(cluster: &Cluster, path: &str) -> Option<String> {
    let client = cluster.external_client().filter(|_| path == CLIENT_KEY);
    Some(client?.key)
}

/// The part of the view about etcd. A host that may not see the key has no use for its certificate.
pub(super) fn view(declaration: &Declaration, allowed: impl Fn(&str) -> bool) -> Value {
    let cluster = &declaration.cluster;
    let etcd = &cluster.etcd;
    let is_client = allowed(CLIENT_KEY);
    let client = cluster.external_client().filter(|_| is_client);
    json!({
        "placement": etcd.placement,
        "mode": etcd.mode,
        "external": cluster.external_etcd().map(|external| json!({
            "endpoints": external.endpoints,
            "ca": external.ca,
            "certificate": client.map(|client| client.certificate),
            "key": is_client.then(|| reference::for_path(CLIENT_KEY)),
        })),
        "servers": (etcd.placement == Placement::Dedicated).then(|| servers(declaration)),
        "extraArgs": etcd.extra_args,
        "defrag": etcd.defrag,
    })
}

/// The URLs that the API servers use where members are on hosts of their own: those of the members
/// with a vote, sorted by the names of their hosts.
fn servers(declaration: &Declaration) -> Vec<String> {
    let members = declaration.nodes.values().filter(|node| node.has_vote());
    members
        .filter_map(|node| Some(format!("https://{}:{CLIENT_PORT}", node.control_plane()?)))
        .collect()
}
