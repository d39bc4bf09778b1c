//! Changes of the roles of a declared host.

use std::path::Path;

use halite_pillar::load::{Texts, load};
use halite_pillar::node::Node;
use halite_pillar::role::Role;
use halite_pillar::roles::with_roles;
use halite_pillar::validate::Context;

use super::nodes::write;
use super::slow::in_background;
use super::{Declarations, Snapshot};
use crate::refusal::Refusal;

impl Declarations {
    /// Gives a host other roles in its document; answers whether that changed something.
    ///
    /// # Errors
    /// There is no such node, a role cannot be given or taken from a host that stays, the
    /// declaration would not be valid, or the document cannot be written. Then it is as before.
    pub async fn set_roles(&self, name: &str, roles: &[Role]) -> Result<bool, Refusal> {
        let _one_at_a_time = self.writing.lock().await;
        let (snapshot, name, roles) = (self.load().await?, name.to_owned(), roles.to_vec());
        let config_dir = self.config_dir().to_owned();
        in_background(move || set_roles(&snapshot, &config_dir, &name, &roles)).await
    }
}

fn set_roles(
    snapshot: &Snapshot,
    config_dir: &Path,
    name: &str,
    roles: &[Role],
) -> Result<bool, Refusal> {
    let declaration = snapshot.declaration();
    let Some(node) = declaration.nodes.get(name) else {
        return Err(Refusal::not_found(format!(
            "there is no node {name}; `ctl status` shows them"
        )));
    };
    let same = |role: &Role| roles.contains(role) == node.has(*role);
    if Role::ALL.iter().all(same) {
        return Ok(false);
    }
    let reasons = refusals(node, roles);
    if !reasons.is_empty() {
        return Err(Refusal::conflict(format!(
            "cannot change the roles of {name}: {}",
            reasons.join("\n")
        )));
    }
    let refused = |problems: Vec<_>| Refusal::from_problems(&problems);
    let file = &node.source.file;
    let text = with_roles(file, node.source.text(), roles);
    let text = text.map_err(|problem| Refusal::invalid(problem.to_string()))?;
    let mut texts = Texts::from_dir(config_dir).map_err(refused)?;
    let own = texts.nodes.iter_mut().filter(|text| text.file == *file);
    own.for_each(|own| own.text.clone_from(&text));
    let context = Context {
        bundle: Some(snapshot.bundle()?),
        ..Context::default()
    };
    load(&texts, &context).map_err(refused)?;
    tracing::info!(node = name, ?roles, "roles changed");
    write(Path::new(file), &text)?;
    Ok(true)
}

/// The reasons why a host that stays cannot have these roles.
fn refusals(node: &Node, roles: &[Role]) -> Vec<String> {
    let mut reasons = Vec::new();
    if node.has(Role::Bootstrap) != roles.contains(&Role::Bootstrap) {
        reasons.push("only the first host has the role bootstrap, and keeps it".to_owned());
    }
    let leaves = |role: Role| node.has(role) && !roles.contains(&role);
    if node.is_member() && leaves(Role::Etcd) || node.serves_api() && leaves(Role::ControlPlane) {
        reasons.push(
            "its member of etcd and its control plane leave only with the host: `ctl node remove`, then `ctl node add` with \
             the roles that it is to have"
                .to_owned(),
        );
    }
    let after = Node::new(&node.metadata.name, node.address, roles);
    if node.runs_containers() && !after.runs_containers() {
        reasons.push(
            "it would be no Kubernetes node any more: `ctl node remove`, then `ctl node add` with the roles that it is to have"
                .to_owned(),
        );
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_taken_from_a_host_that_stays_is_refused() {
        use Role::{Bootstrap, ControlPlane, Etcd, Infra, Registry, Worker};
        let of = |before: &[Role], after: &[Role]| {
            let node = Node::new("a", None, before);
            refusals(&node, after).join("\n")
        };
        for (before, after) in [
            (&[Worker][..], &[Worker, Infra][..]),
            (&[Worker, Infra], &[Infra]),
            (&[Worker], &[ControlPlane, Etcd]),
            // Declared, and not a member yet.
            (&[Worker, ControlPlane, Etcd], &[Worker]),
            (&[Worker, Registry], &[Worker]),
            (&[Registry], &[Registry, Worker]),
        ] {
            assert_eq!(of(before, after), "", "{before:?} {after:?}");
        }
        let first = [Bootstrap, Registry, Etcd, ControlPlane];
        assert!(of(&first, &[Registry, Etcd, ControlPlane]).contains("keeps it"));
        // Of an external etcd no host is a member.
        let alone = [Bootstrap, Registry, ControlPlane];
        assert!(of(&alone, &[Bootstrap, Registry, Worker]).contains("leave only with the host"));
        assert!(of(&[Worker], &[Worker, Bootstrap]).contains("only the first host"));
        assert!(of(&first, &[Bootstrap, Registry, Worker]).contains("leave only with the host"));
        assert!(of(&[Worker, Registry], &[Registry]).contains("no Kubernetes node any more"));
    }
}
