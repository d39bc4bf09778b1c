//! Changes of the roles of a declared host.

use std::path::{Path, PathBuf};

use halite_pillar::declaration::Declaration;
use halite_pillar::etcd::Placement;
use halite_pillar::load::{Texts, load};
use halite_pillar::node::Node;
use halite_pillar::resolve;
use halite_pillar::role::Role;
use halite_pillar::validate::{Context, warnings};

use super::nodes::write;
use super::slow::in_background;
use super::{Declarations, Snapshot};
use crate::refusal::Refusal;

/// The progress of a host whose roles change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Before: the host still has everything that its document declares.
    Before,
    /// After its etcd member and its control plane have left, unless it keeps them.
    Left,
}

impl Declarations {
    /// Gives a host other roles in its document; returns whether this changed anything.
    ///
    /// # Errors
    /// No node has this name, a role cannot be given to or taken from a host that stays, the
    /// declaration would not be valid, or the document cannot be written. Then the document is
    /// unchanged.
    pub async fn set_roles(
        &self,
        name: &str,
        roles: &[Role],
        stage: Stage,
    ) -> Result<bool, Refusal> {
        let _one_at_a_time = self.writing.lock().await;
        let (snapshot, name, roles) = (self.load().await?, name.to_owned(), roles.to_vec());
        let config_dir = self.config_dir().to_owned();
        in_background(move || set_roles(&snapshot, &config_dir, &name, &roles, stage)).await
    }

    /// Validates other roles of a host, in the form in which they are written at the end of the
    /// change. Returns the warnings that only the new declaration has.
    ///
    /// # Errors
    /// The same as for [`Declarations::set_roles`]; nothing is written.
    pub async fn allow_roles(&self, name: &str, roles: &[Role]) -> Result<Vec<String>, Refusal> {
        let (snapshot, name, roles) = (self.load().await?, name.to_owned(), roles.to_vec());
        let config_dir = self.config_dir().to_owned();
        in_background(move || {
            let planned = planned(&snapshot, &config_dir, &name, &roles, Stage::Left)?;
            let texts = |declaration: &Declaration| -> Vec<String> {
                let all = warnings(declaration);
                all.iter().map(ToString::to_string).collect()
            };
            let before = texts(snapshot.declaration());
            let mut after = planned.map_or_else(Vec::new, |planned| texts(&planned.after));
            after.retain(|warning| !before.contains(warning));
            Ok(after)
        })
        .await
    }
}

/// A document with other roles.
struct Planned {
    file: PathBuf,
    text: String,
    /// The declaration with this document.
    after: Declaration,
}

fn set_roles(
    snapshot: &Snapshot,
    config_dir: &Path,
    name: &str,
    roles: &[Role],
    stage: Stage,
) -> Result<bool, Refusal> {
    let Some(planned) = planned(snapshot, config_dir, name, roles, stage)? else {
        return Ok(false);
    };
    write(&planned.file, &planned.text)?;
    tracing::info!(node = name, ?roles, "roles changed");
    Ok(true)
}

/// The document with these roles, validated with all others; `None` if it already has them.
fn planned(
    snapshot: &Snapshot,
    config_dir: &Path,
    name: &str,
    roles: &[Role],
    stage: Stage,
) -> Result<Option<Planned>, Refusal> {
    let declaration = snapshot.declaration();
    let Some(node) = declaration.nodes.get(name) else {
        return Err(Refusal::not_found(format!(
            "there is no node {name}; `ctl status` shows all nodes"
        )));
    };
    let same = |role: &Role| roles.contains(role) == node.has(*role);
    if Role::ALL.iter().all(same) {
        return Ok(None);
    }
    let reasons = refusals(node, roles, stage, declaration.cluster.etcd.placement);
    if !reasons.is_empty() {
        return Err(Refusal::conflict(format!(
            "cannot change the roles of {name}: {}",
            reasons.join("\n")
        )));
    }
    let refused = |problems: Vec<_>| Refusal::from_problems(&problems);
    let invalid = |problem: halite_document::Problem| Refusal::invalid(problem.to_string());
    let file = &node.source.file;
    let mut text = resolve::with_other_roles(declaration, name, roles).map_err(invalid)?;
    let mut texts = Texts::from_dir(config_dir).map_err(refused)?;
    let context = Context {
        bundle: Some(snapshot.bundle()?),
        ..Context::default()
    };
    let mut put = |text: &str| {
        let own = texts.nodes.iter_mut().filter(|text| text.file == *file);
        own.for_each(|own| text.clone_into(&mut own.text));
        load(&texts, &context).map_err(refused)
    };
    let mut after = put(&text)?;
    // Recorded together with the role, so that the other hosts' priorities do not depend on the
    // order.
    if let Some(with_priority) = resolve::priority(&after, name).map_err(invalid)? {
        after = put(&with_priority)?;
        text = with_priority;
    }
    Ok(Some(Planned {
        file: PathBuf::from(file),
        text,
        after,
    }))
}

