//! etcd: the hosts of its members, and the access to an external one.

use std::collections::BTreeSet;

use super::Check;
use crate::declaration::Document;
use crate::etcd::{Defrag, ExternalEtcd, Mode, NoIdentity, Placement, client_identity};
use crate::node::Node;
use crate::role::Role;
use crate::trust::{Unfit, certificates};

pub(super) fn check(check: &mut Check<'_>) {
    let etcd = &check.declaration.cluster.etcd;
    kept(check);
    match (etcd.placement, &etcd.external) {
        (Placement::Stacked | Placement::Dedicated, None) => {}
        (own @ (Placement::Stacked | Placement::Dedicated), Some(_)) => check.cluster(
            "etcd.external",
            format!(
                "an external etcd has no effect with `placement: {}`",
                own.as_str()
            ),
            "write `placement: external`, or remove `external`",
        ),
        (Placement::External, None) => check.cluster(
            "etcd.placement",
            "an external etcd has no endpoints",
            "name them: `external: {endpoints: [\"https://10.0.0.21:2379\"], ca: …, clientSecret: etcd-client}`",
        ),
        (Placement::External, Some(external)) => {
            endpoints(check, external);
            authority(check, external);
            client(check, external);
        }
    }
    match etcd.placement {
        Placement::Stacked => {}
        Placement::Dedicated => dedicated(check),
        Placement::External => unused(check),
    }
    for node in check.declaration.nodes.values() {
        roles(check, node, etcd.placement);
    }
}

/// The data of a cluster stay in its etcd.
fn kept(check: &mut Check<'_>) {
    let cluster = &check.declaration.cluster;
    let Some(resolved) = &cluster.resolved else {
        return;
    };
    let made = resolved.etcd.unwrap_or_default();
    // The cluster's own members come and go with their hosts' roles.
    let is_external = |placement| placement == Placement::External;
    if is_external(made) != is_external(cluster.etcd.placement) {
        check.cluster(
            "etcd.placement",
            format!(
                "this cluster was made with `placement: {}`, so its data is there",
                made.as_str()
            ),
            format!("put back `{}`", made.as_str()),
        );
    }
}

fn endpoints(check: &mut Check<'_>, external: &ExternalEtcd) {
    let mut seen = BTreeSet::new();
    for (at, endpoint) in external.endpoints.iter().enumerate() {
        if !seen.insert(endpoint) {
            check.cluster(
                &format!("etcd.external.endpoints[{at}]"),
                format!("the endpoint {endpoint} is listed twice"),
                "name each member once",
            );
        }
    }
}

fn authority(check: &mut Check<'_>, external: &ExternalEtcd) {
    let Err(unfit) = certificates(&external.ca) else {
        return;
    };
    let hint = match unfit {
        Unfit::Other(_) => "only certificates belong here; the client's key is a secret",
        Unfit::Nothing | Unfit::Damaged | Unfit::Certificate(_) => {
            "write the certificate of the authority of etcd's members as PEM, after `|` on lines of its own"
        }
    };
    // The line is not displayed: it may be from a private key.
    check.unseen("etcd.external.ca", unfit.to_string(), hint);
}

fn client(check: &mut Check<'_>, external: &ExternalEtcd) {
    const PATH: &str = "etcd.external.clientSecret";
    let name = &external.client_secret;
    let Some(secret) = check.declaration.cluster.secrets.get(name) else {
        check.cluster(
            PATH,
            format!("there is no secret `{name}`"),
            format!(
                "declare the client's certificate and its key, PEM, one after the other: `secrets: {{{name}: {{value: …}}}}`"
            ),
        );
        return;
    };
    let text = secret.known().unwrap_or_default();
    if text.is_empty() || !check.sound(PATH) {
        return;
    }
    let Err(unfit) = client_identity(text) else {
        return;
    };
    let hint = match unfit {
        NoIdentity::Encrypted => {
            "write the key without a password: the API server could not ask for it"
        }
        NoIdentity::Damaged
        | NoIdentity::NoCertificate
        | NoIdentity::Keys(_)
        | NoIdentity::Other(_) => {
            "it has to be the client's certificate and its private key, PEM, one after the other"
        }
    };
    check.unseen(
        &format!("secrets.{name}.value"),
        format!("the secret `{name}` is not a client identity for etcd: {unfit}"),
        hint,
    );
}

/// Members on hosts of their own, which have no kubelet to run them.
fn dedicated(check: &mut Check<'_>) {
    let declaration = check.declaration;
    if declaration.cluster.etcd.mode != Mode::HostService && check.sound("etcd.mode") {
        check.cluster(
            "etcd.placement",
            "a host of etcd alone has no kubelet, which would run a static pod",
            "write `mode: host-service` beside it: systemd then runs the members",
        );
    }
    let mut nodes = declaration.nodes.values();
    let is_sound = nodes.all(|node| node.source.is_sound("roles"));
    let mut nodes = declaration.nodes.values();
    if is_sound
        && !nodes.any(|node| node.is_member())
        && let Some(first) = declaration.bootstrap_node()
    {
        check.node(
            first,
            "roles",
            "no host is a member of etcd: the first host founds it",
            "add `etcd`; other hosts with the role join it",
        );
    }
}

/// Settings of members that this cluster does not have.
fn unused(check: &mut Check<'_>) {
    let etcd = &check.declaration.cluster.etcd;
    if etcd.mode != Mode::StaticPod {
        check.cluster(
            "etcd.mode",
            "the mode has no effect with `placement: external`",
            "remove it: no host of the cluster runs etcd",
        );
    }
    if !etcd.extra_args.is_empty() {
        check.cluster(
            "etcd.extraArgs",
            "the flags have no effect with `placement: external`",
            "remove them, and set them where that etcd runs",
        );
    }
    if !etcd.patches.is_empty() {
        check.cluster(
            "etcd.patches",
            "the patches have no effect with `placement: external`",
            "remove them: no host of the cluster runs etcd",
        );
    }
    if etcd.defrag != Defrag::default() {
        check.cluster(
            "etcd.defrag",
            "the defragmentation has no effect with `placement: external`",
            "remove it, and defragment that etcd where it runs",
        );
    }
}

fn roles(check: &mut Check<'_>, node: &Document<Node>, placement: Placement) {
    let (has_member, has_plane) = (node.has(Role::Etcd), node.has(Role::ControlPlane));
    let (message, hint) = match placement {
        Placement::External if has_member => (
            "`etcd` with `placement: external`: no host of the cluster has a member of etcd",
            "remove `etcd`",
        ),
        Placement::Stacked if has_plane && !has_member => (
            "`control-plane` without `etcd`: with `placement: stacked` etcd is beside the API server",
            "add `etcd`, or write `placement: dedicated` for members on hosts of their own",
        ),
        Placement::Stacked if has_member && !has_plane => (
            "`etcd` without `control-plane`: with `placement: stacked` etcd is beside the API server",
            "add `control-plane`, or write `placement: dedicated` for members on hosts of their own",
        ),
        Placement::Stacked | Placement::Dedicated | Placement::External => return,
    };
    check.node(node, "roles", message, hint);
}
