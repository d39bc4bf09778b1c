//! The master's host, and its standbys.

use super::Check;
use crate::masters::MOST;
use crate::role::Role;
use crate::standbys::Standbys;

const PATH: &str = "master.standbys";

pub(super) fn check(check: &mut Check<'_>) {
    host(check);
    let cluster = &check.declaration.cluster;
    let Standbys::Named(names) = &cluster.master.standbys else {
        return;
    };
    if names.len() > MOST {
        check.cluster(
            PATH,
            format!("{} standbys, and at most {MOST} are kept", names.len()),
            "each change waits for them: name the two that may take the master's place",
        );
    }
    for (index, name) in names.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        if names.iter().take(index).any(|earlier| earlier == name) {
            check.cluster(
                &path,
                format!("the standby `{name}` is named twice"),
                "remove one of the two",
            );
        } else {
            plane(check, &path, name, "a standby has");
        }
    }
}

/// The master's recorded host.
fn host(check: &mut Check<'_>) {
    let resolved = check.declaration.cluster.resolved.as_ref();
    if let Some(name) = resolved.and_then(|resolved| resolved.master.as_deref()) {
        plane(check, "resolved.master", name, "the master has");
    }
}

/// Reports a host without a control plane, or one that is not declared.
fn plane(check: &mut Check<'_>, path: &str, name: &str, who: &str) {
    let nodes = &check.declaration.nodes;
    if nodes.is_empty() {
        // Only the cluster document is checked.
        return;
    }
    match nodes.get(name) {
        None => {
            let names: Vec<&str> = nodes.keys().map(|name| name.as_str()).collect();
            check.cluster(
                path,
                format!("there is no node `{name}`"),
                format!("the nodes are: {}", names.join(", ")),
            );
        }
        Some(node) if !node.has(Role::ControlPlane) && node.source.is_sound("roles") => {
            check.cluster(
                path,
                format!("`{name}` has no control plane: {who} the keys of all CAs"),
                "name a host with the role control-plane, whose root has such keys in any case",
            );
        }
        Some(_) => {}
    }
}
