//! etcd in a minion's view, and the secrets for the access to an external one.

use halite_secrets::reference;
use serde::Serialize;

use crate::cluster::Cluster;
use crate::component::Patch;
use crate::declaration::Declaration;
use crate::etcd::{CLIENT_KEY, Defrag, Mode, Placement};
use crate::flags::Flags;
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

/// The part of the view about etcd.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct View<'a> {
    placement: Placement,
    mode: Mode,
    external: Option<External<'a>>,
    /// The URLs that the API servers use if members are on hosts of their own.
    servers: Option<Vec<String>>,
    extra_args: &'a Flags,
    patches: &'a [Patch],
    defrag: &'a Defrag,
}

#[derive(Debug, Serialize)]
struct External<'a> {
    endpoints: &'a [String],
    ca: &'a str,
    certificate: Option<String>,
    key: Option<String>,
}

/// Returns the part of the view. A host that may not see the key has no use for its certificate.
pub(super) fn view(declaration: &Declaration, allowed: impl Fn(&str) -> bool) -> View<'_> {
    let cluster = &declaration.cluster;
    let etcd = &cluster.etcd;
    let is_client = allowed(CLIENT_KEY);
    let client = cluster.external_client().filter(|_| is_client);
    View {
        placement: etcd.placement,
        mode: etcd.mode,
        external: cluster.external_etcd().map(|external| External {
            endpoints: &external.endpoints,
            ca: &external.ca,
            certificate: client.map(|client| client.certificate),
            key: is_client.then(|| reference::for_path(CLIENT_KEY)),
        }),
        servers: (etcd.placement == Placement::Dedicated).then(|| servers(declaration)),
        extra_args: &etcd.extra_args,
        patches: &etcd.patches,
        defrag: &etcd.defrag,
    }
}

/// The URLs that the API servers use if members are on hosts of their own: the members with a vote,
/// sorted by the names of their hosts.
fn servers(declaration: &Declaration) -> Vec<String> {
    let members = declaration.nodes.values().filter(|node| node.has_vote());
    members
        .filter_map(|node| Some(format!("https://{}:{CLIENT_PORT}", node.control_plane()?)))
        .collect()
}
