//! The node document of the first host of a cluster.

use std::path::Path;

use anyhow::anyhow;
use halite_pillar::load::{Text, Texts};
use halite_pillar::node::{Node, ResolvedNode, node_block};
use halite_pillar::resolve::record;
use halite_pillar::role::{BOOTSTRAP_ROLES, Role};
use halite_pillar::roles::with_roles;

use super::given::own_file;
use super::{is_etcd_external, value_at};

/// Makes a host the first one if the documents in a directory declare none: those of a new cluster,
/// or those of a backup made after the first host had left. An existing document of the host keeps
/// its declarations and gets the roles that it lacks. An unreadable one is left unchanged, and is
/// reported with all other problems.
///
/// # Errors
/// The roles in the host's document cannot be changed.
pub(super) fn declare(texts: &mut Texts, directory: &Path, name: &str) -> anyhow::Result<()> {
    if texts.nodes.iter().any(is_first) {
        return Ok(());
    }
    let file = directory.join(own_file(name)).display().to_string();
    let founds_etcd = founds_etcd(texts);
    let needed = BOOTSTRAP_ROLES.into_iter();
    let needed: Vec<Role> = needed
        .filter(|role| *role != Role::Etcd || founds_etcd)
        .collect();
    let is_own = |text: &&mut Text| Path::new(&text.file).ends_with(own_file(name));
    let Some(own) = texts.nodes.iter_mut().find(is_own) else {
        let text = Node::new(name, None, &needed).to_text();
        texts.nodes.push(Text { file, text });
        return Ok(());
    };
    let Some(declared) = roles(own) else {
        return Ok(());
    };
    let further = declared.into_iter().filter(|role| !needed.contains(role));
    let roles: Vec<Role> = needed.iter().copied().chain(further).collect();
    let refused = |problem| anyhow!("cannot make {name} the first host of the cluster: {problem}");
    own.text = with_roles(&own.file, &own.text, &roles).map_err(refused)?;
    if let Some(resolved) = joined(own).filter(|_| founds_etcd) {
        // On a first host this record would mean that it has given its member of etcd away.
        let block = node_block(&ResolvedNode {
            joined: false,
            ..resolved
        });
        own.text = record(&own.file, &own.text, &block).map_err(refused)?;
    }
    Ok(())
}

/// Returns true if the document declares a first host.
fn is_first(text: &Text) -> bool {
    named_roles(text).is_some_and(|roles| roles.iter().any(|role| role == Role::Bootstrap.as_str()))
}

fn named_roles(text: &Text) -> Option<Vec<String>> {
    serde_json::from_value(value_at(text, "roles")?).ok()
}

/// The roles in a document; `None` if one of them is unknown.
fn roles(text: &Text) -> Option<Vec<Role>> {
    let roles = named_roles(text)?;
    roles.iter().map(|role| Role::named(role)).collect()
}

/// The record in a document of a host that has joined the cluster.
fn joined(text: &Text) -> Option<ResolvedNode> {
    let resolved = value_at(text, "resolved")?;
    let resolved: ResolvedNode = serde_json::from_value(resolved).ok()?;
    resolved.joined.then_some(resolved)
}

/// Returns true if the first host has to found etcd, because no host is a member yet. A restore
/// removes the records of members from the documents before.
fn founds_etcd(texts: &Texts) -> bool {
    let is_member = |text: &Text| value_at(text, "resolved.etcd").is_some();
    let is_external = is_etcd_external(&texts.cluster);
    !is_external && !texts.nodes.iter().any(is_member)
}