/// The reasons why a host that stays cannot have these roles.
fn refusals(node: &Node, roles: &[Role], stage: Stage, placement: Placement) -> Vec<String> {
    let mut reasons = Vec::new();
    if node.has(Role::Bootstrap) != roles.contains(&Role::Bootstrap) {
        reasons.push("only the first host has the role bootstrap, and keeps it".to_owned());
    }
    let loses = |role: Role| node.has(role) && !roles.contains(&role);
    let (plane, member) = (Role::ControlPlane, Role::Etcd);
    let parts = [
        (
            node.is_member() && loses(member),
            "its etcd member still exists",
        ),
        (
            node.serves_api() && loses(plane),
            "its control plane still exists",
        ),
    ];
    let there = parts.iter().filter(|(there, _)| *there);
    let there: Vec<&str> = there.map(|(_, part)| *part).collect();
    if !there.is_empty() && stage == Stage::Before {
        reasons.push(format!(
            "{}: `ctl node roles` removes the parts of a lost role first",
            there.join(" and ")
        ));
    }
    let keeps_one = roles.contains(&plane) || roles.contains(&member);
    // With an external etcd no host is a member; otherwise an API server uses all members.
    if !there.is_empty() && keeps_one && placement == Placement::Stacked {
        reasons.push(
            "with `etcd.placement: stacked` the API server of a host uses that host's etcd member, so control-plane and \
             etcd leave a host together: leave out both, or neither"
                .to_owned(),
        );
    }
    let after = Node::new(&node.metadata.name, node.address, roles);
    if node.runs_containers() && !after.runs_containers() {
        reasons.push(
            "it would no longer be a Kubernetes node; run `ctl node remove`, then `ctl node add` with the new roles"
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
            refusals(&node, after, Stage::Before, Placement::Stacked).join("\n")
        };
        for (before, after) in [
            (&[Worker][..], &[Worker, Infra][..]),
            (&[Worker, Infra], &[Infra]),
            (&[Worker], &[ControlPlane, Etcd]),
            // A declared host that is not a member yet.
            (&[Worker, ControlPlane, Etcd], &[Worker]),
            (&[Worker, Registry], &[Worker]),
            (&[Registry], &[Registry, Worker]),
        ] {
            assert_eq!(of(before, after), "", "{before:?} {after:?}");
        }
        let first = [Bootstrap, Registry, Etcd, ControlPlane];
        assert!(of(&first, &[Registry, Etcd, ControlPlane]).contains("keeps it"));
        // With an external etcd no host is a member.
        let alone = [Bootstrap, Registry, ControlPlane];
        assert!(of(&alone, &[Bootstrap, Registry, Worker]).contains("still exists"));
        assert!(of(&[Worker], &[Worker, Bootstrap]).contains("only the first host"));
        assert!(of(&first, &[Bootstrap, Registry, Worker]).contains("still exists"));
        let left = |after: &[Role], placement: Placement| {
            let node = Node::new("a", None, &first);
            refusals(&node, after, Stage::Left, placement).join("\n")
        };
        assert_eq!(left(&[Bootstrap, Registry, Worker], Placement::Stacked), "");
        // Neither of the two can leave alone, except where an API server uses all members.
        for after in [
            &[Bootstrap, Registry, ControlPlane][..],
            &[Bootstrap, Registry, Etcd, Worker],
        ] {
            let reasons = left(after, Placement::Stacked);
            assert!(reasons.contains("leave a host together"), "{reasons}");
            assert_eq!(left(after, Placement::Dedicated), "");
        }
        let alone = refusals(
            &Node::new("a", None, &first),
            &[Bootstrap, Registry, ControlPlane],
            Stage::Before,
            Placement::Dedicated,
        );
        assert_eq!(alone.len(), 1, "{alone:?}");
        assert!(alone[0].starts_with("its etcd member still exists"));
        assert!(of(&[Worker, Registry], &[Registry]).contains("no longer be a Kubernetes node"));
    }
}
